// `plan --ranks`: what ranks of this program would hold, send and take (plan/ranks.h), beside one rank. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "base/json.h"
#include "plan/ranks.h"

namespace millrace::apps {

struct PlannedRanks {
  RanksChoice choice;
  Link link;
  std::string link_source;  // "between threads, measured"; empty: one rank
  MemoryPlan memory;        // of the rank that needs most
  RanksPass prefill, decode;
};

// What is planned for.
struct RanksLoad {
  KvForm kv;
  int threads = 0;  // of all ranks of this machine, if it is this one
  int32_t batch = 1, context = 0, prompt = 0, half_way = 0, chunk = 0, page_tokens = 16;
};

// How ranks are joined, known before anything is planned.
struct RanksMade {
  std::vector<int> counts;  // empty: nobody asked
  RankCut cut = RankCut::outputs;
  std::optional<Link> link;  // of an MPI job
  int here = 0;              // of it, on this machine; 0: all
};

// Of `threads` of a machine (0: the usual number), what a rank has.
int threads_of_rank(int threads, const RanksChoice& choice);

std::vector<Flag> ranks_plan_flags();
// Under mpirun it joins the job, measures and leaves; processes other than the first end here.
Result<RanksMade> ranks_made(const Arguments& arguments);
// `like_here`: weights are packed as on this machine.
Result<std::vector<PlannedRanks>> plan_ranks(const RanksMade& made, const ModelSpec& spec, const FormOf& form_of,
                                             bool like_here, const Hardware& hardware, const RanksLoad& load);
void print_ranks(const Terminal& terminal, const std::vector<PlannedRanks>& lines, int32_t batch, int32_t prompt);
JsonArray ranks_json(const std::vector<PlannedRanks>& lines, int32_t batch);

}  // namespace millrace::apps
