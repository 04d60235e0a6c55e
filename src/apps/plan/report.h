// What `plan` found out, and the three ways it is shown: a table for a person, JSON for a program, a page with charts.
// Everything is computed before anything is shown. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "apps/plan/ranks.h"
#include "base/json.h"
#include "plan/capacity.h"
#include "plan/serving.h"

namespace millrace::apps {

struct PlannedDrafts {
  int32_t drafted = 0;
  double check_cost = 1;  // of a pass that checks them, in passes over one token
  Speculation speculation;
};

struct PlanReport {
  std::string model, weights;  // "llama-2-13b", "Q4_K_M"
  int64_t parameters = 0;      // of the whole model
  int64_t active = 0;          // of them, those that one token is multiplied with
  int32_t model_context = 0;   // it was made for
  Hardware hardware;
  KvForm kv;
  int32_t ranks = 1, replicas = 1;
  double price = 0;  // of one device and hour; 0: not given
  int32_t batch = 1, prompt = 0, output = 0, context = 0;

  MemoryPlan memory;
  int32_t fitting_sequences = 0, fitting_context = 0;
  std::vector<std::pair<int32_t, int32_t>> fitting;  // lengths, and how many sequences of each there is room for
  PassPlan prefill, decode;
  std::vector<OpPlan> prefill_ops, decode_ops;
  LoadPlan load;
  int32_t compute_bound_batch = 0;
  double product_rate = 0;  // operations a second that products have
  std::vector<LoadPlan> frontier;
  ScoreMemory scores;
  struct Attention {
    std::string name;
    int64_t bytes = 0;  // of the batch
    bool own = false;
  };
  std::vector<Attention> attention;
  struct Touched {
    int32_t batch = 0;
    int64_t experts = 0, of = 0;  // of a layer, expected
    double bytes = 0;             // read for one token
  };
  std::vector<Touched> touched;     // empty: no experts
  std::vector<PlannedRanks> split;  // one rank, and as many as were asked for; empty: nobody asked
  std::optional<PageWaste> waste;
  std::optional<BatchUse> use;
  std::optional<PlannedDrafts> drafts, best_drafts;  // as asked for, and the number that gives most

  int32_t devices() const { return ranks * replicas; }
  // What a million tokens cost at a rate of one replica; 0 without a price.
  double cost(double tokens_per_second) const {
    return tokens_per_second > 0 ? price * ranks / 3600 / tokens_per_second * 1e6 : 0;
  }
};

// The arithmetic that products with 16 bits are done in: "660 G op/s in bf16", or in float32 where there is no other.
std::string arithmetic_text(const Ceilings& ceilings);
std::string fitting_text(const PlanReport& report);  // "63 of 1024, 15 of 4096"
void print_plan(const Terminal& terminal, const PlanReport& report);
Json plan_json(const PlanReport& report);
std::string plan_page(const PlanReport& report);

// Writes a page or trace where a flag says, whole or not at all, and says so.
Result<void> write_report(const Terminal& terminal, const std::string& path, std::string_view content);

}  // namespace millrace::apps
