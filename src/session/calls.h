// Calls of tools in answers: the model's format (text/calls.h) tied to its tokens, what binds an answer to it, and what
// tools there are. Control tokens inside the format's texts become control_bytes(), which no text has, so that a mark
// and a text that looks like it are never the same. Values; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/grammar.h"
#include "session/answer_part.h"
#include "session/loaded_model.h"
#if MILLRACE_SESSION_TEXT
#include "text/calls.h"

namespace millrace {

// What one token adds to what is read: its text, or its control_bytes().
std::string call_bytes(const Tokenizer& tokenizer, Token token);

// The format with control tokens as bytes. What follows the calls ends where a token ends the answer: the tokenizer's,
// or one of `ends`.
CallFormat tie_calls(CallFormat format, const Tokenizer& tokenizer, std::span<const Token> ends = {});

// What an answer with these tools may be; the format is tied and known. `content`: what it is where it calls nothing, a
// JSON Schema or any object; without it, anything.
GrammarSource calls_source(const CallFormat& format, const ToolUse& use, Thinking thinking = Thinking::closed,
                           const std::optional<GrammarSource>& content = {});

}  // namespace millrace
#endif
