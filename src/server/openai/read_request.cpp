#include "server/openai/read_request.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace millrace {
namespace {

// Reads fields of a body that was checked: types and ranges are right, so only absence is left to look at.
class Reader {
 public:
  explicit Reader(const JsonObject& body) : body_(body) {}

  bool has(std::string_view name) const { return find(body_, name) != nullptr; }
  bool flag(std::string_view name, bool otherwise) const {
    const Json* value = find(body_, name);
    return value == nullptr ? otherwise : value->get_bool();
  }
  double number(std::string_view name, double otherwise) const {
    const Json* value = find(body_, name);
    return value == nullptr ? otherwise : value->to_number<double>();
  }
  int32_t integer(std::string_view name, int32_t otherwise) const {
    return static_cast<int32_t>(number(name, otherwise));
  }
  std::string text(std::string_view name) const {
    const Json* value = find(body_, name);
    return value == nullptr ? std::string() : std::string(value->get_string());
  }
  std::vector<std::string> texts(std::string_view name) const {
    const Json* value = find(body_, name);
    if (value == nullptr) return {};
    if (value->is_string()) return {std::string(value->get_string())};
    std::vector<std::string> list;
    for (const Json& one : value->get_array()) list.emplace_back(one.get_string());
    return list;
  }

 private:
  const JsonObject& body_;
};

// Random, but short enough that it can be typed again.
uint64_t fresh_seed() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator() & 0x7FFFFFFF;
}

void read_seed(const JsonObject& body, RequestBody& out) {
  const Json* value = find(body, "seed");
  int64_t seed = -1;
  if (value != nullptr) {
    seed = value->is_int64() ? value->get_int64() : static_cast<int64_t>(value->to_number<double>());
  }
  out.new_seed = value == nullptr || seed == -1;
  out.request.sampling.seed = out.new_seed ? fresh_seed() : static_cast<uint64_t>(seed);
}

// Fields of the table that are no sampling value's own name.
double asked_for(const Reader& read, const SamplingValue& value, double otherwise) {
  if (value.name == "repetition_penalty") otherwise = read.number("repeat_penalty", otherwise);
  return read.number(value.name, otherwise);
}

std::optional<ApiError> read_sampling(const JsonObject& body, const SamplingDefaults& defaults, RequestBody& out) {
  const Reader read(body);
  Sampling& s = out.request.sampling;
  s = defaults.sampling;
  for (const SamplingValue& value : sampling_values()) {
    // At the edge a field may say -1 for "all", and a share of nothing still leaves the likeliest token.
    if (value.number != nullptr) {
      s.*value.number = std::max(asked_for(read, value, s.*value.number), value.least);
    } else {
      s.*value.integer = static_cast<int32_t>(std::max(asked_for(read, value, s.*value.integer), value.least));
    }
  }
  if (s.mirostat == 1) return not_built("mirostat", "mirostat 1 is not built; version 2 is");
  out.dry_breakers = read.has("dry_sequence_breakers") ? read.texts("dry_sequence_breakers") : defaults.dry_breakers;
  if (const Json* bias = find(body, "logit_bias")) {
    for (const auto& member : bias->get_object())
      s.bias.push_back({std::stoi(std::string(member.key())), static_cast<float>(member.value().to_number<double>())});
  }
  read_seed(body, out);
  return {};
}

std::optional<ApiError> read_logprobs(const JsonObject& body, RequestBody& out) {
  const Reader read(body);
  if (!out.chat) {
    out.request.logprobs = read.integer("logprobs", -1);
    if (out.echo && out.request.logprobs >= 0)
      return not_built("logprobs", "log-probabilities of the prompt are not built: leave out 'echo' or 'logprobs'");
    return {};
  }
  const bool wanted = read.flag("logprobs", false);
  if (!wanted && read.integer("top_logprobs", 0) > 0)
    return bad_field("top_logprobs", "'top_logprobs' goes with 'logprobs': true");
  out.request.logprobs = wanted ? read.integer("top_logprobs", 0) : -1;
  return {};
}

