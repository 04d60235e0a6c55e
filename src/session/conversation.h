// Conversation: a chat with a chat model on one Generator. It keeps the tokens of what was said, so that the next turn
// computes only what is new. One thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token.h"
#include "session/answer_part.h"
#include "session/chat_prompt.h"
#include "session/generator.h"
#include "session/loaded_model.h"

namespace millrace {

class Conversation {
 public:
  // Hears the answer piece by piece, as reasoning, content and calls of tools; false stops it.
  using Show = std::function<bool(const AnswerPart&)>;

  // The model and the generator outlive it. An empty `system` is none.
  Conversation(const LoadedModel& model, Generator& generator, std::string system);

  // Says something and hears the answer. What was said stays in the conversation, also if the answer was stopped; after
  // an error the conversation is as before.
  Result<Generated> ask(std::string text, const GenerateOptions& options, std::span<const std::string> stops,
                        const Show& show, const std::function<bool()>& interrupted = {});
  // The same with what a tool gave for each of calls(), in their order.
  Result<Generated> give(std::span<const std::string> results, const GenerateOptions& options,
                         std::span<const std::string> stops, const Show& show,
                         const std::function<bool()>& interrupted = {});
  // The last answer again; Code::not_found if there is none.
  Result<Generated> again(const GenerateOptions& options, std::span<const std::string> stops, const Show& show,
                          const std::function<bool()>& interrupted = {});

  // What the model may call, as clients have it: [{"type": "function", "function": {"name", "parameters"}}].
  Result<void> use_tools(const JsonArray& tools);
  // Names of the calls that the last answer made and that have no result yet.
  std::vector<std::string> calls() const;

  void reset();                          // forgets all but the system message
  void set_system(std::string text);     // from now on; empty: none
  Result<void> load(const Json& saved);  // what to_json() gave; an error leaves all as it was
  std::span<const Message> messages() const { return messages_; }
  int32_t tokens() const { return static_cast<int32_t>(seen_.size()); }  // of the conversation so far
  const GenerateTimes& times() const { return times_; }                  // of all turns together
  int32_t turns() const { return turns_; }
  Json to_json() const;  // {"messages": [{"role", "content", ...} ...]}

 private:
  Result<Generated> answer(std::vector<Message> messages, const GenerateOptions& options,
                           std::span<const std::string> stops, const Show& show,
                           const std::function<bool()>& interrupted);
  // What the model has seen and said: the same as text, control tokens written out, and as tokens.
  void remember(const ChatPrompt& prompt, const Generated& generated, std::span<const AnswerPart> parts);
  void splice(ChatPrompt& prompt) const;

  const LoadedModel& model_;
  Generator& generator_;
  std::vector<Message> messages_;
  JsonArray tools_;
  std::shared_ptr<const ToolUse> tool_use_;
  std::string seen_text_;
  std::vector<Token> seen_;
  GenerateTimes times_;
  int32_t turns_ = 0;
};

}  // namespace millrace
