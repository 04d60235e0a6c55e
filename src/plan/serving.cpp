#include "plan/serving.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

namespace millrace {
namespace {

Result<void> check_lengths(std::span<const int64_t> lengths) {
  if (lengths.empty()) return error(Code::invalid, "no lengths; give at least one");
  for (int64_t length : lengths) {
    if (length < 1 || length > (1 << 30))
      return error(Code::invalid, "a length of {} tokens; each must be 1 to {}", length, 1 << 30);
  }
  return {};
}

}  // namespace

Result<PageWaste> page_waste(std::span<const int64_t> lengths, int64_t page_tokens, int64_t context) {
  TRY_VOID(check_lengths(lengths));
  if (page_tokens < 1) return error(Code::invalid, "pages of {} tokens; give at least 1", page_tokens);
  PageWaste waste;
  for (int64_t length : lengths) {
    if (length > context)
      return error(Code::invalid, "a sequence of {} tokens in a context of {}; give a longer context", length, context);
    waste.used += length;
    waste.paged += (length + page_tokens - 1) / page_tokens * page_tokens;
    waste.reserved += context;
  }
  return waste;
}

Result<BatchUse> batch_use(std::span<const int64_t> outputs, int64_t slots) {
  TRY_VOID(check_lengths(outputs));
  if (slots < 1) return error(Code::invalid, "{} slots; give at least 1", slots);
  BatchUse use;
  int64_t tokens = 0;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ends;  // when each busy slot is free again
  for (size_t i = 0; i < outputs.size(); ++i) {
    tokens += outputs[i];
    if (i % static_cast<size_t>(slots) == 0) {
      const auto batch = outputs.subspan(i, std::min(static_cast<size_t>(slots), outputs.size() - i));
      use.static_steps += *std::max_element(batch.begin(), batch.end());
    }
    int64_t start = 0;
    if (static_cast<int64_t>(ends.size()) == slots) start = ends.top(), ends.pop();
    ends.push(start + outputs[i]);
    use.continuous_steps = std::max(use.continuous_steps, start + outputs[i]);
  }
  auto share = [&](int64_t steps) { return static_cast<double>(tokens) / static_cast<double>(steps * slots); };
  use.static_use = share(use.static_steps);
  use.continuous_use = share(use.continuous_steps);
  return use;
}

Result<Speculation> speculate(double acceptance, int32_t drafted, double draft_cost, int64_t output,
                              double check_cost) {
  if (!(acceptance >= 0 && acceptance <= 1))
    return error(Code::invalid, "an acceptance of {}; give a probability from 0 to 1", acceptance);
  if (drafted < 0 || drafted > 1024) return error(Code::invalid, "{} drafted tokens; give 0 to 1024", drafted);
  if (!(draft_cost >= 0)) return error(Code::invalid, "a drafted token costs {} of a pass; give 0 or more", draft_cost);
  if (!(check_cost > 0)) return error(Code::invalid, "a pass that checks costs {} of one that does not", check_cost);
  Speculation result;
  result.tokens_per_pass = 0;
  double all_accepted = 1;
  for (int32_t i = 0; i <= drafted; ++i, all_accepted *= acceptance) result.tokens_per_pass += all_accepted;
  result.passes = static_cast<double>(output) / result.tokens_per_pass;
  result.speedup = result.tokens_per_pass / (check_cost + drafted * draft_cost);
  return result;
}

}  // namespace millrace
