// Text given to a verb: on the command line, in a file, in a file of JSON lines, or on standard input. Used by one
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace millrace::apps {

// All of standard input. An error if it is a terminal, saying that `instead` would have done.
Result<std::string> read_standard_input(std::string_view instead);

// A whole file, or standard input for "-".
Result<std::string> read_input(const std::string& file);

// Calls `each` with the value of every line of JSON lines; an error names the line. A line break at the end is no line.
Result<void> for_each_line(std::string_view text, std::string_view name,
                           const std::function<Result<void>(const Json&)>& each);

// The value of `text` as a JSON string, as it stands on a line of its own.
std::string json_string(std::string_view text);

}  // namespace millrace::apps
