#include "apps/run/speculate.h"

#include "engine/draft/tree.h"

namespace millrace::apps {

std::vector<Flag> speculate_flags() {
  Flag what = by_commas(
      text_flag("speculate", "KIND|FILE", "", "",
                "guess tokens ahead and keep those that are right, which changes no answer: ngram (repeats of "
                "the text), suffix (and of earlier answers), mtp (the layer for further tokens in the model's own "
                "file), a draft model with the same vocabulary, or a head for the "
                "model (Medusa, MTP, EAGLE-3)"));
  what.alias = "-md --model-draft --spec-draft-model --spec-type --speculative-model";
  return {
      what,
      integer_flag("draft-max", "--draft --draft-n --spec-draft-n-max --num-speculative-tokens", "4", 1, kMostDrafts,
                   "with --speculate: guesses a step at most; fewer where they would not pay"),
      integer_flag("draft-tree", "", "0", 0, kMostBranches,
                   "with a head and --draft-max of 3 or more: other ways to go on that are tried beside the likeliest, "
                   "within as many rows"),
      text_flag("draft-rule", "RULE", "exact", "exact|reject|typical",
                "which guesses are kept: exact changes no answer; reject gives other answers of the same distribution, "
                "typical of nearly the same, both with always as many guesses as --draft-max"),
      text_flag("speculative-config", "JSON", "", "", "the same as vLLM has it: method, model, num_speculative_tokens"),
  };
}

Result<SpeculateOptions> speculate_options(const Arguments& arguments) {
  TRY(const DraftRule rule, rule_named(arguments.text("draft-rule")));
  if (const std::string config = arguments.text("speculative-config"); !config.empty()) {
    if (arguments.given("speculate") || arguments.given("draft-max"))
      return error(Code::invalid, "--speculative-config says what --speculate and --draft-max say: give one of them");
    auto options = read_speculative_config(config);
    if (!options.ok()) return within("--speculative-config", options.error());
    options->rule = rule;
    options->branches = static_cast<int>(arguments.integer("draft-tree"));
    return *options;
  }
  return SpeculateOptions{.names = arguments.texts("speculate"),
                          .most = static_cast<int>(arguments.integer("draft-max")),
                          .branches = static_cast<int>(arguments.integer("draft-tree")),
                          .rule = rule};
}

Result<std::unique_ptr<Drafters>> drafters_of(const Arguments& arguments, LoadedModel& target, int64_t context) {
  TRY(const SpeculateOptions options, speculate_options(arguments));
  return Drafters::open(options, target, context);
}

}  // namespace millrace::apps
