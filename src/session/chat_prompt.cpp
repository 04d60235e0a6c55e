#include "session/chat_prompt.h"

#if MILLRACE_SESSION_TEXT
#include "text/template/template.h"
#endif

namespace millrace {

#if MILLRACE_SESSION_TEXT
namespace {

Result<std::string> render(const LoadedModel& model, const Template& parsed, std::span<const Message> messages) {
  JsonArray list;
  for (const Message& message : messages)
    list.push_back(JsonObject{{"role", message.role}, {"content", message.content}});
  JsonObject variables = {{"messages", std::move(list)}, {"add_generation_prompt", true}, {"tools", nullptr}};
  const SpecialTokens& special = model.tokenizer()->special();
  auto name = [&](std::string_view key, Token id) {
    if (id >= 0) variables[key] = model.tokenizer()->token_text(id);
  };
  name("bos_token", special.begin);
  name("eos_token", special.end);
  name("pad_token", special.pad);
  name("unk_token", special.unknown);
  return parsed.render(variables, {}, local_now());
}

// For templates that know no system message: what it says goes in front of the first thing the user says.
std::vector<Message> without_system(std::span<const Message> messages) {
  std::vector<Message> result(messages.begin() + 1, messages.end());
  if (!result.empty()) result[0].content = messages[0].content + "\n\n" + result[0].content;
  return result;
}

}  // namespace

Result<std::string> render_chat(const LoadedModel& model, std::span<const Message> messages) {
  const std::string path = model.checkpoint().path().string();
  if (model.tokenizer() == nullptr)
    return error(Code::unsupported, "{}: no chat without a tokenizer: {}", path, model.tokenizer_error());
  if (!model.checkpoint().chat_template()) {
    return error(Code::unsupported, "{}: the model has no chat template; `millrace run` continues a text with it",
                 path);
  }
  auto parsed = Template::parse(*model.checkpoint().chat_template());
  if (!parsed.ok()) return within(fmt::format("{}: chat template", path), parsed.error());
  auto text = render(model, *parsed, messages);
  if (!text.ok() && messages.size() > 1 && messages[0].role == "system") {
    auto second = render(model, *parsed, without_system(messages));
    if (second.ok()) return second;
  }
  if (!text.ok()) return within(fmt::format("{}: chat template", path), text.error());
  return text;
}

Result<ChatPrompt> chat_prompt(const LoadedModel& model, std::span<const Message> messages) {
  ChatPrompt prompt;
  TRY(prompt.text, render_chat(model, messages));
  prompt.tokens = model.tokenizer()->encode(prompt.text, {.parse_special = true});
  const SpecialTokens& special = model.tokenizer()->special();
  if (special.add_begin && special.begin >= 0 && (prompt.tokens.empty() || prompt.tokens[0] != special.begin)) {
    prompt.tokens.insert(prompt.tokens.begin(), special.begin);
  }
  return prompt;
}

#else

Result<std::string> render_chat(const LoadedModel& model, std::span<const Message>) {
  return error(Code::unsupported, "no chat without text: {}", model.tokenizer_error());
}

Result<ChatPrompt> chat_prompt(const LoadedModel& model, std::span<const Message>) {
  return error(Code::unsupported, "no chat without text: {}", model.tokenizer_error());
}

#endif

}  // namespace millrace
