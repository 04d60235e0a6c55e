#include "session/conversation.h"

#include <algorithm>

#include "session/parted_answer.h"

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

void Conversation::set_system(std::string text) {
  std::erase_if(messages_, [](const Message& message) { return message.role == "system"; });
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", std::move(text)});
}

Json Conversation::to_json() const {
  JsonArray list;
  for (const Message& message : messages_) {
    JsonObject row = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) row["reasoning_content"] = message.reasoning;
    if (!message.tool_calls.empty()) row["tool_calls"] = message.tool_calls;
    if (!message.tool_call_id.empty()) row["tool_call_id"] = message.tool_call_id;
    if (!message.name.empty()) row["name"] = message.name;
    list.push_back(std::move(row));
  }
  return JsonObject{{"messages", std::move(list)}};
}

Result<void> Conversation::load(const Json& saved) {
  const Json* list = find(saved, "messages");
  if (list == nullptr || !list->is_array()) return error(Code::invalid, "there is no array \"messages\"");
  std::vector<Message> messages;
  for (const Json& row : list->get_array()) {
    Message message;
    TRY(message.role, get_string(row, "role", ""));
    TRY(message.content, get_string(row, "content", ""));
    TRY(message.reasoning, get_string(row, "reasoning_content", ""));
    TRY(message.tool_call_id, get_string(row, "tool_call_id", ""));
    TRY(message.name, get_string(row, "name", ""));
    if (const Json* calls = find(row, "tool_calls")) {
      if (!calls->is_array()) return error(Code::invalid, "tool_calls of message {} is no array", messages.size() + 1);
      message.tool_calls = calls->get_array();
    }
    const bool known = message.role == "system" || message.role == "user" || message.role == "assistant" ||
                       message.role == "tool" || message.role == "developer";
    if (!known) return error(Code::invalid, "message {} has the role '{}'", messages.size() + 1, message.role);
    messages.push_back(std::move(message));
  }
  if (auto rendered = render_chat(model_, messages, {.tools = tools_}); !rendered.ok()) return rendered.error();
  reset();
  messages_ = std::move(messages);
  return {};
}

Result<void> Conversation::use_tools(const JsonArray& tools) {
  auto use = std::make_shared<ToolUse>();
  for (const Json& row : tools) {
    const Json* function = millrace::find(row, "function");
    if (function == nullptr) function = &row;  // without the wrapping
    Tool tool;
    TRY(tool.name, get_string(*function, "name", ""));
    if (tool.name.empty()) return error(Code::invalid, "tool {} has no name", use->tools.size() + 1);
    if (const Json* parameters = millrace::find(*function, "parameters")) tool.parameters = *parameters;
    use->tools.push_back(std::move(tool));
    tools_.push_back(JsonObject{{"type", "function"}, {"function", *function}});
  }
  tool_use_ = std::move(use);
  return {};
}

std::vector<std::string> Conversation::calls() const {
  std::vector<std::string> names;
  if (messages_.empty() || messages_.back().role != "assistant") return names;
  for (const Json& call : messages_.back().tool_calls) {
    const Json* function = millrace::find(call, "function");
    auto name = function == nullptr ? Result<std::string>(std::string()) : get_string(*function, "name", "");
    names.push_back(name.ok() ? *name : "");
  }
  return names;
}

Result<Generated> Conversation::ask(std::string text, const GenerateOptions& options,
                                    std::span<const std::string> stops, const Show& show,
                                    const std::function<bool()>& interrupted) {
  std::vector<Message> messages = messages_;
  messages.push_back({"user", std::move(text)});
  return answer(std::move(messages), options, stops, show, interrupted);
}

Result<Generated> Conversation::give(std::span<const std::string> results, const GenerateOptions& options,
                                     std::span<const std::string> stops, const Show& show,
                                     const std::function<bool()>& interrupted) {
  const std::vector<std::string> names = calls();
  CHECK(results.size() == names.size(), "{} results of {} calls", results.size(), names.size());
  std::vector<Message> messages = messages_;
  for (size_t i = 0; i < names.size(); ++i) {
    Message message{"tool", results[i]};
    message.name = names[i];
    if (auto id = get_string(messages_.back().tool_calls[i], "id", ""); id.ok()) message.tool_call_id = *id;
    messages.push_back(std::move(message));
  }
  return answer(std::move(messages), options, stops, show, interrupted);
}

