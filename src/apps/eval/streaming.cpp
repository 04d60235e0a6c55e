// `eval streaming`: which layers of a model may forget, ranked by KL, with the bytes that saves: what --kv-keep is then
// told.
#include <algorithm>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/eval/input.h"
#include "apps/run/flags.h"
#include "base/human.h"
#include "base/json.h"
#include "eval/compare.h"
#include "eval/streaming.h"

namespace millrace::apps {
namespace {

int64_t held_bytes(const Executor& executor, int tokens) {
  return executor.layout().pages_for(tokens) * executor.layout().page_bytes;
}

// The model that forgets nothing, and the text.
struct Base {
  std::unique_ptr<LoadedModel> loaded;
  std::vector<ScoredText> texts;
  ExecutorOptions options;
  std::unique_ptr<Executor> executor;
  int longest = 1;      // tokens of a text
  uint64_t tokens = 0;  // of all
};

Result<std::unique_ptr<LoadedModel>> load_keeping(const Arguments& arguments, const KvKeep& keep) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = arguments.integer("ctx")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.memory_limit = memory_limit(arguments);
  choice.keep = keep;
  return LoadedModel::load(choice);
}

Result<Base> open_base(const Arguments& arguments) {
  Base base;
  TRY(const std::string text, read_input(arguments.text("file")));
  TRY(base.loaded, load_keeping(arguments, {}));
  TRY(base.texts, scored_texts(arguments, *base.loaded, text));
  for (const ScoredText& one : base.texts) {
    base.tokens += one.tokens.size() - 1;
    base.longest = std::max(base.longest, static_cast<int>(one.tokens.size()));
  }
  base.options = scoring_options(base.texts, base.loaded->vocab());
  base.options.sequences = 1;
  base.options.kv = kv_type(arguments, *base.loaded);
  TRY(base.executor, Executor::create(base.loaded->model(), base.loaded->backend(), base.options));
  return base;
}

Result<StreamingCost> measure(const Arguments& arguments, Base& base, const KvKeep& keep) {
  TRY(auto loaded, load_keeping(arguments, keep));
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), base.options));
  Progress progress(arguments.terminal(), keep.name(), base.tokens, Progress::Unit::count);
  TRY(const Comparison compared, compare_models(*base.executor, *executor, base.texts, [&](int64_t tokens) {
        progress.update(static_cast<uint64_t>(tokens));
        return !Interruptible::interrupted();
      }));
  return StreamingCost{.keep = keep,
                       .kl = compared.kl_mean(),
                       .kl_error = compared.kl_error(),
                       .flips = compared.flip_share(),
                       .bytes = held_bytes(*executor, base.longest)};
}

void print(const Terminal& terminal, const StreamingRank& rank, const Base& base) {
  using Align = Table::Align;
  const int64_t all = held_bytes(*base.executor, base.longest);
  terminal.print("KV {} of {} tokens if nothing is forgotten\n\n", human_bytes(static_cast<uint64_t>(all)),
                 base.longest);
  Table table({{"forgets"},
               {"KL", Align::right},
               {"flips", Align::right},
               {"KV", Align::right},
               {"saved", Align::right},
               {"--kv-keep"}});
  auto row = [&](const StreamingCost& cost, std::string what) {
    table.row({std::move(what), fmt::format("{:.6f} +- {:.6f}", cost.kl, cost.kl_error),
               fmt::format("{:.2f} %", 100 * cost.flips), human_bytes(static_cast<uint64_t>(cost.bytes)),
               fmt::format("{:.1f} %", 100 * (1 - static_cast<double>(cost.bytes) / static_cast<double>(all))),
               cost.keep.name()});
  };
  for (const StreamingCost& cost : rank.alone) row(cost, fmt::format("layer {}", cost.keep.layers.front()));
  for (const StreamingCost& cost : rank.together)
    row(cost, counted(static_cast<int64_t>(cost.keep.layers.size()), "layer"));
  table.print(terminal);
}

Json json(const StreamingRank& rank, const Base& base) {
  auto array = [](const std::vector<StreamingCost>& costs) {
    JsonArray all;
    for (const StreamingCost& cost : costs) {
      all.push_back(JsonObject{{"keep", cost.keep.name()},
                               {"layers", static_cast<int64_t>(cost.keep.layers.size())},
                               {"kl", cost.kl},
                               {"kl_error", cost.kl_error},
                               {"flips", cost.flips},
                               {"kv_bytes", cost.bytes}});
    }
    return all;
  };
  return JsonObject{{"tokens", base.longest},
                    {"kv_bytes", held_bytes(*base.executor, base.longest)},
                    {"alone", array(rank.alone)},
                    {"together", array(rank.together)}};
}

Result<int> run_eval_streaming(const Arguments& arguments) {
  Interruptible scope;
  TRY(const KvKeep keep, kv_keep(arguments));
  if (!keep || !keep.layers.empty())
    return wrong_use(arguments, "say what a layer that forgets keeps, such as --kv-keep sinks:4,window:128");
  TRY(Base base, open_base(arguments));
  const std::vector<int32_t> layers = streaming_layers(base.loaded->model().spec(), keep);
  const auto sets = static_cast<int32_t>(arguments.integer("sets"));
  auto rank = rank_streaming(layers, keep, sets, [&](const KvKeep& some) { return measure(arguments, base, some); });
  if (!rank.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!rank.ok()) return rank.error();
  if (arguments.toggle("json")) {
    arguments.terminal().print("{}\n", to_text(json(*rank, base)));
  } else {
    print(arguments.terminal(), *rank, base);
  }
  return kExitOk;
}

}  // namespace

Verb eval_streaming_verb() {
  return {.name = "eval streaming",
          .summary = "rank a model's layers by what it costs if they forget",
          .group = "Measure and check",
          .flags = joined({scoring_flags(),
                           {integer_flag("sets", "", "8", 1, 4096, "sets of the cheapest layers to measure together"),
                            {.name = "json", .help = "as a JSON object"}},
                           machine_flags()}),
          .examples = {{"eval streaming -f book.txt -c 512 --kv-keep sinks:4,window:64", "the shipped model"},
                       {"run --kv-keep sinks:4,window:64,layers:0-2+5 \"Once\"", "with what was found"}},
          .notes =
              "Each layer alone keeps the first and last tokens only; KL is from the model that forgets nothing, in "
              "nats a token. Then the cheapest of them together. The last column is what --kv-keep takes.",
          .run = run_eval_streaming};
}

}  // namespace millrace::apps
