// Text as Python's str sees it, on UTF-8 bytes: counting, cutting and classifying by code point, and the case mappings.
// Every string given to these functions is valid UTF-8 (the evaluator checks what comes in and only cuts between code
// points). Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::jinja {

bool valid_utf8(std::string_view text);
size_t count_code_points(std::string_view text);
// The byte where the code point of that number starts; text.size() if there are fewer.
size_t byte_offset(std::string_view text, size_t code_points);
// The code point at a byte offset; the offset moves behind it.
char32_t next_code_point(std::string_view text, size_t& offset);
// The code point that ends at a byte offset; the offset moves to its start.
char32_t previous_code_point(std::string_view text, size_t& offset);
void append_code_point(std::string& out, char32_t code_point);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);
inline bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
inline bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

// Python's str.islower() and isupper(): something cased, and nothing of the other case.
bool is_lower_text(std::string_view text);
bool is_upper_text(std::string_view text);

// Python's str.upper() and so on, with the mappings that change the length of a text.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

// Where a text occurs, from a byte offset on; in time linear in both. An empty needle is found at once.
std::optional<size_t> find_first(std::string_view text, std::string_view needle, size_t from = 0);
std::optional<size_t> find_last(std::string_view text, std::string_view needle);

// One case mapping that yields more than one code point; unused places are 0.
struct LongMapping {
  char32_t from;
  char32_t upper[3];
  char32_t title[3];
};
const LongMapping* find_long_mapping(char32_t c);

}  // namespace millrace::jinja
