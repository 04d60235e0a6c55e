#include "backend/cuda/nccl_comm.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "backend/ranks/staged.h"

namespace millrace {
namespace {

// As the library's own header has them; the numbers never changed.
struct Id {
  char bytes[128];
};
using Handle = struct ncclComm*;
constexpr int kFloats = 7;  // the type of float32
#if __has_include(<nccl.h>)
static_assert(sizeof(Id) == sizeof(ncclUniqueId) && alignof(Id) == alignof(ncclUniqueId) && ncclFloat32 == kFloats &&
              ncclSuccess == 0 && std::is_same_v<Handle, ncclComm_t>);
#endif

struct Nccl {
  int (*get_version)(int* version) = nullptr;
  int (*get_id)(Id* id) = nullptr;
  int (*join)(Handle* comm, int ranks, Id id, int rank) = nullptr;
  int (*give)(const void* from, void* to, size_t count, int type, int root, Handle comm, cudaStream_t stream) = nullptr;
  int (*begin_group)() = nullptr;
  int (*end_group)() = nullptr;
  int (*leave)(Handle comm) = nullptr;
  const char* (*explain)(int status) = nullptr;
  int version = 0;
};

// Never closed: its threads may outlive the last comm.
Result<Nccl> find_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return error(Code::not_found,
                 "--transport nccl: {}; install NCCL 2 or say where it is (LD_LIBRARY_PATH), or use "
                 "--transport threads",
                 dlerror());
  Nccl nccl;
  bool all = true;
  auto find = [&](auto& function, const char* name) {
    void* const found = dlsym(library, name);
    all = all && found != nullptr;
    std::memcpy(&function, &found, sizeof found);
  };
  find(nccl.get_version, "ncclGetVersion");
  find(nccl.get_id, "ncclGetUniqueId");
  find(nccl.join, "ncclCommInitRank");
  find(nccl.give, "ncclBroadcast");
  find(nccl.begin_group, "ncclGroupStart");
  find(nccl.end_group, "ncclGroupEnd");
  find(nccl.leave, "ncclCommDestroy");
  find(nccl.explain, "ncclGetErrorString");
  if (!all || nccl.get_version(&nccl.version) != 0)
    return error(Code::unsupported, "--transport nccl: the libnccl.so.2 found here is none that is known; use NCCL 2");
  return nccl;
}

class NcclComm final : public Comm, public DeviceRoom {
 public:
  NcclComm(Nccl nccl, std::shared_ptr<Comm> other)
      : nccl_(nccl), other_(std::move(other)), name_(fmt::format("nccl {}", nccl.version)) {}
  ~NcclComm() override {
    if (joined_ != nullptr) nccl_.leave(joined_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (room_ != nullptr) cudaFree(room_);
  }

  int rank() const override { return other_->rank(); }
  int ranks() const override { return other_->ranks(); }
  const char* name() const override { return name_.c_str(); }
  void broadcast(std::vector<std::byte>& message) override { other_->broadcast(message); }

  std::byte* room(int64_t bytes) override {
    if (bytes > room_bytes_) {
      if (room_ != nullptr) good(cudaFree(std::exchange(room_, nullptr)), "giving room back");
      good(cudaMalloc(&room_, static_cast<size_t>(bytes)), "room for rows of all ranks");
      room_bytes_ = bytes;
    }
    return static_cast<std::byte*>(room_);
  }

 protected:
  // What lies in the room goes from GPU to GPU, as one row of all ranks' parts; what else there is, the host has.
  void move(const Movement& movement) override {
    const bool in_room = movement.columns.size() == 1 && room_ != nullptr &&
                         movement.columns[0].tensor.data == static_cast<std::byte*>(room_);
    if (!in_room)
      return movement.owners.empty() ? other_->gather_columns(movement.columns)
                                     : other_->gather_rows(movement.rows, movement.owners);
    if (joined_ == nullptr) join();
    good_nccl(nccl_.begin_group(), "gathering");
    for (int r = 0; r < ranks(); ++r) {
      const auto& begins = movement.columns[0].begins;
      const int64_t first = begins[static_cast<size_t>(r)], count = begins[static_cast<size_t>(r) + 1] - first;
      if (count == 0) continue;
      float* const part = static_cast<float*>(room_) + first;
      good_nccl(nccl_.give(part, part, static_cast<size_t>(count), kFloats, r, joined_, stream_), "gathering");
    }
    good_nccl(nccl_.end_group(), "gathering");
    good(cudaStreamSynchronize(stream_), "gathering");
  }

 private:
  // On the thread of the rank, which has chosen its GPU: all must come.
  void join() {
    Id id = {};
    if (rank() == 0) good_nccl(nccl_.get_id(&id), "beginning");
    std::vector<std::byte> message(sizeof id);
    std::memcpy(message.data(), &id, sizeof id);
    other_->broadcast(message);
    if (message.size() != sizeof id) fail("beginning", "rank 0 sent no id");
    std::memcpy(&id, message.data(), sizeof id);
    good_nccl(nccl_.join(&joined_, ranks(), id, rank()), "joining the other ranks");
    good(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }

  void good(cudaError_t status, const char* what) const {
    if (status != cudaSuccess) fail(what, cudaGetErrorString(status));
  }
  void good_nccl(int status, const char* what) const {
    if (status != 0) fail(what, nccl_.explain(status));
  }
  [[noreturn]] void fail(const char* what, const char* why) const {
    std::fprintf(stderr, "rank %d of %d cannot go on, so the process ends: NCCL: %s: %s\n", rank(), ranks(), what, why);
    std::abort();
  }

  Nccl nccl_;
  std::shared_ptr<Comm> other_;
  std::string name_;
  Handle joined_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* room_ = nullptr;
  int64_t room_bytes_ = 0;
};

}  // namespace

Result<std::shared_ptr<Comm>> make_nccl_comm(std::shared_ptr<Comm> other) {
  TRY(Nccl nccl, find_nccl());
  return std::shared_ptr<Comm>(std::make_shared<NcclComm>(nccl, std::move(other)));
}

}  // namespace millrace
