#include "apps/run/report.h"

namespace millrace::apps {
namespace {

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

double answer_rate(const GenerateTimes& times) { return rate(times.following_tokens, times.answer_seconds); }

// What was not measured is left out: without an answer there is no first token, and after one token no speed.
std::string prompt_line(const GenerateTimes& times) {
  std::string line = counted(times.prompt_tokens, "token");
  if (times.reused_tokens > 0) line += fmt::format(" ({} of them kept from before)", times.reused_tokens);
  if (times.answer_tokens == 0) return line;
  return line + fmt::format(", first token after {} ({:.1f} tok/s)", human_seconds(times.prompt_seconds),
                            rate(times.prompt_tokens - times.reused_tokens, times.prompt_seconds));
}

std::string answer_line(const GenerateTimes& times) {
  std::string line = counted(times.answer_tokens, "token");
  if (times.following_tokens == 0) return line;
  return line + fmt::format(", {} a token, {:.1f} tok/s", human_seconds(times.token_seconds()), answer_rate(times));
}

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
  terminal.note("in      {}", prompt_line(times));
  terminal.note("out     {}{}{}", answer_line(times), ending.empty() ? "" : "; ", ending);
  if (times.windows > 0)
    terminal.note("guessed {} ahead in {}, {} of them right ({:.0f} %)", counted(times.drafted_tokens, "token"),
                  counted(times.windows, "pass", "passes"), times.accepted_tokens,
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
