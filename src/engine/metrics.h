// Metrics: what the engine has done, as numbers somebody can look at while it runs and after. Times are seconds as the
// caller of the scheduler gave them. Written by the engine thread; readers take a copy there.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/draft/depths.h"
#include "engine/request.h"

namespace millrace {

// Counts of values by size, eight sizes to a doubling, so that a quantile is right to about 5 %.
class Histogram {
 public:
  static constexpr double kSmallest = 1e-6;  // everything below counts as this
  static constexpr int kPerDoubling = 8;
  static constexpr int kBuckets = 8 * 40;

  void add(double value);
  void merge(const Histogram& other);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double quantile(double fraction) const;  // 0 if nothing was counted
  int64_t at_most(double value) const;     // values counted that are no larger, to a bucket
  static double upper_bound(int bucket);   // of the values in it
  const std::array<int64_t, kBuckets>& buckets() const { return buckets_; }

 private:
  static int bucket_of(double value);
  std::array<int64_t, kBuckets> buckets_ = {};
  int64_t count_ = 0;
  double sum_ = 0;
};

// One request, once it has ended. Times of a request that never got a token are 0.
struct RequestRecord {
  RequestId id = 0;
  Finish finish = Finish::none;  // cancelled or failed if any answer was, else that of the last
  double arrived = 0;
  double queue = 0;        // until its first token was computed in a step
  double first_token = 0;  // time to it
  double next_token = 0;   // mean time from token to token, over all answers
  double end_to_end = 0;
  int tokens_in = 0, tokens_out = 0;
  int cached = 0;  // prompt tokens that were not computed, over all answers
  int preemptions = 0;
  bool on_time = true;  // met its targets; without targets, it ended well
  bool again = false;   // begun by another engine: its times are not this one's
};

struct Metrics {
  // requests
  int64_t submitted = 0, refused = 0, finished = 0, cancelled = 0, failed = 0, on_time = 0;
  int64_t stopped = 0, at_length = 0;                                                       // of those finished, by how
  int64_t tokens_in = 0, tokens_out = 0, cached_tokens = 0, preemptions = 0, restarts = 0;  // once they have ended
  Histogram queue, first_token, between_tokens, next_token, end_to_end;
  // steps
  int64_t steps = 0, computed_tokens = 0;
  int64_t shortlist_rows = 0, whole_rows = 0, unsettled_rows = 0;  // of logits that a machine apart brought (plan.h)
  int64_t prefix_lookups = 0, prefix_hits = 0;
  // by answer, as it happens: prompts looked up, and which of their tokens were found; prompts whose first token came,
  // and the tokens chosen
  int64_t prefix_asked_tokens = 0, prefix_found_tokens = 0, prompt_tokens = 0, generated_tokens = 0;
  // of the tokens found, those that came back from the second store; and tokens that came from outside (PageTier)
  int64_t prefix_second_tokens = 0, prefix_store_tokens = 0;
  // answers that must be of a form, and the tokens chosen for them
  int64_t bound_answers = 0, bound_tokens = 0;
  // guesses: answers' windows that had any, guesses computed, those kept; the latter two by depth
  int64_t draft_windows = 0, drafted_tokens = 0, accepted_drafts = 0;
  std::array<int64_t, DraftHistory::kDepths> drafted_at = {}, accepted_at = {};
  double draft_seconds = 0;
  int64_t fill_passes = 0, filled_tokens = 0;  // where masks are filled: passes of answers, and what they filled
  Histogram step_seconds, step_tokens, step_sequences;
  // now
  int running = 0, waiting = 0;
  int pages_used = 0, pages_free = 0, pages_cached = 0, second_pages_used = 0;
  int64_t kv_reserved_bytes = 0, kv_used_bytes = 0;  // by running sequences; their difference is waste
  double kv_waste_sum = 0;                           // of the wasted share, over steps
  double first_arrival = 0, last_event = 0;

  double kv_waste() const { return steps > 0 ? kv_waste_sum / static_cast<double>(steps) : 0; }
  double elapsed() const { return last_event - first_arrival; }
  double throughput() const {
    return elapsed() > 0 ? static_cast<double>(tokens_out) / elapsed() : 0;
  }  // tokens a second
  double goodput() const {
    return elapsed() > 0 ? static_cast<double>(on_time) / elapsed() : 0;
  }  // requests on time a second

  void add(const RequestRecord& record);
  // Adds what an engine before this one has counted; what is so now stays.
  void carry(const Metrics& before);
};

}  // namespace millrace
