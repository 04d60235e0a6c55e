// Jinja's filters by name. Each is a pure function of its input and arguments.
#pragma once

#include <array>
#include <span>

#include "text/template/function.h"

namespace millrace::jinja {

struct FilterEntry {
  std::string_view name;
  // What follows the input, bound as Python binds arguments: names, how many of them must be given, and the function,
  // which gets one value per name, missing where none was given.
  std::array<std::string_view, 5> parameters = {};
  size_t required = 0;
  Result<Value> (*call)(Run& run, const Value& input, Values& arguments) = nullptr;
  // Or a function that takes any arguments.
  Result<Value> (*call_any)(Run& run, const Value& input, Arguments& arguments) = nullptr;
};

const FilterEntry* find_filter(std::string_view name);
Result<Value> call_filter(Run& run, const FilterEntry& filter, const Value& input, Arguments& arguments);

// The parts of the table.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> markup_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> lazy_filters();

}  // namespace millrace::jinja
