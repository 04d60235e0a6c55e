#include "server/openai/read_request.h"

#include <algorithm>

#include "server/asked_thinking.h"
#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/read_sampling.h"

namespace millrace {
namespace {

constexpr std::string_view kThinkLimits[] = {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
                                             "reasoning_budget", "reasoning_budget_tokens"};

std::optional<ApiError> read_logprobs(const JsonObject& body, RequestBody& out) {
  const FieldReader read(body);
  if (!out.chat) {
    out.request.logprobs = read.integer("logprobs", -1);
    if (out.echo) out.prompt_logprobs = out.request.logprobs;
    return {};
  }
  const bool wanted = read.flag("logprobs", false);
  if (!wanted && read.integer("top_logprobs", 0) > 0)
    return bad_field("top_logprobs", "'top_logprobs' goes with 'logprobs': true");
  out.request.logprobs = wanted ? read.integer("top_logprobs", 0) : -1;
  return {};
}

std::optional<ApiError> read_counts(const JsonObject& body, const BodyLimits& limits, RequestBody& out) {
  const FieldReader read(body);
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
  return {};
}

std::optional<ApiError> read_prompt_logprobs(const JsonObject& body, RequestBody& out) {
  const FieldReader read(body);
  out.prompt_logprobs = std::max(out.prompt_logprobs, read.integer("prompt_logprobs", -1));
  if (out.prompt_logprobs < 0) return {};
  const std::string_view field = read.has("prompt_logprobs") ? "prompt_logprobs" : "echo";
  auto alone = [&](std::string_view what) {
    return bad_field(field, fmt::format("log-probabilities of a prompt are not given together with {}", what));
  };
  if (out.stream) return alone("'stream'");
  if (out.request.choices > 1) return alone("several answers to it");
  if (out.bound) return alone(fmt::format("'{}'", out.bound->field));
  if (out.request.logprobs < 0) {
    out.hide_logprobs = true;
    out.request.logprobs = 0;
  }
  return {};
}

// More answers are made than are given, so their likelihood is needed whether the client sees it or not.
std::optional<ApiError> read_best_of(const JsonObject& body, const BodyLimits& limits, RequestBody& out) {
  const FieldReader read(body);
  const int given = out.request.choices, made = read.integer("best_of", given);
  if (made == given) return {};
  if (made < given)
    return bad_field("best_of",
                     fmt::format("'best_of' is {}, fewer than the {} answers that 'n' asks for", made, given));
  if (out.stream) return bad_field("best_of", "the best answers are not known before all are done: leave out 'stream'");
  const auto prompts = static_cast<int64_t>(std::max<size_t>(out.prompts.size(), 1));
  if (made * prompts > limits.choices)
    return bad_field("best_of", fmt::format("{} answers to {} prompts are {}; at most {} are made for one request",
                                            made, prompts, made * prompts, limits.choices));
  out.given = given;
  out.request.choices = made;
  out.hide_logprobs = out.request.logprobs < 0;
  out.request.logprobs = std::max(out.request.logprobs, 0);
  return {};
}

std::optional<ApiError> read_suffix(const JsonObject& body, RequestBody& out) {
  const Json* suffix = find(body, "suffix");
  if (suffix == nullptr) return {};
  for (const Prompt& prompt : out.prompts)
    if (!std::holds_alternative<std::string>(prompt))
      return bad_field("suffix", "'suffix' goes with a 'prompt' that is a text, not token ids");
  out.suffix = std::string(suffix->get_string());
  return {};
}

std::optional<ApiError> check_continued(const JsonObject& body, const RequestBody& out) {
  if (!out.chat_options.continue_last) return {};
  if (out.messages.back().role != "assistant")
    return bad_field("continue_final_message", "only a message of the assistant can be continued; the last is none");
  if (FieldReader(body).flag("add_generation_prompt", false))
    return bad_field(
        "continue_final_message",
        "'continue_final_message' and 'add_generation_prompt' do not go together: one message is continued, "
        "or another begun");
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

// vLLM's, llama.cpp's and others' names of the same, and the variable that Qwen's templates are given.
std::optional<ApiError> read_think_limit(const JsonObject& body, RequestBody& out) {
  for (std::string_view name : kThinkLimits) {
    const Json* value = find(body, name);
    if (value == nullptr) continue;
    if (auto failure = limit_thinking(out, value->to_number<int64_t>(), name)) return failure;
  }
  const Json* variables = find(body, "chat_template_kwargs");
  const Json* budget = variables == nullptr ? nullptr : find(*variables, kThinkLimits[0]);
  if (budget == nullptr || !budget->is_int64()) return {};
  return limit_thinking(out, budget->get_int64(), "chat_template_kwargs.thinking_budget");
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
  const FieldReader read(body);
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
  if (const Json* adapters = find(body, "lora")) {
    for (const Json& one : adapters->get_array()) {
      const FieldReader entry(one.get_object());
      out.adapters.push_back({entry.integer("id", 0), entry.number("scale", 1)});
    }
  }
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
    const FieldReader read(one.get_object());
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
  const FieldReader read(body);
  options.continue_last = read.flag("continue_final_message", false);
  options.begin_answer = read.flag("add_generation_prompt", !options.continue_last);
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
  for (std::string_view name : kThinkLimits)
    if (read.integer(name, -1) == 0) switch_thinking_off(options.variables);
  const Json* budget = options.variables.if_contains(kThinkLimits[0]);
  if (budget != nullptr && *budget == Json(0)) switch_thinking_off(options.variables);
  return options;
}

std::optional<ApiError> read_body(std::string_view body, Body kind, const BodyLimits& limits, JsonObject& out,
                                  Ignored& ignored) {
  if (auto failure = read_checked(body, openai_bodies(), kind, limits, out, ignored)) return failure;
  if (find(out, "messages") != nullptr) return check_messages(out);
  return {};
}

std::optional<ApiError> read_request_body(std::string_view body, Body kind, const BodyLimits& limits, RequestBody& out,
                                          const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_body(body, kind, limits, object, out.ignored)) return failure;
  out.chat = kind == kChat;
  out.echo = FieldReader(object).flag("echo", false);
  read_rest(object, out);
  read_what(object, out);
  if (auto failure = read_counts(object, limits, out)) return failure;
  if (auto failure = read_think_limit(object, out)) return failure;
  if (auto failure = read_bound(object, out)) return failure;
  if (auto failure = read_tools(object, out)) return failure;
  if (auto failure = read_logprobs(object, out)) return failure;
  if (auto failure = read_best_of(object, limits, out)) return failure;
  if (auto failure = read_prompt_logprobs(object, out)) return failure;
  if (auto failure = read_suffix(object, out)) return failure;
  if (auto failure = check_continued(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace
