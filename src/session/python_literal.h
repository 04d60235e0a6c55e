// Values as Python writes them, ['a', True, None], as JSON: some chat templates show arguments so, and their models
// write them so. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// JSON text, or nothing if it is no such value.
std::optional<std::string> json_of_python(std::string_view text);

}  // namespace millrace
