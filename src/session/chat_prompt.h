// The prompt of a chat: messages rendered by the model's own chat template, ready for an answer. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token.h"
#include "session/answer_part.h"
#include "session/loaded_model.h"

namespace millrace {

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // Of an assistant: the calls it made, [{"id", "type", "function": {"name", "arguments"}}], arguments as JSON text or
  // as an object; and what it thought before. Of a tool: which call it answers, and its name.
  JsonArray tool_calls = {};
  std::string reasoning = {};
  std::string tool_call_id = {}, name = {};
};

struct ChatPrompt {
  std::string text;           // control tokens written out
  std::vector<Token> tokens;  // after the begin token, if the model wants one and the template forgets it
  Thinking thinking = Thinking::may;
};

struct ChatOptions {
  JsonObject variables = {};   // further ones for the template, such as enable_thinking
  bool begin_answer = true;    // end the prompt with the beginning of the assistant's answer
  bool continue_last = false;  // end it within the last message instead: the answer goes on with its text
  JsonArray tools = {};        // as the template gets them: [{"type": "function", "function": {...}}]
};

// An error if the model has no template, or if the template refuses the messages.
Result<std::string> render_chat(const LoadedModel& model, std::span<const Message> messages,
                                const ChatOptions& options = {});
Result<ChatPrompt> chat_prompt(const LoadedModel& model, std::span<const Message> messages,
                               const ChatOptions& options = {});

}  // namespace millrace
