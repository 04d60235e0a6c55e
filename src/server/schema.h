// What a client may say in a body, as tables: each field with its type, its range and what it does; the fields of an
// object inside are a table of their own. Bodies are checked against their table before anything else looks at them,
// and /openapi.json and the tables in docs/api.md are made from it, so a field cannot be taken without a range or
// documented otherwise than it is checked. Every interface brings tables; the rules are here, once. Pure; any thread.
//
// Names that are in no table: one that is nearly a known one is a mistake and refused with the name that was meant;
// any other is taken, does nothing, and is named in the answer (X-Millrace-Ignored). The same holds at every depth.
#pragma once

#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"

namespace millrace {

enum class Shape : uint8_t {
  boolean,
  integer,
  number,
  text,
  texts,    // a text or a list of texts, none of them long
  strings,  // a list of texts
  tokens,   // a list of token ids
  prompt,   // a text, a list of texts, a list of token ids, or a list of such lists
  role,     // of a message
  content,  // of a message: a text or parts of it, which `inside` describes; null is fine
  bias,     // an object of token ids and numbers
  object,   // with the fields of `inside`; without a table, any
  objects,  // a list of such
  parts,    // a text, or a list of such objects
  any,
};

// Whether a field does something.
enum class Standing : uint8_t {
  used,
  ignored,  // belongs to the interface and changes nothing about an answer: taken and left alone
  absent,   // not built: refused unless it asks for nothing
};

struct Table;

struct Field {
  std::string_view name;
  unsigned bodies = 0;  // that it belongs to; bits that the table's owner gives a meaning
  Shape shape = Shape::any;
  double least = 0, most = 0;       // of a number; of the length of a text, in bytes; of the entries of a list
  std::string_view otherwise = "";  // what holds without it, as JSON; empty: nothing, or it depends
  std::string_view help = "";
  Standing standing = Standing::used;
  unsigned required = 0;          // bodies that cannot do without it
  const Table* inside = nullptr;  // of an object, of each object of a list, of each part
  std::string_view choices = "";  // "a|b": the only texts that are taken
};

struct Table {
  std::span<const Field> fields;
};

// What holds for every field of a shape, whatever its range.
inline constexpr size_t kLongestStop = 256;    // bytes of one of several texts
inline constexpr size_t kMostPrompts = 128;    // of one request
inline constexpr size_t kMostBiases = 1024;    // tokens whose logits are changed
inline constexpr size_t kMostParts = 1024;     // of one message's content
inline constexpr size_t kMostMembers = 128;    // of an object that a table describes
inline constexpr size_t kLongestTokenKey = 9;  // digits of a token id that is a key
inline constexpr int64_t kLargestToken = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMostTokens = 1 << 30;  // of a prompt, before anybody asks what the context has room for
inline constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
inline constexpr unsigned kInside = ~0U;  // the bodies of fields of tables that stand inside others

// Names of what was taken and does nothing: "metadata", "messages.[].name".
using Ignored = std::set<std::string>;
inline constexpr size_t kMostIgnored = 128;  // different ones, in a whole body

// Checks names, types and ranges of a body, which is one of those the table has. Null counts as absent.
std::optional<ApiError> check_fields(const JsonObject& body, const Table& table, unsigned kind, Ignored& ignored);

// The header that tells a client what was ignored; nothing if nothing was. Its value is plain text of bounded length.
inline constexpr std::string_view kIgnoredHeader = "X-Millrace-Ignored";
void add_ignored(const Ignored& ignored, HttpAnswer& answer);

// A body of the table as JSON Schema, for /openapi.json.
JsonObject schema_json(const Table& table, unsigned kind);
// The same in words, for docs/api.md.
std::string schema_markdown(const Table& table, unsigned kind);

}  // namespace millrace
