#include "session/conversation.h"

#include <algorithm>

#include "session/answer.h"

namespace millrace {

Conversation::Conversation(const LoadedModel& model, Generator& generator, std::string system)
    : model_(model), generator_(generator) {
  if (!system.empty()) messages_.push_back({"system", std::move(system)});
}

void Conversation::reset() {
  std::erase_if(messages_, [](const Message& message) { return message.role != "system"; });
  seen_text_.clear();
  seen_.clear();
  times_ = {};
  turns_ = 0;
  generator_.forget();
}

Json Conversation::to_json() const {
  JsonArray list;
  for (const Message& message : messages_)
    list.push_back(JsonObject{{"role", message.role}, {"content", message.content}});
  return JsonObject{{"messages", std::move(list)}};
}

Result<Generated> Conversation::ask(std::string text, const GenerateOptions& options,
                                    std::span<const std::string> stops, const Show& show,
                                    const std::function<bool()>& interrupted) {
  std::vector<Message> messages = messages_;
  messages.push_back({"user", std::move(text)});
  TRY(ChatPrompt prompt, chat_prompt(model_, messages));
  splice(prompt);
  TRY(Answer answer, Answer::create(model_, stops, true));
  std::string piece, shown;
  auto result = generator_.generate(
      prompt.tokens, options,
      [&](const GeneratedToken& token) {
        if (token.last) return Generator::Reply::enough;
        piece.clear();
        const bool stopped = answer.push(token.id, piece);
        shown += piece;
        const bool more = show(piece);
        if (stopped) return Generator::Reply::stop_string;
        return more ? Generator::Reply::more : Generator::Reply::enough;
      },
      interrupted);
  if (!result.ok()) return result;
  piece.clear();
  answer.finish(piece);
  if (!piece.empty()) show(piece);
  messages_ = std::move(messages);
  remember(prompt, *result, shown);
  times_ += result->times;
  ++turns_;
  return result;
}

#if MILLRACE_SESSION_TEXT

void Conversation::remember(const ChatPrompt& prompt, const Generated& generated, const std::string& shown) {
  const Tokenizer& tokenizer = *model_.tokenizer();
  const std::string said = tokenizer.decode(generated.tokens, {.continues = true});
  // A stop string was said, but is not part of the answer.
  messages_.push_back({"assistant", generated.ending == Ending::stop_string ? shown : said});
  seen_text_ = prompt.text + said;
  seen_ = prompt.tokens;
  seen_.insert(seen_.end(), generated.tokens.begin(), generated.tokens.end());
  if (generated.ended_by < 0) return;
  seen_text_ += tokenizer.token_text(generated.ended_by);
  seen_.push_back(generated.ended_by);
}

// The same text can be cut into tokens in more than one way, and the model's way of saying it need not be the
// tokenizer's. Where the new prompt goes on from what was seen with a control token, the tokens seen stay and only what
// follows is tokenized.
void Conversation::splice(ChatPrompt& prompt) const {
  if (seen_text_.empty() || !prompt.text.starts_with(seen_text_)) return;
  const Tokenizer& tokenizer = *model_.tokenizer();
  std::vector<Token> rest =
      tokenizer.encode(std::string_view(prompt.text).substr(seen_text_.size()), {.parse_special = true});
  const bool clean = !rest.empty() && (tokenizer.is_special(rest[0]) || tokenizer.is_special(seen_.back()));
  if (!clean) return;
  prompt.tokens = seen_;
  prompt.tokens.insert(prompt.tokens.end(), rest.begin(), rest.end());
}

#else

void Conversation::remember(const ChatPrompt&, const Generated&, const std::string&) {}
void Conversation::splice(ChatPrompt&) const {}

#endif

}  // namespace millrace
