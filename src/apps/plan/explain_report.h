// What `explain` found out, shown as text, JSON, a page with charts, or a trace for Perfetto. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "base/json.h"
#include "machine/ceilings.h"
#include "plan/explain.h"

namespace millrace::apps {

struct GrowthPoint {
  int32_t length = 0;
  double seconds = 0, floor = 0;
};

struct ExplainReport {
  std::string model, backend, answer;
  Machine machine;
  RequestTimeline timeline;
  Explanation what;
  double handover = 0;
  std::vector<GrowthPoint> prefill, decode;  // by prompt length, by tokens in the cache
};

void print_explanation(const Terminal& terminal, const ExplainReport& report);
Json explanation_json(const ExplainReport& report);
std::string explanation_page(const ExplainReport& report);
std::string explanation_trace(const ExplainReport& report, const CallOps& calls);  // Chrome's trace event format

}  // namespace millrace::apps
