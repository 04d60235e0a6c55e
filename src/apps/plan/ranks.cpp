#include "apps/plan/ranks.h"

#include <algorithm>
#include <cstdlib>

#include "apps/cli/flags.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "backend/mpi/mpi_comm.h"
#include "base/team.h"
#include "report/page.h"
#include "session/ranked.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_number;
using report::short_seconds;

Result<Link> link_of(const RanksMade& made, const Hardware& hardware, int ranks, std::string& source) {
  if (made.link) {
    source = "between processes over MPI, measured";
    return *made.link;
  }
  if (hardware.name == "this") {
    source = "between threads, measured";
    return measure_thread_link(ranks);
  }
  if (hardware.link_bytes <= 0)
    return error(Code::invalid, "{} has no link to others of its kind, so a model cannot be cut over {} of them",
                 hardware.name, ranks);
  source = "of the data sheet";
  return Link{.seconds = hardware.link_seconds, .bytes = hardware.link_bytes};
}

Result<MemoryPlan> most_memory(const RanksPlanner& planner, const ModelSpec& spec, const Hardware& hardware,
                               const RanksLoad& load) {
  ExecutorOptions options = {.context = load.context,
                             .rows = std::max(std::min(load.chunk, load.context), load.batch),
                             .sequences = load.batch,
                             .kv = load.kv,
                             .page_tokens = load.page_tokens};
  suit_requests(spec, options);
  TRY(std::vector<MemoryPlan> all, planner.memory(options));
  MemoryPlan most = *std::ranges::max_element(all, {}, [](const MemoryPlan& one) { return one.total(); });
  most.reserve = hardware.reserve;
  most.limit = hardware.memory / planner.choice().here;
  return most;
}

}  // namespace

int threads_of_rank(int threads, const RanksChoice& choice) {
  const int all = threads > 0 ? threads : Team::usual();
  return choice.cut == RankCut::layers ? all : std::max(1, (all + choice.here - 1) / choice.here);
}

std::vector<Flag> ranks_plan_flags() {
  return {by_commas(integer_flag("ranks", "", "", 1, kMostRanks,
                                 "what so many ranks of this program would hold, send and take; with --check: and do")),
          pipeline_flag(), whole_experts_flag(),
          text_flag("transport", "HOW", "threads", "threads|mpi",
                    "links that --ranks measures: between threads, or between the processes that mpirun started")};
}

Result<RanksMade> ranks_made(const Arguments& arguments) {
  RanksMade made;
  if (arguments.given("ranks"))
    for (const int64_t ranks : arguments.integers("ranks")) made.counts.push_back(static_cast<int>(ranks));
  TRY(made.cut, rank_cut(arguments));
  if (!made.counts.empty() && arguments.integer("tensor-parallel") > 1)
    return error(Code::invalid, "give --ranks, as this program cuts a model, or --tp, as others do, not both");
  if (!over_mpi(arguments)) return made;
  if (arguments.text("hw") != "this")
    return error(Code::invalid, "--transport mpi measures links of machines that are here: leave out --hw");
  TRY(MpiJob job, join_mpi());
  made.link = measure_link(*job.comm);
  made.here = ranks_here(*job.comm);
  const int rank = job.comm->rank(), ranks = job.comm->ranks();
  job.comm.reset();  // MPI ends, and nobody waits busily while the first plans
  if (rank != 0) std::exit(kExitOk);
  if (!made.counts.empty() && made.counts != std::vector<int>{ranks})
    return error(Code::invalid, "--ranks is not what mpirun started: {} processes (-np)", ranks);
  made.counts = {ranks};
  return made;
}