std::optional<ApiError> read_counts(const JsonObject& body, const BodyLimits& limits, RequestBody& out) {
  const Reader read(body);
  out.max_tokens = read.integer("max_completion_tokens", read.integer("max_tokens", 0));
  if (out.max_tokens == 0 && !out.chat) out.max_tokens = 16;  // as OpenAI has it
  out.request.min_tokens = read.integer("min_tokens", 0);
  if (out.max_tokens > 0 && out.request.min_tokens > out.max_tokens)
    return bad_field("min_tokens", fmt::format("'min_tokens' is {}, more than the {} tokens there may be",
                                               out.request.min_tokens, out.max_tokens));
  out.request.choices = read.integer("n", 1);
  const auto prompts = static_cast<int64_t>(std::max<size_t>(out.prompts.size(), 1));
  if (out.request.choices * prompts > limits.choices)
    return bad_field("n", fmt::format("{} answers to {} prompts are {}; at most {} are given to one request",
                                      out.request.choices, prompts, out.request.choices * prompts, limits.choices));
  if (read.has("best_of") && read.integer("best_of", 1) != out.request.choices)
    return not_built("best_of", "'best_of' other than 'n' is not built: every answer is given");
  return {};
}

// A text, or parts of one; null is none.
std::string text_of(const Json* content) {
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  std::string text;
  for (const Json& part : content->get_array()) {
    if (!text.empty()) text += '\n';
    text += std::string_view(find(part, "text")->get_string());
  }
  return text;
}

// A call as templates get it.
JsonObject call_json(const Json& call) {
  const Json *id = find(call, "id"), &function = *find(call, "function"), *arguments = find(function, "arguments");
  JsonObject called = {{"name", *find(function, "name")}};
  called["arguments"] = arguments == nullptr || *arguments == Json("") ? Json("{}") : *arguments;
  JsonObject json = {{"type", "function"}, {"function", std::move(called)}};
  if (id != nullptr) json["id"] = *id;
  return json;
}

void read_what(const JsonObject& body, RequestBody& out) {
  if (!out.chat) {
    out.prompts = prompts_of(*find(body, "prompt"));
    return;
  }
  out.messages = messages_of(body);
  if (const Json* prediction = find(body, "prediction")) out.prediction = text_of(find(*prediction, "content"));
  out.chat_options = chat_options_of(body);
}

void read_rest(const JsonObject& body, RequestBody& out) {
  const Reader read(body);
  out.model = read.text("model");
  out.stream = read.flag("stream", false);
  if (const Json* options = find(body, "stream_options")) {
    const Json* usage = find(*options, "include_usage");
    out.include_usage = usage != nullptr && usage->get_bool();
  }
  out.return_ids = read.flag("return_token_ids", false);
  out.ignore_end = read.flag("ignore_eos", false);
  out.stops = read.texts("stop");
  if (const Json* ids = find(body, "stop_token_ids")) out.request.stop_tokens = tokens_of(*ids);
  out.request.priority = read.integer("priority", 0);
  out.request.targets = {read.number("ttft_ms", 0) / 1000, read.number("tpot_ms", 0) / 1000};
  out.user = read.text("user");
  out.salt = read.text("cache_salt");
}

}  // namespace

std::vector<Token> tokens_of(const Json& list) {
  std::vector<Token> tokens;
  tokens.reserve(list.get_array().size());
  for (const Json& one : list.get_array()) tokens.push_back(static_cast<Token>(one.get_int64()));
  return tokens;
}

std::vector<Prompt> prompts_of(const Json& prompt) {
  if (prompt.is_string()) return {std::string(prompt.get_string())};
  const auto& list = prompt.get_array();
  if (list.front().is_number()) return {tokens_of(prompt)};
  std::vector<Prompt> prompts;
  for (const Json& one : list) {
    if (one.is_string()) {
      prompts.emplace_back(std::string(one.get_string()));
    } else {
      prompts.emplace_back(tokens_of(one));
    }
  }
  return prompts;
}

