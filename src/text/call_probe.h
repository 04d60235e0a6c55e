// CallProbe: a chat template asked small questions, whose answers tell how a model writes calls (text/calls.h): turns
// of the assistant that say something, think something or call tools, rendered and cut out. One thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat.h"
#include "text/chat_messages.h"

namespace millrace {

namespace probe {

// Words that no template has, of letters that nothing escapes.
inline constexpr std::string_view kNames[] = {"probealpha", "probebeta"};
inline constexpr std::string_view kKeys[] = {"keyonea", "keytwob"};
inline constexpr std::string_view kTexts[] = {"valueonec", "valuetwod"};
inline constexpr std::string_view kIds[] = {"iDprobe01", "iDprobe02"};
inline constexpr std::string_view kSaid = "contentprobe", kThought = "thoughtprobe";

inline Json text_json(std::string_view text) { return boost::json::string(text.data(), text.size()); }

struct ProbeCall {
  std::string_view name, id;
  JsonObject arguments;
};

JsonObject tool(std::string_view name, const std::array<std::string_view, 2>& types);

// Up to where a text can be cut without cutting a mark such as <|this|>.
size_t before_mark(std::string_view text, size_t at);
size_t after_mark(std::string_view text, size_t at);
std::string_view trimmed(std::string_view text);
std::string common_end(std::string_view a, std::string_view b);
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
// The place of `what` at or after `from`, if it is there.
std::optional<size_t> place(std::string_view text, std::string_view what, size_t from);

}  // namespace probe

class CallProbe {
 public:
  using Types = std::array<std::string_view, 2>;  // of the arguments
  static constexpr Types kStrings = {"string", "string"};

  CallProbe(const Probe& ask, const ChatAbilities& abilities) : ask_(ask), abilities_(abilities) {}

  JsonObject user() const;
  // What an assistant's message, the last of a chat, is rendered to after what comes before every answer.
  std::optional<std::string> turn(JsonObject message, const Types& types = kStrings) const;
  // A message that calls tools.
  JsonObject calling(const std::vector<probe::ProbeCall>& calls) const;
  // What the end of a prompt adds, where the assistant is to answer; empty if that cannot be told.
  std::string generation_prompt() const;
  // The part of a turn with calls that is the calls', less what begins and ends every turn, as `said` does, one that
  // says kSaid. `head`: what both begin with.
  std::optional<std::string> calls_part(const std::string& said, const std::vector<probe::ProbeCall>& calls,
                                        const Types& types, std::string& head) const;

 private:
  const Probe& ask_;
  const ChatAbilities& abilities_;
};

}  // namespace millrace
