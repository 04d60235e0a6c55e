#include "session/chat_prompt.h"

#include <algorithm>

#include "session/calls.h"

namespace millrace {

#if MILLRACE_SESSION_TEXT
namespace {

// Stands behind the last message's text while it is rendered, so that the place where it ends is found whatever the
// template adds, and no white space at its end is trimmed away.
constexpr std::string_view kHere = "<millrace: the answer goes on here>";

Result<std::string> cut_at_last(std::string text) {
  const size_t at = text.rfind(kHere);
  if (at == std::string::npos)
    return error(Code::unsupported, "the last message cannot be continued: the model's template leaves out its text");
  text.resize(at);
  return text;
}

// `thought`: what the template calls reasoning, if that is not the usual name. Where a message has calls, some take
// either what was said or what was thought.
JsonObject message_json(const Message& message, const std::string& thought) {
  JsonObject json = {{"role", message.role}, {"content", message.content}};
  if (!message.tool_calls.empty()) {
    json["tool_calls"] = message.tool_calls;
    if (message.content.empty()) json["content"] = nullptr;
  }
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (!message.reasoning.empty() && !thought.empty() && (message.tool_calls.empty() || message.content.empty()))
    json[thought] = message.reasoning;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

Result<std::string> render(const LoadedModel& model, std::span<const Message> messages, const ChatOptions& options) {
  const ChatTemplate& chat_template = *model.chat_template();
  const std::string& field = model.calls().think_field;
  const std::string thought = field == "thinking" ? field : "";
  JsonArray list;
  for (const Message& message : messages) list.push_back(message_json(message, thought));
  if (options.continue_last) {
    if (list.empty()) return error(Code::invalid, "there is no message to continue");
    list.back().get_object()["content"] = messages.back().content + std::string(kHere);
  }
  Chat chat{.messages = std::move(list)};
  if (!options.tools.empty()) chat.tools = options.tools;
  chat.add_generation_prompt = options.begin_answer && !options.continue_last;
  chat.variables = options.variables;
  if (!options.continue_last) return chat_template.render(chat, {}, local_now());
  TRY(std::string text, chat_template.render(chat, {}, local_now()));
  return cut_at_last(std::move(text));
}

// For templates that know no system message: what it says goes in front of the first thing the user says.
std::vector<Message> without_system(std::span<const Message> messages) {
  std::vector<Message> result(messages.begin() + 1, messages.end());
  if (!result.empty()) result[0].content = messages[0].content + "\n\n" + result[0].content;
  return result;
}

// Reasoning that the prompt begins, or an empty section that says there is none: either stands at its very end.
Thinking thinking_at_end(const LoadedModel& model, std::span<const Token> prompt) {
  const CallFormat& format = model.calls();
  if (!format.thinks()) return Thinking::closed;
  constexpr size_t kTokens = 64;  // more than a mark has
  std::string tail;
  for (Token token : prompt.last(std::min(prompt.size(), kTokens))) tail += call_bytes(*model.tokenizer(), token);
  while (!tail.empty() && std::string_view(" \n\r\t").find(tail.back()) != std::string_view::npos) tail.pop_back();
  if (!format.think_begin.empty() && tail.ends_with(format.think_begin)) return Thinking::open;
  return tail.ends_with(format.think_end) ? Thinking::closed : Thinking::may;
}

}  // namespace

Result<std::string> render_chat(const LoadedModel& model, std::span<const Message> messages,
                                const ChatOptions& options) {
  const std::string path = model.checkpoint().path().string();
  if (model.tokenizer() == nullptr) {
    return error(Code::unsupported, "{}: no chat without a tokenizer: {}", path, model.tokenizer_error());
  }
  if (model.chat_template() == nullptr) {
    return error(Code::unsupported, "{}: {}; `millrace run` continues a plain text with it", path, model.chat_error());
  }
  TRY(ChatAbilities abilities, model.chat_template()->abilities(!options.tools.empty()));
  if (!options.tools.empty() && !abilities.tools) {
    return error(Code::unsupported,
                 "its chat template knows no tools: leave out 'tools', or take a model that has them");
  }
  const bool has_system = messages.size() > 1 && messages[0].role == "system";
  auto text = has_system && !abilities.system ? render(model, without_system(messages), options)
                                              : render(model, messages, options);
  if (!text.ok()) return within(fmt::format("{}: chat template", path), text.error());
  return text;
}

Result<ChatPrompt> chat_prompt(const LoadedModel& model, std::span<const Message> messages,
                               const ChatOptions& options) {
  ChatPrompt prompt;
  TRY(prompt.text, render_chat(model, messages, options));
  TRY(prompt.tokens, model.tokenizer()->encode(prompt.text, {.parse_special = true}));
  prompt.thinking = thinking_at_end(model, prompt.tokens);
  const SpecialTokens& special = model.tokenizer()->special();
  if (special.add_begin && special.begin >= 0 && (prompt.tokens.empty() || prompt.tokens[0] != special.begin)) {
    prompt.tokens.insert(prompt.tokens.begin(), special.begin);
  }
  return prompt;
}

#else

Result<std::string> render_chat(const LoadedModel& model, std::span<const Message>, const ChatOptions&) {
  return error(Code::unsupported, "no chat without text: {}", model.tokenizer_error());
}

Result<ChatPrompt> chat_prompt(const LoadedModel& model, std::span<const Message>, const ChatOptions&) {
  return error(Code::unsupported, "no chat without text: {}", model.tokenizer_error());
}

#endif

}  // namespace millrace
