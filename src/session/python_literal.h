// Values as Python writes them, ['a', True, None], as JSON: some chat templates show arguments so, and their models
// write them so. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// JSON text, or nothing if it is no such value. `open` and `close`, if there are any: marks that texts stand in,
// without escapes; keys may then be bare.
std::optional<std::string> json_of_python(std::string_view text, std::string_view open = {},
                                          std::string_view close = {});

}  // namespace millrace
