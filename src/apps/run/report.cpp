#include "apps/run/report.h"

namespace millrace::apps {
namespace {

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

double answer_rate(const GenerateTimes& times) { return rate(times.answer_tokens - 1, times.answer_seconds); }

}  // namespace

void report_memory(const Terminal& terminal, const Backend& backend) {
  std::string text;
  int64_t total = 0;
  for (int i = 0; i < kPurposes; ++i) {
    const Purpose purpose = static_cast<Purpose>(i);
    total += backend.used(purpose);
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", purpose_name(purpose),
                        human_bytes(static_cast<uint64_t>(backend.used(purpose))));
  }
  terminal.note("memory  {}: {}", human_bytes(static_cast<uint64_t>(total)), text);
}

void report(const Terminal& terminal, const LoadedModel& model, const GenerateTimes& times, std::string_view ending) {
  const int32_t computed = times.prompt_tokens - times.reused_tokens;
  const std::string reused =
      times.reused_tokens > 0 ? fmt::format(" ({} of them kept from before)", times.reused_tokens) : "";
  terminal.note("in      {} tokens{}, first token after {} ({:.1f} tok/s)", times.prompt_tokens, reused,
                human_seconds(times.prompt_seconds), rate(computed, times.prompt_seconds));
  terminal.note("out     {} tokens, {} a token, {:.1f} tok/s; ended by: {}", times.answer_tokens,
                human_seconds(times.token_seconds()), answer_rate(times), ending);
  if (times.windows > 0)
    terminal.note("guessed {} tokens ahead in {} passes, {} of them right ({:.0f} %)", times.drafted_tokens,
                  times.windows, times.accepted_tokens,
                  100 * static_cast<double>(times.accepted_tokens) / static_cast<double>(times.drafted_tokens));
  report_memory(terminal, model.backend());
}

Json times_json(const GenerateTimes& times) {
  return JsonObject{{"prompt_tokens", times.prompt_tokens},
                    {"reused_tokens", times.reused_tokens},
                    {"answer_tokens", times.answer_tokens},
                    {"drafted_tokens", times.drafted_tokens},
                    {"accepted_tokens", times.accepted_tokens},
                    {"ttft_seconds", times.prompt_seconds},
                    {"tpot_seconds", times.token_seconds()},
                    {"prompt_tokens_per_second", rate(times.prompt_tokens - times.reused_tokens, times.prompt_seconds)},
                    {"tokens_per_second", answer_rate(times)}};
}

Json memory_json(const Backend& backend) {
  JsonObject out;
  for (int i = 0; i < kPurposes; ++i)
    out[purpose_name(static_cast<Purpose>(i))] = backend.used(static_cast<Purpose>(i));
  return out;
}

}  // namespace millrace::apps