std::vector<Message> messages_of(const JsonObject& body) {
  std::vector<Message> messages;
  int calls = 0;  // of the older kind, which have no ids
  for (const Json& one : find(body, "messages")->get_array()) {
    const Reader read(one.get_object());
    Message message{.role = read.text("role"), .content = text_of(find(one, "content"))};
    if (message.role == "developer") message.role = "system";  // the newer name
    message.reasoning = read.text(read.has("reasoning_content") ? "reasoning_content" : "reasoning");
    message.tool_call_id = read.text("tool_call_id");
    message.name = read.text("name");
    if (const Json* list = find(one, "tool_calls")) {
      for (const Json& call : list->get_array()) message.tool_calls.push_back(call_json(call));
    }
    if (const Json* called = find(one, "function_call")) {
      message.tool_calls.push_back(
          call_json(JsonObject{{"id", fmt::format("call{:05}", calls)}, {"function", *called}}));
    }
    if (message.role == "function") {  // the older name
      message.role = "tool";
      message.tool_call_id = fmt::format("call{:05}", calls++);
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

std::optional<ApiError> check_messages(const JsonObject& body) {
  const auto& list = find(body, "messages")->get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonObject& message = list[i].get_object();
    if (message.if_contains("content") != nullptr || find(message, "tool_calls") != nullptr ||
        find(message, "function_call") != nullptr)
      continue;
    const std::string path = fmt::format("messages.[{}].content", i);
    ApiError failure = bad_field(path, fmt::format("'{}' is missing", path));
    failure.code = "missing_required_parameter";
    return failure;
  }
  return {};
}

ChatOptions chat_options_of(const JsonObject& body) {
  ChatOptions options;
  options.begin_answer = Reader(body).flag("add_generation_prompt", true);
  options.tools = template_tools(body);
  if (const Json* effort = find(body, "reasoning_effort")) {
    // Models that can do without have one of these two; a template that knows neither has no use for them.
    const bool thinks = effort->get_string() != "none";
    options.variables = {{"enable_thinking", thinks}, {"thinking", thinks}};
    if (thinks) options.variables["reasoning_effort"] = *effort;
  }
  if (const Json* variables = find(body, "chat_template_kwargs")) {
    for (const auto& member : variables->get_object()) options.variables[member.key()] = member.value();
  }
  return options;
}

std::optional<ApiError> read_body(std::string_view body, Body kind, const BodyLimits& limits, JsonObject& out,
                                  Ignored& ignored) {
  auto parsed = parse_json(body, {.max_bytes = limits.bytes, .max_depth = limits.depth, .refuse_duplicate_keys = true});
  if (!parsed.ok()) {
    ApiError failure{.message = fmt::format("the body is not understood: {}", parsed.error().message)};
    failure.code = "invalid_json";
    return failure;
  }
  if (!parsed->is_object()) return ApiError{.message = "the body must be a JSON object", .code = "invalid_json"};
  if (auto failure = check_fields(parsed->get_object(), openai_bodies(), kind, ignored)) return failure;
  if (find(*parsed, "messages") != nullptr) {
    if (auto failure = check_messages(parsed->get_object())) return failure;
  }
  out = std::move(parsed->get_object());
  return {};
}

std::optional<ApiError> read_request_body(std::string_view body, Body kind, const BodyLimits& limits, RequestBody& out,
                                          const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_body(body, kind, limits, object, out.ignored)) return failure;
  out.chat = kind == kChat;
  out.echo = Reader(object).flag("echo", false);
  read_rest(object, out);
  read_what(object, out);
  if (auto failure = read_counts(object, limits, out)) return failure;
  if (auto failure = read_bound(object, out)) return failure;
  if (auto failure = read_tools(object, out)) return failure;
  if (auto failure = read_logprobs(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace
