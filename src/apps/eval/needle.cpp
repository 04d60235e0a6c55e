// `eval needle`: what a model still finds of what it read, by how far back it lies, with a cache that keeps everything
// and with one that forgets.
#include <algorithm>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/human.h"
#include "base/json.h"
#include "eval/needle.h"

namespace millrace::apps {
namespace {

// One cache and what was found with it.
struct Side {
  KvKeep keep;
  int64_t bytes = 0;  // of a sequence at its end
  std::vector<NeedleFound> found;

  std::string name() const { return keep ? keep.name() : "everything kept"; }
};

Result<std::vector<Token>> tokens_of(const LoadedModel& model, const std::string& text) {
#if MILLRACE_SESSION_TEXT
  if (model.tokenizer() != nullptr) return model.tokenizer()->encode(text);
#else
  static_cast<void>(text);
#endif
  return error(Code::unsupported, "no needle can be put into a text without a tokenizer: {}", model.tokenizer_error());
}

Result<Side> find_with(const Arguments& arguments, const KvKeep& keep, const std::string& text) {
  Side side{.keep = keep};
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = arguments.integer("length")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.keep = keep;
  TRY(auto loaded, LoadedModel::load(choice));
  NeedleAsk ask;
  ask.length = static_cast<int32_t>(arguments.integer("length"));
  if (ask.length == 0) ask.length = std::min(512, loaded->context());
  ask.begin = loaded->begin_token().value_or(-1);
  ask.depths = static_cast<int32_t>(arguments.integer("depths"));
  ask.tries = static_cast<int32_t>(arguments.integer("tries"));
  ask.seed = static_cast<uint64_t>(arguments.integer("seed"));
  if (ask.length > loaded->context() && !keep.bounded())
    arguments.terminal().warn("stretches of {} tokens, but the model was made for {}", ask.length, loaded->context());
  ExecutorOptions options;
  options.context = ask.length;
  options.rows = step_rows(arguments, "ubatch-size", 512);
  options.wanted = ask.answer;
  options.kv = kv_type(arguments, *loaded);
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), options));
  side.bytes = executor->layout().pages_for(ask.length) * executor->layout().page_bytes;
  TRY(const std::vector<Token> tokens, tokens_of(*loaded, text));
  const auto passes = static_cast<uint64_t>(ask.tries) * static_cast<uint64_t>(ask.depths + 1);
  Progress progress(arguments.terminal(), side.name(), passes, Progress::Unit::count);
  TRY(side.found, find_needles(*executor, tokens, ask, [&](int64_t done) {
        progress.update(static_cast<uint64_t>(done));
        return !Interruptible::interrupted();
      }));
  return side;
}

void print(const Terminal& terminal, const std::vector<Side>& sides) {
  using Align = Table::Align;
  for (const Side& side : sides)
    terminal.print("KV {:<12} {}\n", human_bytes(static_cast<uint64_t>(side.bytes)), side.name());
  terminal.print("\n");
  Table table({{"tokens back", Align::right}, {"cache"}, {"found", Align::right}, {"nats a token", Align::right}});
  for (size_t i = 0; i < sides.front().found.size(); ++i) {
    for (const Side& side : sides) {
      const NeedleFound& one = side.found[i];
      table.row({one.planted ? fmt::format("{}", one.back) : "no needle", side.name(),
                 fmt::format("{:.0f} %", 100 * one.share()),
                 fmt::format("{:.2f}", one.surprise / static_cast<double>(std::max<int64_t>(1, one.asked)))});
    }
  }
  table.print(terminal);
}

JsonArray json(const std::vector<Side>& sides) {
  JsonArray all;
  for (const Side& side : sides) {
    JsonArray places;
    for (const NeedleFound& one : side.found) {
      places.push_back(JsonObject{{"planted", one.planted},
                                  {"back", one.back},
                                  {"asked", one.asked},
                                  {"right", one.right},
                                  {"surprise", one.surprise}});
    }
    all.push_back(JsonObject{{"keep", side.keep.name()}, {"kv_bytes", side.bytes}, {"places", std::move(places)}});
  }
  return all;
}

Result<int> run_eval_needle(const Arguments& arguments) {
  Interruptible scope;
  TRY(const std::string text, read_input(arguments.text("file")));
  TRY(const KvKeep keep, kv_keep(arguments));
  std::vector<Side> sides;
  for (const KvKeep& each : {KvKeep{}, keep}) {
    if (!sides.empty() && !each) break;
    auto side = find_with(arguments, each, text);
    if (!side.ok() && Interruptible::interrupted()) return interrupted_error();
    if (!side.ok()) return side.error();
    sides.push_back(std::move(*side));
  }
  if (arguments.toggle("json")) {
    arguments.terminal().print("{}\n", to_text(json(sides)));
  } else {
    print(arguments.terminal(), sides);
  }
  return kExitOk;
}

}  // namespace

Verb eval_needle_verb() {
  return {.name = "eval needle",
          .summary = "measure what a model finds of what it read, by how far back it lies",
          .group = "Measure and check",
          .flags = joined({{model_flag(),
                            {.name = "file",
                             .alias = "-f",
                             .kind = Kind::path,
                             .value = "FILE",
                             .required = true,
                             .help = "the text that needles and haystacks are cut from; - reads standard input"},
                            integer_flag("length", "-c", "0", 0, 1 << 24, "tokens of a stretch; 0: 512"),
                            integer_flag("depths", "", "8", 2, 1024, "places of the needle, from the first token on"),
                            integer_flag("tries", "", "4", 1, 1 << 20, "needles at each place"),
                            integer_flag("seed", "-s", "1", 0, 1e12, "of needles and stretches"),
                            {.name = "json", .help = "as a JSON array"}},
                           machine_flags()}),
          .examples = {{"eval needle -f book.txt --kv-keep sinks:4,window:128", "what a cache that forgets has lost"},
                       {"eval needle -m model.gguf -f book.txt -c 8192 --kv q4", "another model with a small cache"}},
          .notes =
              "Sixteen tokens from elsewhere in the text are put into a stretch of it, which ends with the first eight "
              "of them; found is how often the likeliest token is the right one of the other eight. The last row has "
              "no needle: what can be guessed. With --kv-keep the same is asked with a cache that forgets and one that "
              "does not.",
          .run = run_eval_needle};
}

}  // namespace millrace::apps
