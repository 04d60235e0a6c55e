#include "apps/plan/cluster.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "base/json.h"
#include "bench/cluster.h"

namespace millrace::apps {
namespace {

constexpr int kVocab = 32000;  // of tokens that stand for a trace's; only whether they are equal matters

// What steps take, from passes of a few sizes. All of it is a bound; real engines reach `efficiency` of it.
StepCost cost_of(const Planner& planner, double efficiency) {
  const PassPlan shallow = planner.decode(1, 16), deep = planner.decode(1, 4096);
  const int32_t brief = 1024, many = 4096;
  const PassPlan prompt = planner.prefill(brief), longer = planner.prefill(many);
  StepCost cost;
  cost.weights = shallow.floor.seconds;
  cost.cached = std::max(0.0, deep.floor.seconds - shallow.floor.seconds) / (4096 - 16);
  // A row of a prompt of n tokens attends to n / 2 of them.
  const double row_brief = prompt.floor.seconds / brief, row_many = longer.floor.seconds / many;
  cost.attended = std::max(0.0, row_many - row_brief) / ((many - brief) / 2);
  cost.row = std::max(0.0, row_brief - cost.attended * brief / 2);
  cost.fixed = shallow.reduce_seconds;
  cost.row_exchange = std::max(0.0, prompt.reduce_seconds - shallow.reduce_seconds) / brief;
  for (double StepCost::*part : {&StepCost::weights, &StepCost::cached, &StepCost::row, &StepCost::attended,
                                 &StepCost::fixed, &StepCost::row_exchange})
    cost.*part /= efficiency;
  return cost;
}

struct Row {
  double speed = 1;
  double rate = 0;  // requests a second
  Sized sized;
  double cost = 0;  // of a million tokens of answers
};

Result<ClusterShape> shape_of(const Arguments& arguments, Planner& planner) {
  ClusterShape shape;
  shape.limits.context = static_cast<int>(arguments.integer("cluster-context"));
  shape.limits.max_sequences = static_cast<int>(arguments.integer("cluster-sequences"));
  shape.limits.step_tokens = std::max(shape.limits.max_sequences, static_cast<int>(arguments.integer("ubatch-size")));
  shape.limits.max_waiting = 1 << 20;
  shape.policy = arguments.text("policy");
  shape.page_tokens = static_cast<int>(arguments.integer("page-tokens"));
  shape.targets = {.first_token = arguments.number("first-token"), .next_token = arguments.number("next-token")};
  shape.by_prefix = arguments.text("route") == "prefix";
  shape.cost = cost_of(planner, arguments.number("efficiency"));
  const int32_t length = shape.limits.context;
  TRY(const int32_t fit, planner.sequences_that_fit(length));
  if (fit < 1)
    return error(Code::no_memory,
                 "{} has no room for the model and one sequence of {} tokens: cut it over more devices (--tp), or give "
                 "--cluster-context less",
                 planner.hardware().name, length);
  const int64_t pages = int64_t{fit} * (length / shape.page_tokens + 1);
  shape.pages = static_cast<int>(std::min<int64_t>(pages, 1 << 24));
  TRY(const MemoryPlan one, planner.memory(1, length));
  const int64_t page_bytes = std::max<int64_t>(1, one.kv / (length / shape.page_tokens + 1));
  shape.second_pages =
      static_cast<int>(std::min<int64_t>(arguments.integer("cluster-swap") / page_bytes, int64_t{1} << 24));
  shape.limits.page_move_seconds = static_cast<double>(page_bytes) / arguments.number("swap-rate");
  return shape;
}

JsonObject row_json(const Row& row, int32_t ranks) {
  const ClusterReport& r = row.sized.replicas > 0 ? row.sized.report : row.sized.fewer;
  return {{"speed", row.speed},
          {"requests_per_second", row.rate},
          {"replicas", row.sized.replicas},
          {"devices", row.sized.replicas * ranks},
          {"goodput", r.goodput()},
          {"first_token_p99", r.first_p99},
          {"next_token_p99", r.next_p99},
          {"prefix_found", r.found()},
          {"busy", r.busy},
          {"preemptions", r.preemptions},
          {"tokens_in", r.tokens_in},
          {"tokens_out", r.tokens_out},
          {"cost_per_million", row.cost},
          {"breaks_first", breaks_first(row.sized.fewer)}};
}

void print_row(const Terminal& terminal, const Row& row, int32_t ranks, bool priced) {
  const bool enough = row.sized.replicas > 0;
  const ClusterReport& r = enough ? row.sized.report : row.sized.fewer;
  terminal.print("{:>5.0f}x {:>8.1f} {:>9} {:>8} {:>8.3f} {:>9.3f} {:>9.4f} {:>7.2f} {:>6.2f} {:>9}  {}\n", row.speed,
                 row.rate, enough ? fmt::format("{}", row.sized.replicas) : "too few",
                 enough ? fmt::format("{}", row.sized.replicas * ranks) : "", r.goodput(), r.first_p99, r.next_p99,
                 r.found(), r.busy, priced && enough ? fmt::format("{:.2f}", row.cost) : "",
                 breaks_first(row.sized.fewer));
}

}  // namespace

std::vector<Flag> cluster_flags() {
  return {
      {.name = "cluster", .help = "how many machines a trace needs, by the engine's own scheduler: needs --trace"},
      path_flag("trace", "FILE", "of requests: Azure's CSV or Mooncake's JSON lines"),
      by_commas(integer_flag("speed", "", "1,2,5,10,20,50,100", 1, 1e6, "times as many requests a second")),
      integer_flag("requests", "", "2000", 1, 1 << 24, "of the trace, from its beginning"),
      number_flag("first-token", "", "2", 0, 1e6, "seconds until the first token that are on time"),
      number_flag("next-token", "", "0.1", 0, 1e6, "seconds from token to token that are on time, on average"),
      number_flag("on-time", "", "0.99", 0.01, 1, "share of requests that must be on time"),
      number_flag("efficiency", "", "0.6", 0.01, 1, "of the hardware's limits that engines reach"),
      integer_flag("most-replicas", "", "1024", 1, 1 << 20, "at which the search ends"),
      integer_flag("cluster-context", "", "8192", 64, 1 << 24, "longest request; longer traces are scaled down to it"),
      integer_flag("cluster-sequences", "", "256", 1, 4096, "sequences a replica computes together"),
      {.name = "cluster-swap",
       .kind = Kind::bytes,
       .value = "BYTES",
       .otherwise = "0",
       .help = "a replica's memory for pages moved out"},
      number_flag("swap-rate", "", "20e9", 1, 1e15, "bytes a second to it and back"),
      text_flag("route", "NAME", "prefix", "prefix|turns", "who gets a request: whoever has its beginning, or in turn"),
      text_flag("policy", "NAME", "fcfs", "fcfs|priority|slo", "who goes first within a replica")};
}

Result<int> run_cluster_plan(const Arguments& arguments, Planner& planner, const std::string& model, int32_t ranks) {
  const auto trace = arguments.maybe_text("trace");
  if (!trace) return error(Code::invalid, "--cluster needs a trace of requests: --trace FILE");
  TRY(const ClusterShape shape, shape_of(arguments, planner));
  const double price = arguments.given("price") ? arguments.number("price") : 0;
  std::vector<Row> rows;
  for (const int64_t times : arguments.integers("speed")) {
    const auto speed = static_cast<double>(times);
    TRY(const auto arrivals, read_trace(*trace, {.context = shape.limits.context,
                                                 .vocab = kVocab,
                                                 .requests = static_cast<int>(arguments.integer("requests")),
                                                 .speed = speed}));
    Row row{.speed = speed};
    const double span = arrivals.back().time;
    row.rate = span > 0 ? static_cast<double>(arrivals.size()) / span : 0;
    TRY(row.sized, size_cluster(arrivals, shape, arguments.number("on-time"),
                                static_cast<int>(arguments.integer("most-replicas"))));
    const ClusterReport& r = row.sized.report;
    if (r.tokens_out > 0)
      row.cost = price * ranks * row.sized.replicas * r.seconds / 3600 / (static_cast<double>(r.tokens_out) / 1e6);
    rows.push_back(std::move(row));
  }
  const Terminal& terminal = arguments.terminal();
  if (arguments.toggle("json")) {
    JsonArray list;
    for (const Row& row : rows) list.push_back(row_json(row, ranks));
    terminal.print("{}\n", to_pretty_text(JsonObject{{"model", model},
                                                     {"hardware", planner.hardware().name},
                                                     {"ranks", ranks},
                                                     {"pages", shape.pages},
                                                     {"rows", std::move(list)}}));
    return kExitOk;
  }
  terminal.print(
      "{} on {}, {} device{} a replica, {} pages of {} tokens; first token within {:g} s, others within {:g} s\n",
      model, planner.hardware().description, ranks, ranks == 1 ? "" : "s", shape.pages, shape.page_tokens,
      shape.targets.first_token, shape.targets.next_token);
  terminal.print("{:>6} {:>8} {:>9} {:>8} {:>8} {:>9} {:>9} {:>7} {:>6} {:>9}  {}\n", "speed", "req/s", "replicas",
                 "devices", "on time", "first p99", "next p99", "found", "busy", price > 0 ? "a million" : "",
                 "one fewer runs out of");
  for (const Row& row : rows) print_row(terminal, row, ranks, price > 0);
  return kExitOk;
}

}  // namespace millrace::apps
