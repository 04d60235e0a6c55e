#include "server/share.h"

namespace millrace {

void Share::opened() {
  std::lock_guard lock(mutex_);
  ++metrics_.submitted;
  ++metrics_.waiting;
}

void Share::refused() {
  std::lock_guard lock(mutex_);
  ++metrics_.refused;
}

void Share::began(int64_t computed) {
  std::lock_guard lock(mutex_);
  metrics_.computed_tokens += computed;
  --metrics_.waiting;
  ++metrics_.running;
}

void Share::ended(const End& end) {
  std::lock_guard lock(mutex_);
  --(end.begun ? metrics_.running : metrics_.waiting);
  ++(end.cancelled ? metrics_.cancelled : end.failed ? metrics_.failed : metrics_.finished);
  if (end.begun) metrics_.end_to_end.add(end.seconds);
  metrics_.tokens_in += end.prompt;
  metrics_.tokens_out += end.completion;
  metrics_.cached_tokens += end.cached;
}

void Share::tokens(int64_t count, bool first, double seconds) {
  if (count <= 0) return;
  std::lock_guard lock(mutex_);
  metrics_.generated_tokens += count;
  metrics_.computed_tokens += count;
  if (first) metrics_.first_token.add(seconds);
  const int64_t between = first ? count - 1 : count;
  for (int64_t i = 0; i < between; ++i) metrics_.between_tokens.add(first ? 0 : seconds / static_cast<double>(between));
}

EngineSnapshot Share::snapshot() const {
  EngineSnapshot snapshot;
  snapshot.now = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  snapshot.last_progress = snapshot.now;
  std::lock_guard lock(mutex_);
  snapshot.metrics = metrics_;
  return snapshot;
}

}  // namespace millrace
