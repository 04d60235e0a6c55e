#include "server/ollama/writing.h"

#include <fmt/chrono.h>

#include <ctime>
#include <iterator>

#include "server/quoted.h"
#include "server/token_json.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// Arguments are an object, or, where the answer was cut off within them, what there is of one.
std::string arguments_json(std::string_view arguments) {
  if (arguments.empty()) return "{}";
  auto parsed = parse_json(arguments);
  if (parsed.ok() && parsed->is_object()) return to_text(*parsed);
  return fmt::format(R"({{"unfinished":{}}})", quoted_text(arguments));
}

void append_call(std::string& calls, OllamaStream& stream) {
  fmt::format_to(std::back_inserter(calls), R"({}{{"id":{},"function":{{"name":{},"arguments":{}}}}})",
                 calls.empty() ? "" : ",", quoted_text(stream.id), quoted_text(stream.name),
                 arguments_json(stream.arguments));
  stream.name.clear();
}

void append_logprobs(std::string& out, const LoadedModel& model, const Choice& choice) {
  if (choice.logprobs().empty()) return;
  out += R"(,"logprobs":[)";
  bool first = true;
  for (const ShownLogprobs& one : choice.logprobs()) {
    out += first ? "{" : ",{";
    first = false;
    append_token_json(out, model, one.token, one.values.chosen);
    append_top_json(out, model, one.values);
    out += '}';
  }
  out += ']';
}

// {"model": ..., "created_at": ...
std::string opening(std::string_view model, int64_t created) {
  return fmt::format(R"({{"model":{},"created_at":"{}")", quoted_text(model), rfc3339(created));
}

}  // namespace

OllamaTexts ollama_texts(std::span<const AnswerPart> parts, bool done, OllamaStream& stream) {
  OllamaTexts texts;
  for (const AnswerPart& part : parts) {
    if (part.kind == Kind::content) texts.content += part.text;
    if (part.kind == Kind::reasoning) texts.thinking += part.text;
    if (part.kind == Kind::arguments) stream.arguments += part.text;
    if (part.kind == Kind::ended) append_call(texts.calls, stream);
    if (part.kind != Kind::call) continue;
    stream.name = part.text;
    stream.id = part.id;
    stream.arguments.clear();
  }
  if (done && !stream.name.empty()) append_call(texts.calls, stream);
  return texts;
}

std::string rfc3339(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string_view ollama_reason(const Choice& choice) { return choice.finish_reason() == "length" ? "length" : "stop"; }

HttpAnswer ollama_refusal(const ApiError& failure) {
  HttpAnswer answer = error_answer(failure);  // with the headers every refusal has
  answer.body = to_text(JsonObject{{"error", failure.message}});
  return answer;
}

void append_ollama_error(std::string& out, const ApiError& failure) {
  out += to_text(JsonObject{{"error", failure.message}}) + "\n";
}

void append_ollama_line(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice* choice,
                        std::string_view reason, const Usage* usage) {
  auto& stream = static_cast<OllamaStream&>(*stamp.state);
  const OllamaTexts texts = choice != nullptr ? ollama_texts(choice->parts(), choice->done(), stream) : OllamaTexts();
  out += opening(stamp.model, stamp.created);
  out += stamp.event;  // "message":{"role":"assistant","content": or "response":
  append_quoted(out, texts.content);
  if (!texts.thinking.empty())
    fmt::format_to(std::back_inserter(out), R"(,"thinking":{})", quoted_text(texts.thinking));
  if (!texts.calls.empty()) fmt::format_to(std::back_inserter(out), R"(,"tool_calls":[{}])", texts.calls);
  if (stream.in_message) out += '}';
  if (choice != nullptr) append_logprobs(out, model, *choice);
  fmt::format_to(std::back_inserter(out), R"(,"done":{})", usage != nullptr);
  if (usage != nullptr) {
    fmt::format_to(std::back_inserter(out),
                   R"(,"done_reason":"{}","total_duration":{},"load_duration":0,"prompt_eval_count":{},)"
                   R"("prompt_eval_duration":{},"eval_count":{},"eval_duration":{})",
                   reason, nanoseconds(usage->seconds), usage->prompt, nanoseconds(usage->first_seconds),
                   usage->completion, nanoseconds(usage->seconds - usage->first_seconds));
  }
  out += "}\n";
}

std::string loaded_line(std::string_view model, bool chat) {
  return opening(model, std::time(nullptr)) +
         (chat ? R"(,"message":{"role":"assistant","content":""})" : R"(,"response":"")") +
         R"(,"done":true,"done_reason":"load"})" + "\n";
}

}  // namespace millrace
