// Jinja's tests (`value is name`) by name.
#pragma once

#include <array>

#include "text/template/function.h"

namespace millrace::jinja {

struct TestEntry {
  std::string_view name;
  size_t arguments = 0;  // how many follow the value
  Result<bool> (*call)(Run& run, const Value& value, const Values& arguments) = nullptr;
  std::array<std::string_view, 1> parameters = {};
};

const TestEntry* find_test(std::string_view name);
Result<bool> call_test(Run& run, const TestEntry& test, const Value& value, Arguments& arguments);

}  // namespace millrace::jinja
