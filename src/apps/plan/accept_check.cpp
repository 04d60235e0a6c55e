#include "apps/plan/accept_check.h"

#include <algorithm>
#include <chrono>

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/plan/check.h"
#include "base/json.h"
#include "engine/executor.h"
#include "machine/stolen.h"
#include "plan/serving.h"

namespace millrace::apps {
namespace {

constexpr int kMostRows = 17;  // one more than there are guesses
constexpr int kRepetitions = 9;

struct Row {
  double seconds = 0;  // median of a pass of so many rows for each sequence
  Speculation speculation;
};

// Sequences with so much in the cache. What stands there does not matter to the time a pass takes.
class Passes {
 public:
  static Result<Passes> open(const CheckSubject& subject, const KvForm& kv, int batch, int depth) {
    const ExecutorOptions options{.context = depth + kMostRows,
                                  .rows = batch * kMostRows,
                                  .sequences = batch,
                                  .wanted = batch * kMostRows,
                                  .kv = kv};
    Passes passes;
    passes.depth_ = depth;
    TRY(passes.executor_, Executor::create(*subject.model, *subject.backend, options));
    Executor& executor = *passes.executor_;
    KvCache cache(executor.layout(), executor.options().pages, 0);
    for (int i = 0; i < batch; ++i) {
      SequencePages& pages = passes.pages_.emplace_back(cache.open(i, {}));
      if (!cache.reserve(pages, depth, depth + kMostRows)) return error(Code::no_memory, "no pages for {} rows", batch);
    }
    executor.carry_out(cache);
    passes.tokens_.assign(kMostRows, 1);
    return passes;
  }
  double median(int rows) {
    std::vector<Chunk> chunks;
    for (const SequencePages& pages : pages_)
      chunks.push_back({.tokens = std::span<const Token>(tokens_).first(static_cast<size_t>(rows)),
                        .begin = depth_,
                        .tables = pages.tables,
                        .wanted = rows});
    std::vector<double> seconds;
    for (int i = -2; i < kRepetitions; ++i) {
      const auto start = std::chrono::steady_clock::now();
      executor_->run(chunks);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (i >= 0) seconds.push_back(took.count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  std::unique_ptr<Executor> executor_;
  std::vector<SequencePages> pages_;
  std::vector<Token> tokens_;
  int depth_ = 0;
};

Table passes_table() {
  using Align = Table::Align;
  return Table({{"guesses", Align::right},
                {"pass, ms", Align::right},
                {"of a plain one", Align::right},
                {"tokens a pass", Align::right},
                {"speed-up", Align::right}});
}

}  // namespace

Result<int> run_accept_check(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto subject, open_check_subject(arguments));
  const auto batch = static_cast<int>(std::max<int64_t>(1, arguments.integer("batch")));
  const auto drafted = static_cast<int>(arguments.integer("draft"));
  if (drafted >= kMostRows) return error(Code::invalid, "{} guesses; at most {} are timed", drafted, kMostRows - 1);
  const int64_t output = arguments.integer("output");
  const int64_t half_way = arguments.integer("prompt") + std::max<int64_t>(1, output / 2);
  const int64_t depth = std::min<int64_t>(half_way, subject->model->spec().context - kMostRows);
  if (depth < 1)
    return error(Code::invalid, "a model of {} positions has no room for {} rows", subject->model->spec().context,
                 kMostRows);
  const KvForm kv = kv_form_from_name(arguments.text("kv")).value();
  TRY(Passes passes, Passes::open(*subject, kv, batch, static_cast<int>(depth)));
  std::vector<Row> rows(kMostRows);
  const StolenTime stolen;
  size_t best = 0;
  for (size_t guesses = 0; guesses < rows.size(); ++guesses) {
    if (Interruptible::interrupted()) return interrupted_error();
    Row& row = rows[guesses];
    row.seconds = passes.median(static_cast<int>(guesses) + 1);
    TRY(row.speculation, speculate(arguments.number("accept"), static_cast<int32_t>(guesses),
                                   arguments.number("draft-cost"), output, row.seconds / rows[0].seconds));
    if (row.speculation.speedup > rows[best].speculation.speedup) best = guesses;
  }
  const std::optional<double> share = stolen.share();
  Table table = passes_table();
  JsonArray array;
  for (size_t guesses = 0; guesses < rows.size(); ++guesses) {
    const Row& row = rows[guesses];
    const double cost = row.seconds / rows[0].seconds;
    table.row({fmt::format("{}", guesses), fmt::format("{:.3f}", 1e3 * row.seconds), fmt::format("{:.2f}", cost),
               fmt::format("{:.2f}", row.speculation.tokens_per_pass), fmt::format("{:.2f}", row.speculation.speedup)});
    array.push_back(JsonObject{{"draft", static_cast<int64_t>(guesses)},
                               {"seconds", row.seconds},
                               {"check_cost", cost},
                               {"tokens_per_pass", row.speculation.tokens_per_pass},
                               {"speedup", row.speculation.speedup}});
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(JsonObject{{"model", valid_utf8(subject->name)},
                                                     {"backend", subject->backend->description()},
                                                     {"sequences", batch},
                                                     {"depth", depth},
                                                     {"rows", std::move(array)},
                                                     {"best", static_cast<int64_t>(best)},
                                                     {"stolen", stolen_json(share)}}));
    return kExitOk;
  }
  table.print(terminal);
  if (const auto text = stolen_text(share)) terminal.note("{}", *text);
  terminal.print(
      "{} sequences at a depth of {} tokens: {} guesses are best, {:.2f} times as fast; {} asked for, {:.2f}\n", batch,
      depth, best, rows[best].speculation.speedup, drafted, rows[static_cast<size_t>(drafted)].speculation.speedup);
  return kExitOk;
}

}  // namespace millrace::apps
