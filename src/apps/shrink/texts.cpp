#include "apps/shrink/texts.h"

#include "apps/cli/input.h"
#include "apps/eval/input.h"

namespace millrace::apps {

std::vector<Flag> calibration_flags() {
  std::vector<Flag> flags = {
      {.name = "calibrate",
       .kind = Kind::path,
       .value = "TEXT",
       .help = "text that shows what the model reads; every fifth window or document of it is held out, to decide by "
               "and to measure with"}};
  flags.push_back({.name = "memory-limit",
                   .kind = Kind::bytes,
                   .value = "BYTES",
                   .otherwise = "0",
                   .help = "with --calibrate: most memory to take for models and sums; 0: what the machine has free"});
  for (const Flag& flag : scoring_flags()) {
    if (flag.name == "documents" || flag.name == "limit" || flag.name == "ctx") flags.push_back(flag);
  }
  return flags;
}

Result<SplitTexts> calibration_texts(const Arguments& arguments, const LoadedModel& model) {
  TRY(const std::string text, read_input(arguments.text("calibrate")));
  TRY(std::vector<ScoredText> texts, scored_texts(arguments, model, text));
  return split_texts(std::move(texts));
}

void print_result(const Terminal& terminal, const std::string& what, uint64_t bytes, const Comparison& comparison) {
  terminal.print(
      "{:<10} {:>10}  KL {:.6f} +- {:.6f}, p99 {:.4f}, flips {:.2f} %  perplexity {:.4f} -> {:.4f} ({:+.3f} "
      "% +- {:.3f})  {} held-out tokens\n",
      what, human_bytes(bytes), comparison.kl_mean(), comparison.kl_error(), comparison.kl_at(0.99),
      100 * comparison.flip_share(), comparison.base_perplexity(), comparison.variant_perplexity(),
      100 * comparison.perplexity_change(), 100 * comparison.perplexity_change_error(), comparison.tokens);
}

}  // namespace millrace::apps
