// Experts as `explain` shows them: how many a step reads, and the router's load: a line of marks for every layer, JSON,
// a chart. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/terminal.h"
#include "base/json.h"
#include "model/spec.h"
#include "plan/explain.h"

namespace millrace::apps {

struct TouchedExperts {
  int32_t batch = 0;
  int64_t experts = 0, of = 0;
};
// How many of a layer's experts steps of some sizes read if tokens choose evenly; empty: the model has none.
std::vector<TouchedExperts> touched_by_batch(const ModelSpec& spec);
void print_touched(const Terminal& terminal, const std::vector<TouchedExperts>& touched);
JsonArray touched_json(const std::vector<TouchedExperts>& touched);

std::string load_marks(const ExpertLoad& load);  // a mark for every expert: the fuller, the more tokens it had
void print_experts(const Terminal& terminal, const std::vector<ExpertLoad>& loads);
JsonArray experts_json(const std::vector<ExpertLoad>& loads);
std::string experts_chart(const std::vector<ExpertLoad>& loads);

}  // namespace millrace::apps
