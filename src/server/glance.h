// What a JSON text says under a key of its outermost object, found without reading the rest: for texts that are too
// long or too deep to be read, or broken, or read elsewhere. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// The first such key counts. Nothing: there is none; empty: its value is no string, or one of more than 4,096 bytes.
std::optional<std::string> string_at_a_glance(std::string_view text, std::string_view key);

}  // namespace millrace
