// Texts of answers as JSON strings. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Appends a text as a JSON string. What is no valid UTF-8 becomes U+FFFD.
void append_quoted(std::string& out, std::string_view text);
std::string quoted_text(std::string_view text);

}  // namespace millrace
