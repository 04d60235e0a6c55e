// The router's load by expert, as `explain` shows it: a line of marks for every layer, JSON, a chart. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/terminal.h"
#include "base/json.h"
#include "plan/explain.h"

namespace millrace::apps {

std::string load_marks(const ExpertLoad& load);  // a mark for every expert: the fuller, the more tokens it had
void print_experts(const Terminal& terminal, const std::vector<ExpertLoad>& loads);
JsonArray experts_json(const std::vector<ExpertLoad>& loads);
std::string experts_chart(const std::vector<ExpertLoad>& loads);

}  // namespace millrace::apps