Result<Generated> Conversation::again(const GenerateOptions& options, std::span<const std::string> stops,
                                      const Show& show, const std::function<bool()>& interrupted) {
  if (messages_.empty() || messages_.back().role != "assistant")
    return error(Code::not_found, "there is no answer yet that could be given again");
  std::vector<Message> messages(messages_.begin(), messages_.end() - 1);
  return answer(std::move(messages), options, stops, show, interrupted);
}

Result<Generated> Conversation::answer(std::vector<Message> messages, const GenerateOptions& options,
                                       std::span<const std::string> stops, const Show& show,
                                       const std::function<bool()>& interrupted) {
  TRY(ChatPrompt prompt, chat_prompt(model_, messages, {.tools = tools_}));
  splice(prompt);
  TRY(PartedAnswer answer,
      PartedAnswer::create(model_, stops, true, {.chat = true, .tools = tool_use_, .thinking = prompt.thinking}));
  std::vector<AnswerPart> fresh, parts;
  auto pass = [&] {
    bool more = true;
    for (const AnswerPart& part : fresh) {
      append_part(parts, part);
      more = show(part) && more;
    }
    fresh.clear();
    return more;
  };
  auto result = generator_.generate(
      prompt.tokens, options,
      [&](const GeneratedToken& token) {
        if (token.last) return Generator::Reply::enough;
        const bool stopped = answer.push(token.id, fresh);
        const bool more = pass();
        if (stopped) return Generator::Reply::stop_string;
        return more ? Generator::Reply::more : Generator::Reply::enough;
      },
      interrupted);
  if (!result.ok()) return result;
  answer.finish(fresh);
  pass();
  messages_ = std::move(messages);
  remember(prompt, *result, parts);
  times_ += result->times;
  ++turns_;
  return result;
}

namespace {

// The parts of an answer as a message; ids are made where the model writes none.
Message message_of(std::span<const AnswerPart> parts) {
  Message message{"assistant", ""};
  std::string name, id, arguments;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::reasoning:
        message.reasoning += part.text;
        break;
      case AnswerPart::Kind::content:
        message.content += part.text;
        break;
      case AnswerPart::Kind::call:
        name = part.text;
        id = part.id;
        arguments.clear();
        break;
      case AnswerPart::Kind::arguments:
        arguments += part.text;
        break;
      case AnswerPart::Kind::ended:
        if (id.empty()) id = fmt::format("call{:05}", message.tool_calls.size() + 1);
        message.tool_calls.push_back(JsonObject{
            {"id", id}, {"type", "function"}, {"function", JsonObject{{"name", name}, {"arguments", arguments}}}});
        break;
    }
  }
  return message;
}

}  // namespace

#if MILLRACE_SESSION_TEXT

void Conversation::remember(const ChatPrompt& prompt, const Generated& generated, std::span<const AnswerPart> parts) {
  const Tokenizer& tokenizer = *model_.tokenizer();
  const std::string said = tokenizer.decode(generated.tokens, {.continues = true});
  // What was thought and called goes back as the template writes it; plain content stays as it was said, except for a
  // stop string, which was said but is not part of the answer.
  Message message = message_of(parts);
  const bool plain = message.reasoning.empty() && message.tool_calls.empty();
  if (plain && generated.ending != Ending::stop_string) message.content = said;
  messages_.push_back(std::move(message));
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
  const auto rest = tokenizer.encode(std::string_view(prompt.text).substr(seen_text_.size()), {.parse_special = true});
  const bool clean =
      rest.ok() && !rest->empty() && (tokenizer.is_special(rest->front()) || tokenizer.is_special(seen_.back()));
  if (!clean) return;
  prompt.tokens = seen_;
  prompt.tokens.insert(prompt.tokens.end(), rest->begin(), rest->end());
}

#else

void Conversation::remember(const ChatPrompt&, const Generated&, std::span<const AnswerPart> parts) {
  messages_.push_back(message_of(parts));
}
void Conversation::splice(ChatPrompt&) const {}

#endif

}  // namespace millrace
