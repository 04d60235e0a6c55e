// Formats of JSON Schema as regular expressions. Values, any thread.
#pragma once

#include <optional>
#include <string_view>

namespace millrace::grammar {

// The pattern of a format; empty if the format is known but is no regular language; none if it is unknown.
std::optional<std::string_view> format_pattern(std::string_view name);

}  // namespace millrace::grammar