Result<std::vector<PlannedRanks>> plan_ranks(const RanksMade& made, const ModelSpec& spec, const FormOf& form_of,
                                             bool like_here, const Hardware& hardware, const RanksLoad& load) {
  std::vector<PlannedRanks> lines;
  if (made.counts.empty()) return lines;
  std::vector<int> counts = made.counts;
  if (counts.front() != 1) counts.insert(counts.begin(), 1);
  for (const int ranks : counts) {
    PlannedRanks line = {.choice = {.ranks = ranks, .cut = ranks == 1 ? RankCut::outputs : made.cut}};
    if (hardware.name == "this") line.choice.here = made.here > 0 ? std::min(made.here, ranks) : ranks;
    if (ranks > 1) {
      TRY(line.link, link_of(made, hardware, ranks, line.link_source));
    }
    std::unique_ptr<Backend> part;
    if (like_here) {
      TRY(part, make_cpu_backend({.threads = threads_of_rank(load.threads, line.choice)}));
    }
    TRY(const RanksPlanner planner, RanksPlanner::create(spec, form_of, part.get(), line.choice));
    TRY(line.memory, most_memory(planner, spec, hardware, load));
    for (int32_t begin = 0; begin < load.prompt; begin += load.chunk) {
      const int32_t count = std::min(load.chunk, load.prompt - begin);
      const PassRows rows = {.begin = begin, .count = count, .wanted = begin + count == load.prompt ? 1 : 0};
      line.prefill += planner.pass(load.kv, {&rows, 1}, hardware.ceilings, line.link);
    }
    const std::vector<PassRows> step(static_cast<size_t>(load.batch), {.begin = load.half_way - 1});
    line.decode = planner.pass(load.kv, step, hardware.ceilings, line.link);
    lines.push_back(std::move(line));
  }
  return lines;
}

namespace {

const char* cut_name(RankCut cut) {
  return cut == RankCut::layers ? ", of layers" : (cut == RankCut::experts ? ", whole experts" : "");
}

}  // namespace

void print_ranks(const Terminal& terminal, const std::vector<PlannedRanks>& lines, int32_t batch, int32_t prompt) {
  if (lines.empty()) return;
  using Align = Table::Align;
  auto bytes = [](int64_t count) { return short_bytes(static_cast<double>(count)); };
  terminal.print("\n{}\n", terminal.out_paint(Style::bold, "Ranks of this program, at the least"));
  Table table({{"ranks", Align::right},
               {"weights of one", Align::right},
               {"KV", Align::right},
               {"in all", Align::right},
               {"fits"},
               {"sent a token", Align::right},
               {"exchanges a step", Align::right},
               {"of a step, links", Align::right},
               {"step", Align::right},
               {"t/s", Align::right},
               {fmt::format("prompt of {}", prompt), Align::right}});
  for (const PlannedRanks& line : lines) {
    const RanksPass& step = line.decode;
    table.row({fmt::format("{}{}", line.choice.ranks, cut_name(line.choice.cut)), bytes(line.memory.weights),
               bytes(line.memory.kv), bytes(line.memory.total()), line.memory.fits() ? "yes" : "NO",
               short_bytes(step.sent / batch), fmt::format("{:.0f}", step.exchanges), short_seconds(step.link_seconds),
               short_seconds(step.seconds()), short_number(batch / step.seconds()),
               short_seconds(line.prefill.seconds())});
  }
  table.print(terminal);
  for (const PlannedRanks& line : lines) {
    if (line.choice.ranks == 1) continue;
    terminal.print("  links of {} ranks, {}: {} an exchange, {}/s\n", line.choice.ranks, line.link_source,
                   short_seconds(line.link.seconds), short_bytes(line.link.bytes));
  }
}

JsonArray ranks_json(const std::vector<PlannedRanks>& lines, int32_t batch) {
  JsonArray array;
  for (const PlannedRanks& line : lines) {
    array.push_back(JsonObject{{"ranks", line.choice.ranks},
                               {"pipeline", line.choice.cut == RankCut::layers},
                               {"whole_experts", line.choice.cut == RankCut::experts},
                               {"ranks_of_a_machine", line.choice.here},
                               {"weights", line.memory.weights},
                               {"kv", line.memory.kv},
                               {"workspace", line.memory.workspace},
                               {"staging", line.memory.staging},
                               {"fits", line.memory.fits()},
                               {"sent_bytes_per_token", line.decode.sent / batch},
                               {"exchanges_per_step", line.decode.exchanges},
                               {"link_seconds_per_exchange", line.link.seconds},
                               {"link_bytes_per_second", line.link.bytes},
                               {"decode_link_seconds", line.decode.link_seconds},
                               {"decode_seconds", line.decode.seconds()},
                               {"prefill_link_seconds", line.prefill.link_seconds},
                               {"prefill_seconds", line.prefill.seconds()}});
  }
  return array;
}

}  // namespace millrace::apps
