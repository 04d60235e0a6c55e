#include "text/merge.h"

#include <algorithm>
#include <functional>

namespace millrace {

void RankQueue::prepare(uint32_t ranks) {
  const size_t words = ranks / 64 + 1;
  if (bits_.size() < words) {
    bits_.resize(words);
    middle_.resize(words / 64 + 1);
    top_.resize(words / 4096 + 1);
    bucket_of_.resize(ranks + size_t{1}, -1);
  }
}

RankQueue::Bucket& RankQueue::open(uint32_t rank) {
  if (free_.empty()) {
    free_.push_back(static_cast<int32_t>(buckets_.size()));
    buckets_.emplace_back();
  }
  const int32_t index = bucket_of_[rank] = free_.back();
  free_.pop_back();
  ++filled_;
  bits_[rank >> 6] |= uint64_t{1} << (rank & 63);
  middle_[rank >> 12] |= uint64_t{1} << (rank >> 6 & 63);
  top_[rank >> 18] |= uint64_t{1} << (rank >> 12 & 63);
  return buckets_[static_cast<size_t>(index)];
}

void RankQueue::push_late(Bucket& bucket, uint32_t place) {
  bucket.late.push_back(place);
  std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
}

uint32_t RankQueue::lowest() const {
  size_t top = 0;
  while (top_[top] == 0) ++top;
  size_t middle = top << 6 | static_cast<size_t>(std::countr_zero(top_[top]));
  size_t low = middle << 6 | static_cast<size_t>(std::countr_zero(middle_[middle]));
  return static_cast<uint32_t>(low << 6 | static_cast<size_t>(std::countr_zero(bits_[low])));
}

bool RankQueue::pop_late(Bucket& bucket, uint32_t rank, uint32_t* place) {
  const bool in_run = bucket.taken < bucket.run.size();
  if (!bucket.late.empty() && (!in_run || bucket.late.front() < bucket.run[bucket.taken])) {
    std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
    *place = bucket.late.back();
    bucket.late.pop_back();
    return true;
  }
  if (in_run) {
    *place = bucket.run[bucket.taken++];
    return true;
  }
  bucket.run.clear();
  bucket.taken = 0;
  --filled_;
  free_.push_back(bucket_of_[rank]);
  bucket_of_[rank] = -1;
  bits_[rank >> 6] &= ~(uint64_t{1} << (rank & 63));
  if (bits_[rank >> 6] == 0) middle_[rank >> 12] &= ~(uint64_t{1} << (rank >> 6 & 63));
  if (middle_[rank >> 12] == 0) top_[rank >> 18] &= ~(uint64_t{1} << (rank >> 12 & 63));
  return false;
}

size_t RankQueue::bytes() const {
  size_t total = bits_.size() * 8 + bucket_of_.size() * 4;
  for (const Bucket& bucket : buckets_) total += (bucket.run.capacity() + bucket.late.capacity()) * 4 + sizeof(Bucket);
  return total;
}

void MergeSpace::trim() {
  constexpr size_t kKeep = 8 << 20;
  if (symbols.capacity() * sizeof(MergeSymbol) + queue.bytes() > kKeep) *this = MergeSpace();
}

}  // namespace millrace
