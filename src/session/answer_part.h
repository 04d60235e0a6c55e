// AnswerPart: a piece of an answer and what it is: reasoning, content, or a call of a tool. All interfaces are written
// from these. Tool and ToolUse: what an answer may call. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace millrace {

struct AnswerPart {
  enum class Kind : uint8_t {
    reasoning,
    content,
    call,       // one begins: its name, and its id if the model gave one
    arguments,  // more of its arguments, as JSON text
    ended,      // its arguments are whole
  };
  Kind kind = Kind::content;
  std::string text;  // of a call its name
  std::string id = {};
  bool operator==(const AnswerPart&) const = default;
};

// What the prompt says about reasoning: the answer may begin with some, is in the middle of it, or has none.
enum class Thinking : uint8_t { may, open, closed };

struct Tool {
  std::string name;
  Json parameters = nullptr;  // a JSON Schema; null: the tool takes none
  bool strict = false;        // a schema that cannot be kept to is an error
};

struct ToolUse {
  std::vector<Tool> tools;  // that may be called
  bool required = false;    // at least one call, and nothing before it but reasoning
  bool single = false;      // at most one

  bool binds() const {  // answers are kept to it; else they are read only
    bool strict = required || single;
    for (const Tool& tool : tools) strict |= tool.strict;
    return strict;
  }
};

}  // namespace millrace
