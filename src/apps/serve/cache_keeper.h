// CacheKeeper: what `serve` does for --cache-file: saves the prefix cache now and then and at the end, and keeps the
// secret without which nothing saved could be found again. A save appears whole or not at all. Main thread; a thread of
// its own saves.
#pragma once

#include <array>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "apps/cli/cli.h"
#include "server/service.h"

namespace millrace::apps {

// --cache-file, --cache-save, --cache-restore.
std::vector<Flag> cache_file_flags();
// 32 bytes beside the file (FILE.key), for its owner only; made if there are none.
Result<std::array<uint8_t, 32>> cache_secret(const std::filesystem::path& cache_file);

class CacheKeeper {
 public:
  CacheKeeper(const Arguments& arguments, Service& service);
  ~CacheKeeper();
  // Saves once more, if anything was computed since. When nobody is served any more.
  void finish();

 private:
  void loop();
  void save(double patience);  // seconds
  void stop();

  Service& service_;
  const Terminal& terminal_;
  const std::filesystem::path path_;  // empty: nothing is kept
  const double seconds_;
  int64_t saved_steps_ = -1;  // of the engine, when it was last saved
  bool failed_ = false;       // so that a disk that is full is told once
  std::mutex mutex_;          // guards the one below
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace millrace::apps
