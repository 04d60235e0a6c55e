#include "engine/parts.h"

#include <algorithm>

#include "engine/draft/tree.h"

namespace millrace {
namespace {

constexpr int kMostDraftRows = 256;  // of one step: each has a row of logits

}  // namespace

Result<EngineParts> EngineParts::create(const Model& model, Backend& backend, const EngineOptions& options) {
  EngineParts parts;
  EngineOptions& settled = parts.options = options;
  settled.executor.rows = options.limits.step_tokens;
  settled.executor.sequences = options.limits.max_sequences;
  const bool fills = fills_masks(model.spec());
  suit_requests(model.spec(), settled.executor);
  if (fills && options.draft.make)
    return error(Code::unsupported,
                 "guesses are of the next token, and this model fills masks in any order: leave speculation out");
  if (options.draft.make) {
    if (options.draft.most < 1 || options.draft.most > kMostDrafts)
      return error(Code::invalid, "{} guesses a step: ask for 1 to {}", options.draft.most, kMostDrafts);
    if (options.draft.branches < 0 || options.draft.branches > kMostBranches)
      return error(Code::invalid, "{} branches: ask for at most {}", options.draft.branches, kMostBranches);
    if (options.draft.branches > 0 && options.draft.rule != DraftRule::exact)
      return error(Code::invalid, "several ways to go on are tried by rule exact only, not by {}",
                   rule_name(options.draft.rule));
    settled.limits.max_drafts = options.draft.most;
    settled.executor.beside = options.draft.beside;
    if (options.draft.branches > 0 && options.draft.most > 2) {
      settled.executor.branches = options.draft.branches;
      settled.executor.branch_tokens = options.draft.most;
    }
    settled.limits.whole_windows = options.draft.rule != DraftRule::exact;
    settled.executor.wanted = std::min(options.limits.max_sequences * (1 + options.draft.most),
                                       options.limits.max_sequences + kMostDraftRows);
  }
  TRY(parts.executor, Executor::create(model, backend, settled.executor));
  settled.executor = parts.executor->options();
  // The executor may have fewer rows than asked for where the whole context is shorter than a step.
  settled.limits.step_tokens =
      fills ? settled.executor.rows : std::min(settled.limits.step_tokens, settled.executor.rows);
  settled.limits.fills = fills;
  settled.limits.shifted = model.spec().fill.shifted;
  settled.limits.max_sequences = std::min(settled.limits.max_sequences, settled.executor.sequences);
  if (settled.limits.context == 0) settled.limits.context = settled.executor.context;
  if (options.draft.make) {
    settled.limits.step_drafts = settled.executor.wanted - settled.limits.max_sequences;
    if (settled.limits.step_drafts < 1 && !settled.limits.whole_windows)
      settled.limits.max_drafts = 0;  // no row is left for them
    TRY(parts.drafter, options.draft.make(*parts.executor, backend));
    TRY_VOID(check_rule(options.draft.rule, *parts.drafter));
  }
  TRY_VOID(check_limits(settled.limits));
  TRY(auto policy, make_policy(settled.policy));
  const CacheLayout& layout = parts.executor->layout();
  TRY(parts.second, parts.executor->make_second(settled.swap_bytes));
  const int second_pages = parts.second ? parts.second->pages() : 0;
  parts.cache = std::make_unique<KvCache>(layout, settled.executor.pages, second_pages, parts.executor->look_back());
  std::unique_ptr<DraftControl> control;
  if (parts.drafter != nullptr && !settled.limits.whole_windows)
    control = options.draft.steady         ? steady_drafts(options.draft.most)
              : options.draft.branches > 0 ? paying_trees(options.draft.most, options.draft.branches)
                                           : paying_drafts(options.draft.most);
  parts.scheduler = std::make_unique<Scheduler>(settled.limits, *parts.cache, std::move(policy), std::move(control));
  parts.runner = std::make_unique<Runner>(*parts.executor, parts.second.get(), parts.drafter.get(), options.draft.rule);
  return parts;
}

void EngineParts::plan(Flight& flight, std::vector<RequestId>& ended, double now) {
  flight.plan = scheduler->next(now);
  flight.launch.take(flight.plan);
  flight.launch.forget.insert(flight.launch.forget.end(), ended.begin(), ended.end());
  ended.clear();
}

}  // namespace millrace
