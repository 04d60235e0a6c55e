// SharedPage: memory that an engine in a process of its own shares with the server: signs of life, who takes part in
// the step that runs, and the figures so far. It outlives the engine's process, so what that was at when it died can be
// read afterwards. One writer a field at a time; any reader.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/port.h"

namespace millrace {

static_assert(std::is_trivially_copyable_v<EngineSnapshot>, "snapshots are copied between processes");

struct SharedPage {
  static constexpr size_t kMostIds = 4096;

  // Nanoseconds of the clock that all processes share; 0: never.
  std::atomic<int64_t> awake = 0;         // when the engine was last awake between steps
  std::atomic<int64_t> step_began = 0;    // 0 again once it has ended
  std::atomic<int64_t> step_allowed = 0;  // nanoseconds that it may take
  std::atomic<int64_t> ids_count = 0;
  std::array<std::atomic<int64_t>, kMostIds> ids = {};  // requests that take part (Request::outer)

  // Two places for figures, written in turn: `shown` counts, and its last bit is the place to read.
  struct Figures {
    EngineSnapshot snapshot;
    int64_t at = 0;  // when they were noted
  };
  std::atomic<uint64_t> shown = 0;
  std::array<Figures, 2> figures;

  void show(const EngineSnapshot& snapshot);
  Figures seen();
};

int64_t shared_now();  // nanoseconds, the same for all processes of the machine

// The page and the file behind it, which another process can map.
class SharedPageFile {
 public:
  static Result<SharedPageFile> create();
  static Result<SharedPageFile> open(int file);
  SharedPageFile() = default;
  SharedPageFile(SharedPageFile&& other) noexcept { *this = std::move(other); }
  SharedPageFile& operator=(SharedPageFile&& other) noexcept;
  ~SharedPageFile();
  SharedPage& page() const { return *page_; }
  int file() const { return file_; }

 private:
  static Result<SharedPageFile> map(int file, bool fresh);
  SharedPage* page_ = nullptr;
  int file_ = -1;
};

}  // namespace millrace
