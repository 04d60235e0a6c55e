#include "apps/run/diffusion.h"

#include "apps/cli/flags.h"

namespace millrace::apps {
namespace {

double tokens_a_pass(const GenerateTimes& times) {
  return times.passes > 0 ? times.answer_tokens / static_cast<double>(times.passes) : 0;
}

}  // namespace

std::vector<Flag> diffusion_flags() {
  Flag rule = text_flag("remasking", "RULE", "confidence", kRemaskings,
                        "models that fill masks: which positions a pass fills first");
  rule.alias = "--remask";
  return {integer_flag("diffusion-steps", "", "0", 0, 1 << 20,
                       "models that fill masks: passes over the answer; 0: one for every two tokens"),
          integer_flag("block-length", "", "0", 0, 1 << 20,
                       "models that fill masks: fill so many tokens at a time and keep what is finished (frozen); 0: "
                       "exact, everything is computed in every pass"),
          rule};
}

Result<FillAsk> fill_of(const Arguments& arguments, const LoadedModel& loaded) {
  FillAsk ask;
  ask.steps = static_cast<int32_t>(arguments.integer("diffusion-steps"));
  ask.block = static_cast<int32_t>(arguments.integer("block-length"));
  TRY(ask.remasking, remasking_from_name(arguments.text("remasking")));
  if (fills_masks(loaded.model().spec())) return ask;
  for (std::string_view flag : {"diffusion-steps", "block-length", "remasking"}) {
    if (arguments.given(flag))
      return error(Code::invalid, "--{} is for models that write by filling masks; this one does not", flag);
  }
  return FillAsk();
}

std::string_view fill_mode(const FillAsk& ask) { return ask.block > 0 ? "frozen blocks" : "exact"; }

void note_passes(const Terminal& terminal, const GenerateTimes& times, const FillAsk& ask) {
  if (times.passes == 0) return;
  terminal.note("passes  {}, {:.2f} tokens a pass, {}", times.passes, tokens_a_pass(times), fill_mode(ask));
}

void put_passes(const GenerateTimes& times, const FillAsk& ask, JsonObject& out) {
  out["mode"] = fill_mode(ask);
  out["passes"] = times.passes;
  out["tokens_a_pass"] = tokens_a_pass(times);
}

}  // namespace millrace::apps
