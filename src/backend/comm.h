// Comm: ranks that run the same steps of one model, each with a part of it. It moves numbers and never adds any: every
// number is computed by one rank, in the order a single rank would compute it in, so how many ranks there are shows in
// no bit. All ranks make the same calls in the same order; of one rank one thread at a time does. A rank that is gone
// ends the process (threads) or the job (mpi).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace millrace {

// Columns of rows: a row is `parts` parts one after another, and of each part rank r has [begins[r], begins[r + 1]).
struct SharedColumns {
  Tensor tensor;
  int64_t parts = 1;
  std::span<const int64_t> begins;  // [ranks + 1]
};

// What moves in one go: columns of some tensors, or whole rows of one by who has them.
struct Movement {
  std::span<const SharedColumns> columns;
  Tensor rows;
  std::span<const int32_t> owners;  // [rows.rows]

  int64_t row_count() const;
  // Of rank's part of rows [first, end): how many bytes, written one after another, and read from there.
  int64_t bytes(int rank, int64_t first, int64_t end) const;
  void pack(int rank, int64_t first, int64_t end, std::byte* to) const;
  void unpack(int rank, int64_t first, int64_t end, const std::byte* from) const;
  // A rank's part from that rank's own tensors, which this thread can read.
  void pull(int rank, const Movement& from) const;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual const char* name() const = 0;  // "threads"

  // Each rank has its part of every tensor; afterwards each has all of them.
  void gather_columns(std::span<const SharedColumns> columns) { count_and_move({columns, {}, {}}); }
  void gather_rows(Tensor rows, std::span<const int32_t> owners) { count_and_move({{}, rows, owners}); }
  // All rows of one rank, to all.
  void give_rows(Tensor rows, int from);
  // Rank 0's message, to all. Those who wait for long sleep.
  virtual void broadcast(std::vector<std::byte>& message) = 0;
  // Whether all ranks say yes.
  bool agree(bool yes);

  int64_t sent() const { return sent_; }  // bytes of activations this rank gave to others, each counted once
  int32_t next_number() { return next_++; }

 protected:
  virtual void move(const Movement& movement) = 0;

 private:
  void count_and_move(const Movement& movement);

  int64_t sent_ = 0;
  int32_t next_ = 0;
  std::vector<int32_t> owners_;  // of give_rows
};

// Ranks that are threads of this process: numbers go from memory to memory. One for each rank.
std::vector<std::shared_ptr<Comm>> make_thread_comms(int ranks);

}  // namespace millrace
