// The cache of an engine in a process of its own: saved into a file that this side has opened, since that one may open
// none, and emptied.
#include "process/passed_files.h"
#include "process/remote_engine.h"

namespace millrace {

// With the lock held. 0: there is no process to ask, and `done` is left.
int64_t RemoteEngine::ask_cache(CacheDone& done) {
  if (!process_.ready) return 0;
  const int64_t ticket = next_ticket_++;
  cache_waits_[ticket] = std::move(done);
  done = nullptr;
  return ticket;
}

void RemoteEngine::save_cache(int file, CacheDone done) {
  Error why = error(Code::overloaded, "the engine is being started again, or sleeps");
  {
    std::lock_guard lock(mutex_);
    auto sent = process_.ready ? send_files(process_.files, {&file, 1}, false) : Result<void>(why);
    if (!sent.ok()) {
      why = sent.error();
    } else if (const int64_t ticket = ask_cache(done); ticket > 0) {
      append_frame(SaveCacheFrame{ticket}, out_);
    }
  }
  if (done) return done(why);
  wake();
}

void RemoteEngine::reset_cache(CacheDone done) {
  {
    std::lock_guard lock(mutex_);
    if (const int64_t ticket = ask_cache(done); ticket > 0) append_frame(ResetCacheFrame{ticket}, out_);
  }
  // Who is not there has no cache; the one that comes may read a file.
  if (done) return done(error(Code::overloaded, "the engine is being started again, or sleeps; try in a moment"));
  wake();
}

void RemoteEngine::take(const CacheFrame& frame) {
  CacheDone done;
  {
    std::lock_guard lock(mutex_);
    const auto found = cache_waits_.find(frame.ticket);
    if (found == cache_waits_.end()) return;
    done = std::move(found->second);
    cache_waits_.erase(found);
  }
  done(frame.error ? Result<CacheFileSummary>(*frame.error) : frame.summary);
}

void RemoteEngine::fail_cache_waits(const Error& why) {
  std::map<int64_t, CacheDone> waits;
  {
    std::lock_guard lock(mutex_);
    waits.swap(cache_waits_);
  }
  for (const auto& [ticket, done] : waits) done(why);
}

}  // namespace millrace
