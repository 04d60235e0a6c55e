// The prefix cache of an engine as a whole: written to a file, read from one, forgotten. Everything that touches it is
// done between steps, on the engine thread.
#include <future>

#include "engine/engine.h"

namespace millrace {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;  // copied between two steps; a node that is larger goes whole

}  // namespace

void Engine::save_cache(int file, CacheDone done) {
  auto saver = std::make_shared<CacheSaver>(*parts_.cache, parts_.options.identity);
  writing_.start(
      file,
      [this, saver](std::vector<std::byte>& out) {
        return saver->next(parts_.executor->store(), parts_.second.get(), kPartBytes, out);
      },
      [saver, done = std::move(done)](Result<int64_t> written) {
        if (!written.ok()) return done(written.error());
        CacheFileSummary summary = saver->summary();
        summary.bytes = *written;
        done(summary);
      });
}

Result<CacheFileSummary> Engine::restore_cache(const std::filesystem::path& path) {
  std::promise<Result<CacheFileSummary>> promise;
  auto future = promise.get_future();
  post_change([&] {
    auto restored = millrace::restore_cache(*parts_.cache, parts_.options.identity, parts_.executor->store(), path);
    if (!restored.ok()) forget_unused(*parts_.cache);  // of a file that changed meanwhile nothing may stay
    promise.set_value(std::move(restored));
  });
  return future.get();
}

void Engine::reset_cache(CacheDone done) {
  post_change([this, done = std::move(done)] {
    CacheFileSummary gone;
    gone.nodes = forget_unused(*parts_.cache);
    note_progress();
    done(gone);
  });
}

}  // namespace millrace
