#include "backend/mpi/mpi_comm.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/relax.h"

namespace millrace {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of all ranks together, moved at a time
constexpr int kTag = 7, kSpins = 20000;

class MpiComm final : public Comm {
 public:
  MpiComm(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    counts_.resize(static_cast<size_t>(ranks));
    places_.resize(static_cast<size_t>(ranks));
  }
  ~MpiComm() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  const char* name() const override { return "mpi"; }

  // Between requests nobody should wait busily, as MPI's own calls do.
  void broadcast(std::vector<std::byte>& message) override {
    if (rank_ == 0) {
      for (int r = 1; r < ranks_; ++r)
        MPI_Send(message.data(), static_cast<int>(message.size()), MPI_BYTE, r, kTag, MPI_COMM_WORLD);
      return;
    }
    MPI_Status status;
    int there = 0, bytes = 0;
    for (int64_t tries = 0;; ++tries) {
      MPI_Iprobe(0, kTag, MPI_COMM_WORLD, &there, &status);
      if (there != 0) break;
      if (tries < kSpins) {
        relax();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(tries < 2 * kSpins ? 50 : 1000));
      }
    }
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    message.resize(static_cast<size_t>(bytes));
    MPI_Recv(message.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 protected:
  void move(const Movement& movement) override {
    const int64_t rows = movement.row_count();
    for (int64_t first = 0; first < rows;) {
      int64_t end = first + 1;
      int64_t bytes = of_all(movement, first, end);
      while (end < rows) {
        const int64_t more = of_all(movement, end, end + 1);
        if (bytes + more > kPieceBytes) break;
        bytes += more, ++end;
      }
      move_rows(movement, first, end, bytes);
      first = end;
    }
  }

 private:
  int64_t of_all(const Movement& movement, int64_t first, int64_t end) const {
    int64_t bytes = 0;
    for (int r = 0; r < ranks_; ++r) bytes += movement.bytes(r, first, end);
    return bytes;
  }

  void move_rows(const Movement& movement, int64_t first, int64_t end, int64_t bytes) {
    if (static_cast<int64_t>(buffer_.size()) < bytes) buffer_.resize(static_cast<size_t>(bytes));
    int place = 0;
    for (int r = 0; r < ranks_; ++r) {
      const auto index = static_cast<size_t>(r);
      counts_[index] = static_cast<int>(movement.bytes(r, first, end));
      places_[index] = place;
      place += counts_[index];
    }
    movement.pack(rank_, first, end, buffer_.data() + places_[static_cast<size_t>(rank_)]);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer_.data(), counts_.data(), places_.data(), MPI_BYTE,
                   MPI_COMM_WORLD);
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) movement.unpack(r, first, end, buffer_.data() + places_[static_cast<size_t>(r)]);
    }
  }

  int rank_, ranks_;
  std::vector<std::byte> buffer_;
  std::vector<int> counts_, places_;
};

}  // namespace

Result<MpiJob> join_mpi() {
  int begun = 0;
  MPI_Initialized(&begun);
  if (begun != 0) return error(Code::internal, "this process has joined its MPI job already");
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // where ranks share processors, whoever waits is in the way
  int given = MPI_THREAD_SINGLE, rank = 0, ranks = 1;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS)
    return error(Code::io, "MPI cannot be started");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MpiJob job{.comm = std::make_shared<MpiComm>(rank, ranks)};
  if (given < MPI_THREAD_SERIALIZED)
    return error(Code::unsupported, "this MPI lets only its first thread call it; a build with threads is needed");
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
  MPI_Comm_size(here, &job.ranks_here);
  MPI_Comm_rank(here, &job.rank_here);
  MPI_Comm_free(&here);
  return job;
}

}  // namespace millrace
