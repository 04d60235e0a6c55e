// Python's conversions: str(), repr(), bool(), len(), int() and float() of values, and how numbers are written.
#pragma once

#include <optional>
#include <string>

#include "text/template/run.h"

namespace millrace::jinja {

Result<bool> truthy(Run& run, const Value& value);
Result<std::string> to_str(Run& run, const Value& value);
Result<std::string> to_repr(Run& run, const Value& value);
Result<void> append_repr(Run& run, const Value& value, std::string& out);

bool has_length(const Value& value);
Result<int64_t> length(Run& run, const Value& value);

// An int or bool as a C++ integer; an error that names `what` otherwise.
Result<int64_t> to_integer(const Value& value, std::string_view what);
// The same, or `otherwise` if the value is missing or None.
Result<int64_t> to_integer_or(const Value& value, std::string_view what, int64_t otherwise);
// Text, or an error that names `what`.
Result<std::string_view> to_text(const Value& value, std::string_view what);

// Any number as a float.
double number_as_real(const Value& number);
// What float("...") and int("...", base) read; nothing if the text is no number. Integers beyond 64 bits are an error.
std::optional<double> parse_real(std::string_view text);
Result<std::optional<int64_t>> parse_integer(std::string_view text, int base);
// A float cut to an int; an error if it does not fit.
Result<int64_t> truncate_real(double value);

std::string real_repr(double value);
std::string integer_repr(const Value& integer);
std::string text_repr(std::string_view text);  // with quotes
// HTML's five characters replaced, as MarkupSafe does.
std::string escape_html(std::string_view text);

}  // namespace millrace::jinja
