#include "apps/run/speculate.h"

namespace millrace::apps {

std::vector<Flag> speculate_flags() {
  Flag what = by_commas(
      text_flag("speculate", "KIND|FILE", "", "",
                "guess tokens ahead and keep those that are right, which changes no answer: ngram (repeats of "
                "the text), suffix (and of earlier answers), a draft model with the same vocabulary, or a head for the "
                "model (Medusa, MTP, EAGLE-3)"));
  what.alias = "-md --model-draft --speculative-model";
  return {
      what,
      integer_flag("draft-max", "--draft-n --num-speculative-tokens", "4", 1, kMostDrafts,
                   "with --speculate: guesses a step at most; fewer where they would not pay"),
  };
}

Result<std::unique_ptr<Speculation>> speculation_of(const Arguments& arguments, LoadedModel& target, int64_t context) {
  return Speculation::open(arguments.texts("speculate"), target, context);
}

int most_drafts(const Arguments& arguments) { return static_cast<int>(arguments.integer("draft-max")); }

}  // namespace millrace::apps
