// Cuts a template into tokens as Jinja does with trim_blocks and lstrip_blocks on: text outside the tags with its
// whitespace control already applied, and names, literals and operators inside them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::jinja {

enum class Token : uint8_t {
  data,
  variable_begin,
  variable_end,
  tag_begin,
  tag_end,
  name,
  text,
  integer,
  real,
  // operators
  add,
  assign,
  colon,
  comma,
  divide,
  dot,
  equal,
  floor_divide,
  greater,
  greater_equal,
  left_brace,
  left_bracket,
  left_parenthesis,
  less,
  less_equal,
  modulo,
  multiply,
  not_equal,
  pipe,
  power,
  right_brace,
  right_bracket,
  right_parenthesis,
  semicolon,
  subtract,
  tilde,
  end,
};

struct Lexeme {
  Token token = Token::end;
  uint32_t line = 0;
  std::string text;  // of data, names and string literals, unescaped
  int64_t integer = 0;
  double real = 0;
};

Result<std::vector<Lexeme>> tokenize(std::string_view source);

// How messages name a token: its text for names, else the operator or a description.
std::string describe(const Lexeme& lexeme);
std::string_view describe(Token token);

}  // namespace millrace::jinja
