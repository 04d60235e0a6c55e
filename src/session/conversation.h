// Conversation: a chat with a chat model on one Generator. It keeps the tokens of what was said, so that the next turn
// computes only what is new. One thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token.h"
#include "session/chat_prompt.h"
#include "session/generator.h"
#include "session/loaded_model.h"

namespace millrace {

class Conversation {
 public:
  // Hears the answer piece by piece; false stops it.
  using Show = std::function<bool(std::string_view)>;

  // The model and the generator outlive it. An empty `system` is none.
  Conversation(const LoadedModel& model, Generator& generator, std::string system);

  // Says something and hears the answer. What was said stays in the conversation, also if the answer was stopped; after
  // an error the conversation is as before.
  Result<Generated> ask(std::string text, const GenerateOptions& options, std::span<const std::string> stops,
                        const Show& show, const std::function<bool()>& interrupted = {});

  void reset();  // forgets all but the system message
  std::span<const Message> messages() const { return messages_; }
  int32_t tokens() const { return static_cast<int32_t>(seen_.size()); }  // of the conversation so far
  const GenerateTimes& times() const { return times_; }                  // of all turns together
  int32_t turns() const { return turns_; }
  Json to_json() const;  // {"messages": [{"role", "content"} ...]}

 private:
  // What the model has seen and said: the same as text, control tokens written out, and as tokens.
  void remember(const ChatPrompt& prompt, const Generated& generated, const std::string& shown);
  void splice(ChatPrompt& prompt) const;

  const LoadedModel& model_;
  Generator& generator_;
  std::vector<Message> messages_;
  std::string seen_text_;
  std::vector<Token> seen_;
  GenerateTimes times_;
  int32_t turns_ = 0;
};

}  // namespace millrace
