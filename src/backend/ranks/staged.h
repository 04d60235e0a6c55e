// What Comm does for rows that the host reads, for those of an Ops that it does not (backend/reach.h): a rank's part is
// copied into one dense row, the dense row is gathered, and the others' parts are copied to where they belong. The
// dense row is the host's, so every comm will do (threads, MPI); a comm that moves a device's memory says where it
// shall lie.
#pragma once

#include <span>
#include <vector>

#include "backend/comm.h"
#include "backend/reach.h"

namespace millrace {

// Of a comm that moves rows which lie in its room, in a device's memory.
class DeviceRoom {
 public:
  virtual ~DeviceRoom() = default;
  virtual std::byte* room(int64_t bytes) = 0;  // until it is asked for again
};

class StagedMoves {
 public:
  StagedMoves(Reach& reach, Comm& comm) : reach_(reach), comm_(comm), device_(dynamic_cast<DeviceRoom*>(&comm)) {}

  // As in comm.h.
  void gather_columns(std::span<const SharedColumns> columns) { move({columns, {}, {}}); }
  void gather_rows(Tensor rows, std::span<const int32_t> owners) { move({{}, rows, owners}); }
  void give_rows(Tensor rows, int from);

 private:
  void move(const Movement& movement);
  void move_piece(const Movement& movement, int64_t first, int64_t end);

  Reach& reach_;
  Comm& comm_;
  DeviceRoom* device_;
  std::vector<std::byte> room_;
  std::vector<int64_t> begins_;
};

}  // namespace millrace
