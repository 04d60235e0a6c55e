#include "engine/parts.h"

#include <algorithm>

namespace millrace {

Result<EngineParts> EngineParts::create(const Model& model, Backend& backend, const EngineOptions& options) {
  EngineParts parts;
  EngineOptions& settled = parts.options = options;
  settled.executor.rows = options.limits.step_tokens;
  settled.executor.sequences = options.limits.max_sequences;
  TRY(parts.executor, Executor::create(model, backend, settled.executor));
  settled.executor = parts.executor->options();
  // The executor may have fewer rows than asked for where the whole context is shorter than a step.
  settled.limits.step_tokens = std::min(settled.limits.step_tokens, settled.executor.rows);
  settled.limits.max_sequences = std::min(settled.limits.max_sequences, settled.executor.sequences);
  if (settled.limits.context == 0) settled.limits.context = settled.executor.context;
  TRY_VOID(check_limits(settled.limits));
  TRY(auto policy, make_policy(settled.policy));
  const CacheLayout& layout = parts.executor->layout();
  int second_pages = Store::pages_within(layout, settled.swap_bytes);
  if (second_pages > 0) {
    TRY(Store store, Store::create(layout, parts.executor->planned().shapes, second_pages, settled.swap_bytes));
    parts.second = std::make_unique<Store>(std::move(store));
  }
  parts.cache = std::make_unique<KvCache>(layout, settled.executor.pages, second_pages);
  parts.scheduler = std::make_unique<Scheduler>(settled.limits, *parts.cache, std::move(policy));
  parts.runner = std::make_unique<Runner>(*parts.executor, parts.second.get());
  return parts;
}

}  // namespace millrace
