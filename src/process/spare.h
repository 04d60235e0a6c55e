// A spare: once an engine's process has loaded its model, it leaves a copy of itself behind that does nothing but keep
// the weights. When the engine dies, the spare copies itself again, and the copy is an engine that has no file to read
// and nothing to pack. Copies share memory, huge pages included, until one of them writes; nobody writes weights, so
// they are in memory once, and a copy that goes wrong harms its own pages only.
//
// Of the two sides, the server's is `Spare`, and the engine's is leave_spare().
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "process/spawn.h"

namespace millrace {

// One thread at a time.
class Spare {
 public:
  Spare() = default;
  explicit Spare(int socket) : socket_(socket) {}  // our end; there is a spare once something is heard over it
  Spare(Spare&& other) noexcept : socket_(std::exchange(other.socket_, -1)), id_(std::exchange(other.id_, 0)) {}
  Spare& operator=(Spare&& other) noexcept;
  ~Spare() { end(); }

  // Another engine, a child of this process, which has to be one that orphans come to (adopt_orphans).
  Result<SpawnedProcess> copy(int shared);
  // Its memory is given back when this returns. The process that left it has been waited for.
  void end();

 private:
  struct Said {
    char what = 0;
    int by = 0;  // the process, as the system says
  };
  Result<Said> hear(int64_t until);
  Result<int> hear_of_copy();

  int socket_ = -1, id_ = 0;
};

// Memory that a spare has for itself, beside so many bytes that it shares with its engine: its stack and what little it
// writes, and the tables that say where the shared pages lie (eight bytes for each of 4 KiB at the most).
constexpr int64_t spare_bytes(int64_t shared) { return (int64_t{1} << 20) + shared / 512; }

// Processes whose parent is gone become children of this one, which has to wait for them.
void adopt_orphans();

// Main thread of an engine's process, which must have no other threads; if it has, no spare is left. Returns there, and
// again in every copy, where the engine's files are those of a new engine.
void leave_spare();

}  // namespace millrace
