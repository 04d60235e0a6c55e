// The one table of everything a client may say in a request body: each field with its type, its range and what it
// does. Bodies are checked against it before anything else looks at them, and /openapi.json and the table in
// docs/api.md are made from it, so a field cannot be taken without a range or documented otherwise than it is checked.
// Constant; any thread.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"

namespace millrace {

// Which bodies a field belongs to; a set of bits.
enum Body : unsigned {
  kChat = 1,
  kCompletion = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kTemplate = 16,
  kGenerate = kChat | kCompletion,
};

enum class Shape : uint8_t {
  boolean,
  integer,
  number,
  text,
  texts,     // a text or a list of texts
  tokens,    // a list of token ids
  prompt,    // a text, a list of texts, a list of token ids, or a list of such lists
  messages,  // of a chat
  bias,      // an object of token ids and numbers
  object,
  any,
};

// Whether a field does something.
enum class Standing : uint8_t {
  used,
  ignored,  // belongs to OpenAI's interface and changes nothing about an answer: taken and left alone
  absent,   // not built: refused unless it asks for nothing
};

struct Field {
  std::string_view name;
  unsigned bodies = 0;
  Shape shape = Shape::any;
  double least = 0, most = 0;       // of a number; of the length of a text, in bytes; of the entries of a list
  std::string_view otherwise = "";  // what holds without it, as JSON; empty: nothing, or it depends
  std::string_view help = "";
  Standing standing = Standing::used;
  bool required = false;
};

// What holds for every field of a shape, whatever its range.
inline constexpr size_t kLongestStop = 256;    // bytes of one of several texts
inline constexpr size_t kMostPrompts = 128;    // of one request
inline constexpr size_t kMostBiases = 1024;    // tokens whose logits are changed
inline constexpr size_t kMostParts = 1024;     // of one message's content
inline constexpr size_t kLongestTokenKey = 9;  // digits of a token id that is a key
inline constexpr int64_t kLargestToken = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMostTokens = 1 << 30;  // of a prompt, before anybody asks what the context has room for
inline constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};

std::span<const Field> fields();

// Checks names, types and ranges of a body. Null counts as absent.
std::optional<ApiError> check_fields(const JsonObject& body, Body kind);

// The table as JSON Schema, for /openapi.json.
JsonObject schema_json(Body kind);
// The table in words, for docs/api.md.
std::string schema_markdown(Body kind);

}  // namespace millrace
