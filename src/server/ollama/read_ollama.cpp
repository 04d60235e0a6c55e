#include "server/ollama/read_ollama.h"

#include <algorithm>

#include "server/asked_bound.h"
#include "server/asked_tools.h"
#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/read_sampling.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

Message message_of(std::string role, std::string content) {
  Message message;
  message.role = std::move(role);
  message.content = std::move(content);
  return message;
}

void read_chat(const JsonObject& body, RequestBody& out) {
  const Json* messages = find(body, "messages");
  for (size_t i = 0; messages != nullptr && i < messages->get_array().size(); ++i) {
    const JsonObject& given = messages->get_array()[i].get_object();
    const FieldReader read(given);
    Message message = message_of(read.text("role"), read.text("content"));
    message.reasoning = read.text("thinking");
    message.name = read.text("tool_name");
    message.tool_call_id = read.text("tool_call_id");
    const Json* calls = find(given, "tool_calls");
    for (size_t j = 0; calls != nullptr && j < calls->get_array().size(); ++j) {
      const JsonObject& call = calls->get_array()[j].get_object();
      const JsonObject& called = find(call, "function")->get_object();
      const Json* arguments = find(called, "arguments");
      message.tool_calls.push_back(call_json(FieldReader(call).text("id"), FieldReader(called).text("name"),
                                             arguments != nullptr ? *arguments : Json(JsonObject())));
    }
    out.messages.push_back(std::move(message));
  }
}

Failure read_tools(const JsonObject& body, RequestBody& out) {
  AskedTools asked;
  const Json* list = find(body, "tools");
  for (size_t i = 0; list != nullptr && i < list->get_array().size(); ++i) {
    const JsonObject& function = find(list->get_array()[i], "function")->get_object();
    const FieldReader read(function);
    const std::string name = read.text("name"), description = read.text("description");
    if (auto failure = asked.add(fmt::format("tools.[{}].function", i),
                                 {name, description, find(function, "parameters"), read.flag("strict", false)}))
      return failure;
  }
  std::move(asked).put(out);
  return {};
}

// A prompt is what the user says, unless it is to go to the model as it is, alone or with what stands after it.
Failure read_generate(const JsonObject& body, RequestBody& out) {
  const FieldReader read(body);
  const std::string prompt = read.text("prompt"), suffix = read.text("suffix");
  if (prompt.empty() && suffix.empty()) return {};
  out.chat = !read.flag("raw", false) && suffix.empty();
  if (!out.chat) {
    out.prompts = {prompt};
    if (!suffix.empty()) out.suffix = suffix;
    if (read.has("system") && !read.text("system").empty())
      return bad_field("system", "'system' goes through the model's template; leave out 'raw' and 'suffix'");
    return {};
  }
  if (!read.text("system").empty()) out.messages.push_back(message_of("system", read.text("system")));
  out.messages.push_back(message_of("user", prompt));
  return {};
}

Failure read_format(const JsonObject& body, RequestBody& out) {
  const Json* format = find(body, "format");
  if (format == nullptr) return {};
  if (format->is_object()) return add_bound(out, schema_source(*format), "format");
  if (!format->is_string() || (format->get_string() != "json" && !format->get_string().empty()))
    return bad_field("format", "'format' must be \"json\" or a JSON Schema, which is an object");
  if (format->get_string().empty()) return {};
  return add_bound(out, {.kind = GrammarKind::json_object, .text = {}}, "format");
}

Failure read_think(const JsonObject& body, RequestBody& out) {
  const Json* think = find(body, "think");
  if (think == nullptr) return {};
  JsonObject& variables = out.chat_options.variables;
  if (think->is_bool()) {
    variables["enable_thinking"] = think->get_bool();
    return {};
  }
  if (!think->is_string() ||
      (think->get_string() != "low" && think->get_string() != "medium" && think->get_string() != "high"))
    return bad_field("think", "'think' must be true, false, \"low\", \"medium\" or \"high\"");
  variables["enable_thinking"] = true;
  variables["reasoning_effort"] = *think;
  return {};
}

Failure read_logprobs(const JsonObject& body, RequestBody& out) {
  const FieldReader read(body);
  const bool wanted = read.flag("logprobs", false);
  const int32_t top = read.integer("top_logprobs", 0);
  if (!wanted && top > 0) return bad_field("top_logprobs", "'top_logprobs' goes with 'logprobs': true");
  out.request.logprobs = wanted ? top : -1;
  return {};
}

}  // namespace

std::string bare_model(std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

std::optional<ApiError> read_ollama(std::string_view body, OllamaBody kind, const BodyLimits& limits, RequestBody& out,
                                    const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_checked(body, ollama_bodies(), kind, limits, object, out.ignored)) return failure;
  const FieldReader read(object);
  out.chat = true;
  out.model = bare_model(read.text("model"));
  out.stream = read.flag("stream", true);
  out.up_to = true;
  if (kind == kOllamaChat) {
    read_chat(object, out);
    if (auto failure = read_tools(object, out)) return failure;
  } else if (auto failure = read_generate(object, out)) {
    return failure;
  }
  if (auto failure = read_format(object, out)) return failure;
  if (auto failure = read_think(object, out)) return failure;
  if (auto failure = read_logprobs(object, out)) return failure;
  static const JsonObject none;
  const Json* given = find(object, "options");
  const JsonObject& options = given != nullptr ? given->get_object() : none;
  const FieldReader read_option(options);
  out.max_tokens = std::max(0, read_option.integer("num_predict", 0));
  out.stops = read_option.texts("stop");
  return read_sampling(options, defaults, out);
}

}  // namespace millrace
