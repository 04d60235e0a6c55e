// Text as the metrics see it: code points, white space and lower case as Python's str has them (that is what published
// scores were computed with). Broken UTF-8 counts byte by byte. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

std::u32string code_points(std::string_view text);
bool is_space(char32_t point);  // str.isspace()

// str.split(): runs of white space separate, none at the ends.
std::vector<std::string> split_words(std::string_view text);
std::string_view without_trailing_space(std::string_view text);

// Lower case of Latin, Greek, Cyrillic and Armenian letters.
std::string lower_case(std::string_view text);

// Lines of a file; a line break at the end begins no line, and \r before \n is none of the line.
std::vector<std::string> split_lines(std::string_view text);

}  // namespace millrace
