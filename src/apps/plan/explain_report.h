// What `explain` found out, shown as text, JSON, a page with charts, or a trace for Perfetto. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "apps/plan/expert_load.h"
#include "base/json.h"
#include "machine/ceilings.h"
#include "plan/explain.h"

namespace millrace::apps {

struct GrowthPoint {
  int32_t length = 0;
  double seconds = 0;
  Floor floor;
};

// The same prompt once more, whose beginning is in the cache then, and what it would take to bring it there.
struct AskedAgain {
  int32_t found = 0;     // tokens of the prompt, in memory
  double seconds = 0;    // to the first token
  int64_t bytes = 0;     // of the cache, for those tokens
  double from_host = 0;  // seconds to bring them from the host's memory (--swap); 0: the cache is there
};

struct ExplainReport {
  std::string model, backend, answer;
  Machine machine;
  int64_t weights = 0;                 // bytes
  int64_t parameters = 0, active = 0;  // of the model, and of those a token needs
  std::vector<TouchedExperts> touched;
  AskedAgain again;
  RequestTimeline timeline;
  Explanation what;
  double handover = 0;
  std::vector<GrowthPoint> prefill, decode;  // by prompt length, by tokens in the cache
  std::optional<double> stolen;              // of processor time, while all that was timed
};

// Which limits any of its figures passed.
PassedLimits passed_limits(const ExplainReport& report);

void print_explanation(const Terminal& terminal, const ExplainReport& report);
Json explanation_json(const ExplainReport& report);
std::string explanation_page(const ExplainReport& report);
std::string explanation_trace(const ExplainReport& report, const CallOps& calls);  // Chrome's trace event format

}  // namespace millrace::apps
