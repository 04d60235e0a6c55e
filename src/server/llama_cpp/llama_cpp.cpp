#include "server/llama_cpp/llama_cpp.h"

#include <iterator>

#include "server/llama_cpp/read_llama.h"
#include "server/quoted.h"
#include "server/service.h"
#include "server/token_json.h"

namespace millrace {
namespace {

// How it ended, until the counts are there.
struct LlamaStream : StreamState {
  std::string ending;
};

// "stop_type": ..., "stopping_word": ...
std::string ending_of(const Choice& choice) {
  const std::string_view by = choice.stopped_by();
  const std::string_view type = choice.finish_reason() == "length" ? "limit" : by.empty() ? "eos" : "word";
  return fmt::format(R"("stop_type":"{}","stopping_word":{})", type, quoted_text(by));
}

double per(double amount, double of) { return of > 0 ? amount / of : 0; }

std::string timings_json(const Usage& usage) {
  const auto computed = static_cast<double>(usage.prompt - usage.cached);
  const auto made = static_cast<double>(usage.completion);
  const double first = usage.first_seconds, rest = usage.seconds - usage.first_seconds;
  return fmt::format(
      R"({{"cache_n":{},"prompt_n":{},"prompt_ms":{:.3f},"prompt_per_token_ms":{:.3f},"prompt_per_second":{:.3f},)"
      R"("predicted_n":{},"predicted_ms":{:.3f},"predicted_per_token_ms":{:.3f},"predicted_per_second":{:.3f}}})",
      usage.cached, usage.prompt - usage.cached, first * 1000, per(first * 1000, computed), per(computed, first),
      usage.completion, rest * 1000, per(rest * 1000, made), per(made, rest));
}

// {"index": 0, "content": ..., "tokens": [...]
void append_content(std::string& out, const LoadedModel& model, const Choice& choice) {
  out += R"({"index":0,"content":)";
  append_quoted(out, choice.text());
  fmt::format_to(std::back_inserter(out), R"(,"tokens":[{}])", fmt::join(choice.ids(), ","));
  if (choice.logprobs().empty()) return;
  out += R"(,"completion_probabilities":[)";
  bool first = true;
  for (const ShownLogprobs& one : choice.logprobs()) {
    fmt::format_to(std::back_inserter(out), R"({}{{"id":{},)", first ? "" : ",", one.token);
    first = false;
    append_token_json(out, model, one.token, one.values.chosen);
    append_top_json(out, model, one.values, true);
    out += '}';
  }
  out += ']';
}

// ..., "stop": true and all that is told at the end.
void append_ending(std::string& out, const Stamp& stamp, std::string_view ending, const Usage& usage) {
  fmt::format_to(
      std::back_inserter(out),
      R"(,"id_slot":-1,"stop":true,"model":{},"tokens_predicted":{},"tokens_evaluated":{},"truncated":false,)"
      R"({},"tokens_cached":{},"timings":{}}})",
      quoted_text(stamp.model), usage.completion, usage.prompt, ending, usage.cached, timings_json(usage));
}

class LlamaCpp : public Dialect {
 public:
  explicit LlamaCpp(LlamaBody kind) : kind_(kind) {}

  std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits, const SamplingDefaults& defaults,
                               RequestBody& out) const override {
    return read_llama(request.body, kind_, limits, out, defaults);
  }
  HttpAnswer refuse(const ApiError& failure) const override { return error_answer(failure); }

  void begin(Stamp& stamp) const override { stamp.state = std::make_unique<LlamaStream>(); }
  HttpAnswer whole(const Stamp& stamp, const LoadedModel& model, std::span<const Choice> choices,
                   const Usage& usage) const override {
    HttpAnswer answer;
    append_content(answer.body, model, choices[0]);
    append_ending(answer.body, stamp, ending_of(choices[0]), usage);
    return answer;
  }

  HttpAnswer head() const override {
    return {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
  }
  void append_first(std::string&, const Stamp&, size_t) const override {}
  void append_choice(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice& choice,
                     size_t) const override {
    if (choice.done()) static_cast<LlamaStream&>(*stamp.state).ending = ending_of(choice);
    if (choice.empty()) return;
    out += "data: ";
    append_content(out, model, choice);
    fmt::format_to(std::back_inserter(out),
                   R"(,"stop":false,"id_slot":-1,"tokens_predicted":{},"tokens_evaluated":{}}})", choice.tokens(),
                   stamp.prompt);
    out += "\n\n";
  }
  void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const override {
    out += R"(data: {"index":0,"content":"","tokens":[])";
    append_ending(out, stamp, static_cast<LlamaStream&>(*stamp.state).ending, usage);
    out += "\n\n";
  }
  void append_error(std::string& out, const Stamp&, const ApiError& failure) const override {
    out += "data: " + to_text(error_json(failure)) + "\n\n";
  }

 private:
  const LlamaBody kind_;
};

void completion(Service& service, Call call) { service.generate(llama_completion(), std::move(call)); }
void infill(Service& service, Call call) { service.generate(llama_infill(), std::move(call)); }

constexpr RouteBody kContinued = {"LlamaCompletionRequest", kLlamaCompletion, llama_bodies};
constexpr RouteBody kFilled = {"LlamaInfillRequest", kLlamaInfill, llama_bodies};

constexpr Route kRoutes[] = {
    {"POST", "/completion", "the continuation of a text, as llama.cpp's clients ask for it", completion, Access::key,
     kContinued},
    {"POST", "/completions", "the same", completion, Access::key, kContinued},
    {"POST", "/infill", "what is missing between two texts", infill, Access::key, kFilled},
};

}  // namespace

const Dialect& llama_completion() {
  static const LlamaCpp dialect(kLlamaCompletion);
  return dialect;
}

const Dialect& llama_infill() {
  static const LlamaCpp dialect(kLlamaInfill);
  return dialect;
}

std::span<const Route> llama_routes() { return kRoutes; }

}  // namespace millrace
