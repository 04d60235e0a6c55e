// Backend: a machine that keeps weights and runs Ops. Memory is taken from it under a named purpose and counted, so
// that the sum of its purposes is every byte the model holds there (contract 2). Loading happens on one thread, before
// the first step; afterwards only the engine thread touches it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/ops.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace millrace {

enum class Purpose : uint8_t { weights, kv, workspace, staging };
inline constexpr int kPurposes = 4;
std::string_view purpose_name(Purpose purpose);

// A matrix as a file has it, rows one after the other. Backends copy or pack it: a file may change while it is mapped.
struct HostMatrix {
  DType type = DType::f32;
  int64_t rows = 0, cols = 0;
  std::span<const std::byte> bytes;
  // Which input of a product each number of a row belongs to; empty: number i to input i. Backends pass it by: who
  // uploads puts it into Weight::order.
  std::span<const int32_t> order = {};
};

// A matrix for each of several experts, all of one shape and format. `part` hands out one expert's; its bytes
// last until the next is asked for.
struct HostExperts {
  int64_t experts = 0;
  DType type = DType::f32;
  int64_t rows = 0, cols = 0;
  std::function<Result<HostMatrix>(int64_t expert)> part;
};

// How a weight is used; it decides the layout it is packed in.
// table: rows are looked up (embeddings); experts: one of several that upload_experts() takes.
enum class WeightUse : uint8_t { linear, table, table_and_linear, experts };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;  // "cpu: i8mm, 2 threads"
  // What decides the bits of its results beside the weights (backend/numerics.h), in words: the instruction set or the
  // kind of device, and how inputs are rounded. Equal names mean equal bits, so not the number of threads (contract 1).
  virtual std::string numerics() const = 0;

  // What upload() will charge for such a matrix. Planning and taking agree to the byte.
  virtual int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const = 0;
  // Packs a matrix. The bias, if any, is float32 [rows] and charged as such.
  virtual Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) = 0;
  // Packs the matrices of experts one by one; charges experts * weight_bytes() of one (WeightUse::experts). The bias is
  // [experts, rows].
  virtual Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias);
  virtual Result<const float*> upload_vector(
      std::span<const float> values) = 0;  // norms, frequencies, slopes; weights purpose

  // Zeroed, 64-byte aligned, freed with the backend. Refused with the numbers if it does not fit the limit.
  virtual Result<std::byte*> allocate(Purpose purpose, int64_t bytes) = 0;
  virtual int64_t used(Purpose purpose) const = 0;
  virtual void set_limit(int64_t bytes) = 0;  // over all purposes

  // What make_ops charges on top of the planned workspace (its workers' own room). Known before loading.
  virtual int64_t fixed_workspace() const = 0;
  // The operations, over a workspace of the given size taken now (purpose workspace). The size comes from running the
  // same calls under trace (TraceOps::workspace_bytes).
  virtual Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) = 0;

  // Whether its attention reads latents (KvView::v_dim 0) and windows on a grid, and whether it has the primitives of
  // streams (Ops::scale, mix, match_rms, sparsify). Where the host reads the rows, it has what the host computes.
  virtual bool has_latents() const { return !apart(); }
  virtual bool has_streams() const { return !apart(); }
  // Whether it has the primitives of states (Ops::convolve, scan_heads, scan_channels).
  virtual bool has_states() const { return !apart(); }

  // ---- of a machine whose memory the host does not read and write
  virtual bool apart() const { return false; }
  // What allocate(staging, bytes) charges: the host's arrays may have a twin.
  virtual int64_t staging_bytes(int64_t bytes) const { return bytes; }
  // Host memory that results are fetched into (Ops::fetch), charged as staging.
  virtual Result<std::byte*> allocate_results(int64_t bytes) { return allocate(Purpose::staging, bytes); }
  // Copies where at least one side is the backend's; done when it returns.
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
};

}  // namespace millrace
