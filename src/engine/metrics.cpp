#include "engine/metrics.h"

#include <algorithm>
#include <cmath>

namespace millrace {

int Histogram::bucket_of(double value) {
  if (!(value > kSmallest)) return 0;
  return std::min(kBuckets - 1, static_cast<int>(std::ceil(std::log2(value / kSmallest) * kPerDoubling)));
}

double Histogram::upper_bound(int bucket) { return kSmallest * std::exp2(static_cast<double>(bucket) / kPerDoubling); }

void Histogram::add(double value) {
  ++buckets_[static_cast<size_t>(bucket_of(value))];
  ++count_;
  sum_ += value;
}

void Histogram::merge(const Histogram& other) {
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) buckets_[bucket] += other.buckets_[bucket];
  count_ += other.count_;
  sum_ += other.sum_;
}

double Histogram::quantile(double fraction) const {
  if (count_ == 0) return 0;
  auto rank = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(count_)));
  rank = std::clamp<int64_t>(rank, 1, count_);
  int bucket = 0;
  for (int64_t seen = buckets_[0]; seen < rank; seen += buckets_[static_cast<size_t>(bucket)]) ++bucket;
  // The middle of the bucket, on the scale the buckets have.
  return bucket == 0 ? kSmallest : upper_bound(bucket) * std::exp2(-0.5 / kPerDoubling);
}

int64_t Histogram::at_most(double value) const {
  int64_t sum = 0;
  for (int bucket = 0; bucket <= bucket_of(value); ++bucket) sum += buckets_[static_cast<size_t>(bucket)];
  return sum;
}

void Metrics::add(const RequestRecord& record) {
  (record.finish == Finish::cancelled ? cancelled : record.finish == Finish::failed ? failed : finished) += 1;
  stopped += record.finish == Finish::stop;
  at_length += record.finish == Finish::length;
  on_time += record.on_time;
  tokens_in += record.tokens_in;
  tokens_out += record.tokens_out;
  cached_tokens += record.cached;
  preemptions += record.preemptions;
  if (record.tokens_out == 0 || record.again) return;
  queue.add(record.queue);
  first_token.add(record.first_token);
  if (record.next_token > 0) next_token.add(record.next_token);
  end_to_end.add(record.end_to_end);
}

void Metrics::carry(const Metrics& before) {
  for (auto counter : {&Metrics::submitted,
                       &Metrics::refused,
                       &Metrics::finished,
                       &Metrics::cancelled,
                       &Metrics::failed,
                       &Metrics::on_time,
                       &Metrics::stopped,
                       &Metrics::at_length,
                       &Metrics::tokens_in,
                       &Metrics::tokens_out,
                       &Metrics::cached_tokens,
                       &Metrics::preemptions,
                       &Metrics::restarts,
                       &Metrics::steps,
                       &Metrics::computed_tokens,
                       &Metrics::shortlist_rows,
                       &Metrics::whole_rows,
                       &Metrics::unsettled_rows,
                       &Metrics::prefix_lookups,
                       &Metrics::prefix_hits,
                       &Metrics::prefix_asked_tokens,
                       &Metrics::prefix_second_tokens,
                       &Metrics::prefix_store_tokens,
                       &Metrics::prompt_tokens,
                       &Metrics::generated_tokens,
                       &Metrics::draft_windows,
                       &Metrics::prefix_found_tokens,
                       &Metrics::drafted_tokens,
                       &Metrics::accepted_drafts,
                       &Metrics::bound_answers,
                       &Metrics::bound_tokens,
                       &Metrics::fill_passes,
                       &Metrics::filled_tokens})
    this->*counter += before.*counter;
  for (auto histogram : {&Metrics::queue, &Metrics::first_token, &Metrics::between_tokens, &Metrics::next_token,
                         &Metrics::end_to_end, &Metrics::step_seconds, &Metrics::step_tokens, &Metrics::step_sequences})
    (this->*histogram).merge(before.*histogram);
  for (size_t depth = 0; depth < drafted_at.size(); ++depth) {
    drafted_at[depth] += before.drafted_at[depth];
    accepted_at[depth] += before.accepted_at[depth];
  }
  draft_seconds += before.draft_seconds;
  kv_waste_sum += before.kv_waste_sum;
  if (before.submitted > 0) first_arrival = before.first_arrival;
}

}  // namespace millrace
