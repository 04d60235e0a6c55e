// The operations of the CPU backend: cut the work into parts, hand them to the team, call the kernel table. What is
// here decides who computes what and never in which order anything is summed.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/memory.h"
#include "backend/ops.h"
#include "base/team.h"

namespace millrace::cpu {

enum Layout : uint8_t { kAsFile, kPacked };  // values of Weight::layout

// Partial results of attention when one sequence's chunks are spread over workers.
inline constexpr int64_t kPartialBytes = int64_t{4} << 20;
inline int64_t fixed_bytes(int workers) { return workers * kWorkerBytes + kPartialBytes; }

inline constexpr int64_t kWorthForking = 4096;  // values; below this one worker is done before the others have begun
inline constexpr int64_t kWorthTaking = 16384;  // values; what a worker takes at a time where there are many

KvType kv_type(const KvForm& form);

class CpuOps final : public Ops {
 public:
  // `fixed` is fixed_bytes(team.workers()) of scratch.
  CpuOps(Team& team, const Kernels& kernels, Activations activations, Arena arena, std::byte* fixed);

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override { return arena_.rows(rows, cols); }
  int64_t mark() override { return arena_.mark(); }
  void restore(int64_t mark) override { arena_.restore(mark); }

  void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) override;
  void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) override;
  void linear(const Weight& weight, Tensor in, Tensor out) override;
  void activate(Activation activation, Tensor in, Tensor out) override;
  void glu(Activation activation, Tensor gate, Tensor up, Tensor out) override;
  void add(Tensor in, float scale, Tensor out) override;
  void clamp(float limit, Tensor inout) override;
  void rope(const Rope& rope, int32_t heads, Tensor inout) override;
  void kv_store(Tensor k, Tensor v, const KvView& kv) override;
  void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) override;
  void gather(const int32_t* rows, Tensor in, Tensor out) override;
  void finish_logits(float scale, float softcap, Tensor inout) override;
  void route(const Router& router, Tensor logits, const Routing& routing) override;
  void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) override;
  void spread(const Routing& routing, Tensor in, Tensor out) override;
  void combine(const Routing& routing, bool weighted, Tensor in, Tensor out) override;
  void add_gated(Tensor in, Tensor gate, Tensor out) override;
  void scale_by_position(const PositionScale& scale, Tensor inout) override;
  void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) override;
  void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) override;
  void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) override;
  void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                          const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;

  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override;
  void scale(const float* factors, int64_t count, Tensor inout) override;
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override;
  void match_rms(Tensor like, Tensor inout) override;
  void sparsify(float deviations, Tensor inout) override;
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override;
  void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) override;

  void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) override;
  void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) override;
  void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                  Tensor v_out) override;
  void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) override;

 private:
  struct Product {
    const Weight* weight;
    Tensor out;
  };
  struct RopeTable {
    Rope rope;
    float* cos;  // [rows, dims / 2], times magnitude
    float* sin;
  };

  struct Tile {  // some rows of one sequence, and the heads of some kv heads; queries are numbered by kv head, row,
                 // head
    const Attention* attention;
    const KvView* kv;
    Tensor q, out;
    int32_t sequence;
    int32_t parts;              // of the queries of a kv head, each counted as a kv head from here on
    int32_t first_head, heads;  // kv heads
    int32_t first_row, rows;
    int32_t first_query;  // queries of the tiles before
    int64_t begin, end;   // positions that any of its rows sees

    int32_t v_dim() const { return attention->value_width(*kv); }
    int32_t kv_head(int32_t index) const { return (first_head + index) / parts; }  // of the cache
    int32_t group() const { return attention->heads / (kv->kv_heads * parts); }
    int32_t head_queries() const { return rows * group(); }  // of one kv head
    int32_t queries() const { return heads * head_queries(); }
    int32_t row(int32_t query) const { return first_row + query / group() % rows; }
    int32_t head(int32_t query) const { return (first_head + query / head_queries()) * group() + query % group(); }
    int64_t first_chunk() const { return begin / kAttendChunk; }
    int64_t end_chunk() const { return (end + kAttendChunk - 1) / kAttendChunk; }
    int64_t first_run() const { return first_chunk() / kAttendRun; }
    int64_t end_run() const { return (end_chunk() + kAttendRun - 1) / kAttendRun; }
    int64_t first_chunk(int64_t run) const { return std::max(first_chunk(), run * kAttendRun); }
    int64_t end_chunk(int64_t run) const { return std::min(end_chunk(), (run + 1) * kAttendRun); }
  };

  const LinearKernel& kernel(const Weight& weight) const;
  std::byte* worker_scratch(int worker) const { return fixed_ + worker * kWorkerBytes; }
  // Calls body(row) for all rows, on the team if `values` of work per row make it worth it.
  template <class F>
  void each_row(int64_t rows, int64_t values, F&& body) {
    int64_t workers = team_.workers();
    if (workers == 1 || rows == 1 || rows * values < kWorthForking) {
      for (int64_t r = 0; r < rows; ++r) body(r);
      return;
    }
    int64_t step = std::max<int64_t>(1, std::min(rows / (workers * 4), kWorthTaking / std::max<int64_t>(1, values)));
    team_.each((rows + step - 1) / step, [&](int64_t task, int) {
      for (int64_t r = task * step; r < std::min(rows, (task + 1) * step); ++r) body(r);
    });
  }
  // Calls body(whose, task, worker) for tasks [0, tasks) of every worker: a worker goes through its own in ascending
  // order, so that what it reads lies one after another, and then takes from the others what they have not begun.
  template <class F>
  void each_in_turn(int64_t tasks, F&& body) {
    for (int w = 0; w < team_.workers(); ++w) turns_[static_cast<size_t>(w)].next.store(0, std::memory_order_relaxed);
    team_.run([&](int worker, int workers) {
      for (int i = 0, whose = worker; i < workers; ++i, whose = whose + 1 < workers ? whose + 1 : 0) {
        std::atomic<int64_t>& next = turns_[static_cast<size_t>(whose)].next;
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) body(whose, task, worker);
      }
    });
  }
  // The products of one input, all kernels of which read it in the same form and order. `finish(rows, outputs)` follows
  // each part.
  template <class F>
  void multiply(std::span<const Product> products, Tensor in, F&& finish);
  const std::byte* prepare(const LinearKernel& kernel, Tensor in);
  Tensor in_order(const int32_t* order, Tensor in);  // as Weight::order says, in room of its own

  // Products of experts, in experts.cpp.
  struct Segment {  // an expert that has rows
    int32_t expert;
    int64_t first;  // of its pairs
    Tensor in;      // its rows
    std::byte* prepared;
  };
  struct ExpertTask {
    int32_t segment;
    int64_t begin, outputs, first_row, rows;  // outputs and rows may reach past the end
  };
  struct PairTile {
    int32_t segment, row;
  };
  void bring_together(const LinearKernel& kernel, const Routing& routing, int32_t experts, ExpertInput input,
                      Tensor in);
  void list_tasks(const LinearKernel& kernel, const Weight& weight, int64_t pairs);
  template <class F>
  void multiply_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out,
                        F&& finish);
  void gate_row(Activation activation, const GluLimit& limit, const float* gate, const float* up, float* out,
                int64_t count) const;

  void norm_row(const Norm& norm, int32_t parts, const float* in, float* out, int64_t cols) const;
  const RopeTable& rope_table(const Rope& rope, int64_t rows);
  void rope_row(const RopeTable& table, int32_t heads, Tensor inout, int64_t row) const;
  void scale_row(const PositionScale& scale, Tensor inout, int64_t row) const;
  void store_row(Tensor k, Tensor v, const KvView& kv, int64_t row) const;
  // Calls body(sequence, first column, columns, piece) for columns of every sequence's state, none in two pieces.
  template <class F>
  void each_column(const StateView& state, int64_t columns, int64_t values, F&& body);
  // Attention over the cache, in attend.cpp.
  int32_t most_queries(const KvView& kv, int32_t v_dim) const;
  void add_tiles(const Attention& attention, Tensor q, const KvView& kv, Tensor out, int32_t heads, int32_t most);
  void attend_head(const Tile& tile, int32_t index, int64_t chunk, Ahead& ahead, float* partials, float* into,
                   std::byte* scratch, bool again) const;
  void attend_chunk(const Tile& tile, int64_t chunk, const Tile* next_tile, int64_t next_chunk, float* partials,
                    float* into, std::byte* scratch, bool again) const;
  void attend_run(const Tile& tile, int64_t run, const Tile* next_tile, int64_t next_chunk, float* partials,
                  std::byte* scratch) const;
  void attend_tile(const Tile& tile, std::byte* scratch) const;
  bool attend_few(const Tile& tile, int64_t first, int64_t end, const Tile* next_tile, int64_t next_chunk,
                  float* partials, std::byte* scratch) const;
  int64_t seen_whole(const Tile& tile, int64_t first, int64_t end) const;
  void attend_whole(std::span<const Tile> tiles);
  void attend_split(std::span<const Tile> tiles, bool runs);
  void look_ahead(const Tile& tile, int32_t index, int64_t chunk, Ahead& ahead) const;
  void attend_runs(const Tile& tile, float* partials, float* running, std::byte* scratch) const;
  void merge_query(const float* from, float* running, int64_t v_dim) const;
  void merge(const Tile& tile, int32_t first, int32_t end, const float* partials, float* running) const;
  void start_query(const Tile& tile, int32_t query, float* running) const;
  void start_queries(const Tile& tile, float* running, std::byte* scratch) const;
  void attend_kept(const Tile& tile, int32_t index, float* running, std::byte* scratch) const;
  void point_at(const Tile& tile, int32_t kv_head, int64_t first, int32_t unseen, int32_t positions,
                const std::byte** keys, const std::byte** values) const;
  void finish_query(const Tile& tile, int32_t query, const float* running) const;

  struct alignas(64) Turn {  // a line of its own: workers write them
    std::atomic<int64_t> next{0};
  };

  Team& team_;
  std::vector<Turn> turns_;  // of each worker, the next of its tasks
  const Kernels& kernels_;
  Activations activations_;
  Arena arena_;
  std::byte* fixed_;
  const Step* step_ = nullptr;
  std::vector<RopeTable> rope_tables_;  // of this step
  std::vector<Tile> tiles_;             // of the attention at hand; keeps its room
  std::vector<Segment> segments_;       // of the product of experts at hand, as its tasks are
  std::vector<ExpertTask> expert_tasks_;
  std::vector<PairTile> tiles_of_pairs_;
  std::vector<int32_t> delta_rows_;  // of the deltas at hand, by adapter
};

}  // namespace millrace::cpu
