#include "text/chat.h"

#include <algorithm>

#include "text/chat_messages.h"

namespace millrace {
namespace {

constexpr std::string_view kReserved[] = {"messages", "tools", "add_generation_prompt"};

// The text of a token as tokenizer_config.json writes it: plain, or an object with the text as its content.
const Json* token_text(const Json& value) {
  if (value.is_string()) return &value;
  const Json* content = find(value, "content");
  return content != nullptr && content->is_string() ? content : nullptr;
}

void add_config_templates(const Json& config, std::vector<ChatFacts::Named>& templates) {
  const Json* found = find(config, "chat_template");
  if (found == nullptr || !found->is_array()) return;
  for (const Json& item : found->get_array()) {
    const Json* name = find(item, "name");
    const Json* source = find(item, "template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) continue;
    if (name->get_string() == "default") continue;  // the checkpoint has it
    templates.push_back({std::string(name->get_string()), std::string(source->get_string())});
  }
}

void add_gguf_templates(const Metadata& metadata, std::vector<ChatFacts::Named>& templates) {
  constexpr std::string_view kPrefix = "tokenizer.chat_template.";
  for (const MetaEntry& entry : metadata.entries()) {
    const auto* source = std::get_if<std::string_view>(&entry.value);
    if (source == nullptr || !entry.key.starts_with(kPrefix)) continue;
    templates.push_back({std::string(entry.key.substr(kPrefix.size())), std::string(*source)});
  }
}

void add_tokens(const Tokenizer& tokenizer, JsonObject& tokens) {
  const SpecialTokens& special = tokenizer.special();
  const std::pair<std::string_view, Token> named[] = {{"bos_token", special.begin},     {"eos_token", special.end},
                                                      {"pad_token", special.pad},       {"unk_token", special.unknown},
                                                      {"sep_token", special.separator}, {"mask_token", special.mask}};
  for (const auto& [name, id] : named) {
    if (id >= 0 && !tokens.contains(name)) tokens[name] = tokenizer.token_text(id);
  }
}

// Probes run when a model is loaded and must not hold it up.
RenderLimits probe_limits() {
  RenderLimits limits;
  limits.steps = 500'000;
  limits.output_bytes = size_t{1} << 20;
  limits.memory_bytes = size_t{16} << 20;
  return limits;
}

}  // namespace

ChatFacts ChatFacts::of(const Checkpoint& checkpoint, const Tokenizer* tokenizer) {
  ChatFacts facts;
  if (checkpoint.chat_template()) facts.templates.push_back({"default", *checkpoint.chat_template()});
  add_config_templates(checkpoint.tokenizer_config(), facts.templates);
  add_gguf_templates(checkpoint.metadata(), facts.templates);
  if (const auto* config = checkpoint.tokenizer_config().if_object()) {
    for (const auto& member : *config) {
      const Json* text = token_text(member.value());
      if (text != nullptr && std::string_view(member.key()).ends_with("_token")) facts.tokens[member.key()] = *text;
    }
  }
  if (tokenizer != nullptr) add_tokens(*tokenizer, facts.tokens);
  return facts;
}

Result<ChatTemplate> ChatTemplate::from(ChatFacts facts) {
  if (facts.templates.empty()) {
    return error(Code::not_found,
                 "the model has no chat template: give it one, or let it continue plain text instead of a chat");
  }
  ChatTemplate made;
  made.tokens_ = std::move(facts.tokens);
  for (ChatFacts::Named& named : facts.templates) {
    auto parsed = Template::parse(named.source);
    if (!parsed.ok()) {
      return within(fmt::format("the model's chat template '{}' cannot be used", named.name),
                    std::move(parsed).error());
    }
    auto probe = [&](JsonObject variables) -> Result<std::string> {
      for (const auto& token : made.tokens_) variables[token.key()] = token.value();
      variables["add_generation_prompt"] = true;
      if (!variables.contains("tools")) variables["tools"] = nullptr;
      return parsed->render(Json(std::move(variables)), probe_limits(), LocalTime());
    };
    ChatAbilities abilities = find_abilities(probe);
    made.entries_.push_back({std::move(named), *parsed, abilities});
  }
  return made;
}

Result<const ChatTemplate::Entry*> ChatTemplate::choose(bool with_tools, std::string_view name) const {
  auto named = [&](std::string_view wanted) -> const Entry* {
    auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.named.name == wanted; });
    return found == entries_.end() ? nullptr : &*found;
  };
  const Entry* chosen = nullptr;
  if (!name.empty()) {
    chosen = named(name);
  } else {
    if (with_tools) chosen = named("tool_use");
    if (chosen == nullptr) chosen = named("default");
    if (chosen == nullptr && entries_.size() == 1) chosen = &entries_.front();
  }
  if (chosen != nullptr) return chosen;
  std::string known;
  for (const Entry& entry : entries_) known += (known.empty() ? "" : ", ") + entry.named.name;
  if (name.empty()) {
    return error(Code::invalid, "the model has several chat templates and none is the default: choose one of {}",
                 known);
  }
  return error(Code::not_found, "the model has no chat template named '{}', only {}", name, known);
}

Result<std::string> ChatTemplate::render(const Chat& chat, const RenderLimits& limits, LocalTime now) const {
  if (!chat.tools.is_null() && !chat.tools.is_array()) {
    return error(Code::invalid, "'tools' should be an array of tool descriptions");
  }
  const bool with_tools = chat.tools.is_array() && !chat.tools.get_array().empty();
  TRY(const Entry* entry, choose(with_tools, chat.template_name));
  // What transformers gives a template: tokens, then the caller's variables, then these.
  JsonObject variables = tokens_;
  variables["documents"] = nullptr;
  for (const auto& member : chat.variables) {
    if (std::find(std::begin(kReserved), std::end(kReserved), std::string_view(member.key())) != std::end(kReserved)) {
      return error(Code::invalid, "'{}' cannot be set as a further variable of the chat template",
                   std::string_view(member.key()));
    }
    variables[member.key()] = member.value();
  }
  if (chat.as_is) {
    variables["messages"] = chat.messages;
  } else {
    TRY(variables["messages"], shape_messages(chat.messages, entry->abilities));
  }
  variables["tools"] = with_tools ? chat.tools : Json(nullptr);
  variables["add_generation_prompt"] = chat.add_generation_prompt;
  auto text = entry->parsed.render(Json(std::move(variables)), limits, now);
  if (!text.ok()) return within("chat template", std::move(text).error());
  return text;
}

Result<ChatAbilities> ChatTemplate::abilities(bool with_tools, std::string_view template_name) const {
  TRY(const Entry* entry, choose(with_tools, template_name));
  return entry->abilities;
}

Result<std::string> ChatTemplate::source(bool with_tools, std::string_view template_name) const {
  TRY(const Entry* entry, choose(with_tools, template_name));
  return entry->named.source;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.named.name);
  return names;
}

}  // namespace millrace
