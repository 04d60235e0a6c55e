#include "apps/serve/limit.h"

#include <algorithm>
#include <cmath>

#include "plan/roofline.h"

namespace millrace::apps {

std::function<double(const MeanStep&)> step_floor(const Model& model, const KvForm& kv, int threads) {
  auto machine = measure_machine({.threads = threads, .known_only = true});
  if (!machine.ok()) return {};
  return [&model, kv, machine = *machine](const MeanStep& step) {
    // Everybody writes a token; what was computed beyond that is one stretch of a prompt.
    const int context = std::clamp(static_cast<int>(step.context), 0, std::max(0, model.spec().context - 1));
    std::vector<PassRows> rows(static_cast<size_t>(std::max(1L, std::lround(step.sequences))), {.begin = context});
    const int prompt = std::min(static_cast<int>(std::lround(step.tokens - step.sequences)), model.spec().context);
    if (prompt > 0) rows.push_back({.begin = 0, .count = prompt, .wanted = 1});
    return floor_of(trace_pass(model, kv, rows), machine, true).seconds;
  };
}

}  // namespace millrace::apps
