// What the kernels of the CUDA backend are called with. Every function only queues work on the stream; errors of a
// launch are kept by the stream's owner (device.h). The host side includes this without the CUDA compiler.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/ops.h"
#include "backend/shortlist.h"

namespace millrace::cuda {

// How the numbers of an activation lie in its room. The room is always that of float32 rows; the halves fill its
// beginning.
enum class Form : uint8_t { f32, bf16, f16 };

struct View {
  void* data = nullptr;
  int64_t stride = 0;  // bytes from row to row
  int32_t rows = 0, cols = 0;
  Form form = Form::f32;
};

// The step's arrays on the device.
struct DeviceStep {
  int32_t rows = 0, sequences = 0;
  const int32_t* positions = nullptr;
  const int32_t* visible = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* first_row = nullptr;
  const int32_t* pages = nullptr;  // of the cache group in question
  int32_t page_stride = 0;         // entries a sequence has
  int32_t linked = 0;              // positions before a row's own that come with the step too
};

// Each has a file's kernels ready (load.cuh). many_rows.cu, few_rows.cu, spread_rows.cu, fp8_rows.cu, attend_long.cu,
// attend_short.cu and attend_cluster.cu are Hopper's.
cudaError_t load_start();
cudaError_t load_rows();
cudaError_t load_turn();
cudaError_t load_shortlist();
cudaError_t load_pack();
cudaError_t load_any_rows();
cudaError_t load_routing();
cudaError_t load_experts();
cudaError_t load_streams();
cudaError_t load_delta();
cudaError_t load_states();
cudaError_t load_attend_any();
cudaError_t load_attend_coded();
cudaError_t load_attend_small();
cudaError_t load_attend_latent();
cudaError_t load_few_rows();
cudaError_t load_many_rows();
cudaError_t load_spread_rows();
cudaError_t load_attend_long();
cudaError_t load_attend_short();
cudaError_t load_attend_cluster();
cudaError_t load_fp8_rows();
cudaError_t load_fp8_code();

// ---- start.cu
// Numbers of the host, pinned, and their places on the device. Both lie on multiples of sixteen bytes.
struct Arrays {
  static constexpr int32_t kMost = 12;
  struct One {
    const int32_t* from = nullptr;
    int32_t* to = nullptr;
    int64_t count = 0;
  };
  One all[kMost];
  int32_t count = 0;
};
// In a kernel that reads the host's memory: what follows it starts sooner than behind copies.
void bring_arrays(cudaStream_t stream, const Arrays& arrays);

// What rows begin with. Either part may be missing.
struct StartRows {
  static constexpr int32_t kMostTurns = 4;
  // out[r] = table[ids[r] + offset] * scale, or added to out[r].
  Weight table;
  const int32_t* ids = nullptr;
  int32_t offset = 0;
  float scale = 1;
  bool add = false;
  View out;
  // cos and sin of every row's angles, times the magnitude: [rows][pairs][2].
  struct Turns {
    const float* frequencies = nullptr;
    float magnitude = 1;
    int32_t pairs = 0;
    float* table = nullptr;
  };
  Turns turns[kMostTurns];
  int32_t turn_count = 0, rows = 0;
  const int32_t* positions = nullptr;
};
void start_rows(cudaStream_t stream, const StartRows& start);

// ---- rows.cu
inline constexpr int32_t kWidestNorm = 32768;
void norm(cudaStream_t stream, const Norm& norm, int32_t parts, View in, View out);
// stream_rows += scale * in; out = norm of it.
void add_norm(cudaStream_t stream, View in, float scale, View stream_rows, const Norm& norm, View out);
void activate(cudaStream_t stream, Activation activation, View in, View out);
void glu(cudaStream_t stream, Activation activation, View gate, View up, View out);
void add(cudaStream_t stream, View in, float scale, View out);
void clamp(cudaStream_t stream, float limit, View inout);
void gather(cudaStream_t stream, const int32_t* rows, View in, View out);
void finish_logits(cudaStream_t stream, float scale, float softcap, View inout);
void convert(cudaStream_t stream, View in, View out);                              // between forms
void order_columns(cudaStream_t stream, const int32_t* order, View in, View out);  // out[r][i] = in[r][order[i]]
void add_bias(cudaStream_t stream, const float* bias, View inout);
// The place of each row's largest number, the lowest of equals; -1 if one is a NaN.
inline constexpr int32_t kArgmaxPart = 4096;
struct ArgmaxRoom {
  uint64_t* keys = nullptr;      // one for every kArgmaxPart numbers of each row, or part of that
  unsigned* finished = nullptr;  // [rows], zero before and after
};
void argmax(cudaStream_t stream, View logits, const ArgmaxRoom& room, int32_t* best, int32_t* host_best);

// ---- shortlist.cu
// Where shortlisting (backend/shortlist.h) reads and writes. found and tokens are the host's, known to the device.
struct ShortlistRoom {
  const ShortlistAsk* asks = nullptr;  // [rows]
  const int32_t* best = nullptr;       // [rows], of argmax
  void* parts = nullptr;               // shortlist_parts_bytes()
  ShortlistToken* listed = nullptr;    // [rows][kShortlistListed]
  Shortlisted* found = nullptr;        // [rows]
  ShortlistToken* tokens = nullptr;    // [rows][kShortlistTokens]
};
int64_t shortlist_parts_bytes(int32_t rows);
// At most kShortlistCols numbers a row.
void shortlist_rows(cudaStream_t stream, View logits, const ShortlistRoom& room);

// ---- turn.cu
// table: of start_rows(), as everywhere.
void rope(cudaStream_t stream, const Rope& rope, const float* table, int32_t heads, View inout);
void kv_store(cudaStream_t stream, const DeviceStep& step, View k, View v, const KvView& kv);
// rope of q and k, then kv_store; in one pass where they lie so that it can be done.
void finish_qkv(cudaStream_t stream, const DeviceStep& step, const Rope& rope, const float* table, int32_t heads,
                View q, View k, View v, const KvView& kv);

// ---- few_rows.cu, many_rows.cu
// Rows of FP8 or INT8 numbers, each with its factor behind it: `cols` bytes, then a float32.
struct CodedRows {
  std::byte* data = nullptr;
  int64_t stride = 0;
  int32_t rows = 0, cols = 0;
  bool integers = false;  // INT8
};

// Up to three products of one input with weights in panels (packed.h).
struct Products {
  enum class Role : uint8_t { result, query, key, value };
  struct Product {
    const std::byte* weights = nullptr;
    const float* bias = nullptr;
    float* out = nullptr;
    int64_t out_stride = 0;  // values
    int32_t rows = 0;        // outputs
    Role role = Role::result;
  };
  Product parts[3];
  int32_t count = 0;
  DType type = DType::bf16;        // of the weights
  bool weights_just_made = false;  // by the kernel in front: they cannot be read before it has ended
  int32_t cols = 0;                // inputs
  int32_t segments = 1;            // of the inputs (packed.h)
  View in;
  // The first two parts are gate and up of a unit; what comes out is act(gate) * up, in `out` of the first part.
  bool gated = false;
  Activation activation = Activation::silu;
  Form out_form = Form::f32;  // of gated results
  // Set: the first part is also added to this, times scale.
  float* residual = nullptr;
  int64_t residual_stride = 0;
  float residual_scale = 1;
  // Set: the input is the norm of `in`, also written to `normed`. few_rows only.
  const Norm* norm = nullptr;
  View normed;
  CodedRows coded;  // the input of fp8_rows and int8_rows, instead of `in`
  // Set: parts are queries, keys and values, to be finished as finish_qkv does. Queries come out as numbers of the
  // cache's type. Only where many_rows_finish() says so.
  struct Heads {
    DeviceStep step;
    KvView kv;
    const float* table = nullptr;  // of rotation
    bool neighbours = false;
  } heads;
};
inline constexpr int32_t kFewRows = 8;
bool few_rows_fit(int32_t rows, int32_t cols, bool norm);  // with a norm to compute first
void few_rows(cudaStream_t stream, const Products& work);
// Any number of rows; weights and `in` are bfloat16, or both float16.
cudaError_t many_rows(cudaStream_t stream, const Products& work);
bool many_rows_finish(int32_t rows, const Rope& rope, const KvView& kv);  // whether `heads` may be set

// ---- fp8_code.cu, fp8_rows.cu: weights of kCodes (packed.h), any number of rows.
void code_rows(cudaStream_t stream, View in, const CodedRows& to);
// The norm of `in`, as bfloat16 to `normed` and coded. False: it is too wide, and nothing has been queued.
bool code_normed(cudaStream_t stream, const Norm& norm, View in, View normed, const CodedRows& to);
cudaError_t fp8_rows(cudaStream_t stream, const Products& work);
cudaError_t int8_rows(cudaStream_t stream, const Products& work);
// Rows as a file has them, from row `first` of `all` on.
void pack_fp8(cudaStream_t stream, const std::byte* from, int64_t first, int64_t rows, int64_t all, int64_t cols,
              std::byte* to);

// ---- any_rows.cu: any number of rows, one warp for each result; float32 weights and odd shapes.
void any_rows(cudaStream_t stream, const Weight& weight, View in, View out);

// ---- routing.cu: as ops.h says.
void route(cudaStream_t stream, const Router& router, View logits, const Routing& routing);
void glu_limited(cudaStream_t stream, const GluLimit& limit, View gate, View up, View out);
void spread(cudaStream_t stream, const Routing& routing, View in, View out);
void combine(cudaStream_t stream, const Routing& routing, bool weighted, View in, View out);
void add_gated(cudaStream_t stream, View in, View gate, View out);

// ---- streams.cu: as ops.h says.
void copy_heads(cudaStream_t stream, int32_t heads, int32_t width, View in, View out);
void scale(cudaStream_t stream, const float* factors, bool one, View inout);  // one: the same for all columns
void mix(cudaStream_t stream, View factors, float more, int32_t ins, int32_t outs, View in, View out);
void scale_by_position(cudaStream_t stream, const PositionScale& scale, const int32_t* positions, View inout);
void match_rms(cudaStream_t stream, View like, View inout);
void sparsify(cudaStream_t stream, float deviations, View inout);
void pool(cudaStream_t stream, Pooling pooling, const int32_t* first_row, View in, View out);

// ---- delta.cu: as delta.h says.
struct DeltaRows {
  const Delta* changes = nullptr;
  const int32_t* adapters = nullptr;
  const float* strengths = nullptr;
  const int32_t* ids = nullptr;  // of a table
  float* low = nullptr;          // [rows, rank]
  int32_t rank = 0;
};
void linear_delta(cudaStream_t stream, const DeltaRows& deltas, View in, View inout);

// ---- states.cu: as states.h says.
inline constexpr int32_t kMostPieces = 16;  // of a state
struct DeviceState {
  char* base = nullptr;
  int64_t page_stride = 0;
  int64_t offsets[2] = {0, 0};
  int32_t cuts = 1;
  const int32_t* pages[kMostPieces] = {};  // of each piece's group
  int32_t strides[kMostPieces] = {};
};
struct DeviceConvolution {
  int32_t taps = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  bool silu = false;
  const float* shares[3] = {};
};
struct DeviceChannels {
  ChannelScanKind kind = ChannelScanKind::selective;
  int32_t states = 0;
  const float* constants[3] = {};
};
struct HeadScanViews {
  View q, k, v, steps, beta;
};
struct ChannelScanViews {
  View a, b, c, d;
};
void convolve(cudaStream_t stream, const DeviceStep& step, const DeviceConvolution& convolution,
              const DeviceState& state, View in, View out);
void scan_heads(cudaStream_t stream, const DeviceStep& step, const HeadScan& scan, const DeviceState& state,
                const HeadScanViews& in, View out);
void scan_channels(cudaStream_t stream, const DeviceStep& step, const DeviceChannels& scan, const DeviceState& state,
                   const ChannelScanViews& in, View out);

// ---- experts.cu: products of pairs with their experts' weights, or of all rows with every head's.
struct ExpertProducts {
  const std::byte* weights = nullptr;  // of expert 0
  int64_t stride = 0;                  // bytes from expert to expert
  const float* bias = nullptr;         // [experts][outputs], or null
  int32_t outputs = 0, cols = 0, chunks = 0;
  int32_t experts = 0;
  int64_t pairs = 0;
  const int32_t* first = nullptr;  // [experts + 1] pairs
  const int32_t* row = nullptr;    // [pairs] of the input; null: the pair's own
  View in;
  float* out = nullptr;    // [pairs][out_stride]
  int64_t out_stride = 0;  // values
  // Set: `weights` are gates, and these what goes through them; what comes out is act(gate) * up, or as the limit says,
  // in out_form, rows out_stride floats apart.
  const std::byte* up = nullptr;
  const float* up_bias = nullptr;
  Activation activation = Activation::silu;
  GluLimit limit;
  Form out_form = Form::f32;
  // Set: experts are heads. Each has all rows of `in` and `out`, from so many values further on than the head before.
  int32_t head_rows = 0, in_apart = 0, out_apart = 0;
};
// Weights in panels; `in` is bfloat16, or float16 as the weights.
void expert_products(cudaStream_t stream, const ExpertProducts& work, DType type);
// Weights as in the file, inputs in any form; slow.
void any_expert_products(cudaStream_t stream, const ExpertProducts& work, DType type);

// ---- attend_any.cu: any width up to kWidestValue and any cache; one warp for each row's head.
inline constexpr int32_t kWidestValue = 1024;
void attend_any(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                View out);

// ---- attend_coded.cu: keys and values of fewer bits (backend/kv_form.h), any width.
void store_coded(cudaStream_t stream, const DeviceStep& step, View k, View v, const KvView& kv);
// Rotation of q, and of k before it is rounded and stored, and v.
void finish_coded(cudaStream_t stream, const DeviceStep& step, const Rope& rope, const float* table, int32_t heads,
                  View q, View k, View v, const KvView& kv);
// Queries as keys of four bits are turned (kv_turn).
void turn_queries(cudaStream_t stream, int32_t heads, View inout);
void attend_coded(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                  View out);

// ---- attend_latent.cu: one key for all heads, 576 or 288 wide, whose first 512 or 256 numbers are the value.
bool attend_latent_fits(const Attention& attention, const KvView& kv);
void attend_latent(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out);

// ---- attend.cu: heads of 64 and 128 in a 16-bit cache.
bool attend_fits(const Attention& attention, const KvView& kv);
bool attend_fits_but_form(const Attention& attention, const KvView& kv);  // whatever the cache keeps
// Sequences of one row have their key range split over the machine; others go tile by tile.
struct AttendPlan {
  bool shorts = false;                  // sequences of one row are split; else they go with the long ones
  const int32_t* first_item = nullptr;  // [sequences + 1] chunks of split sequences before each one
  int64_t longest = 0;                  // chunks of the longest split sequence, at most
  int64_t long_queries = 0;             // sequences that go tile by tile
  int64_t long_rows = 0;                // their rows
  float* partials = nullptr;            // attend_partial_floats() of room
  unsigned* finished = nullptr;         // [sequences][kv heads], zero before and after
  // What each team begins with (attend_stretch.cuh), kStretchBytes of room. The first attention of a step finds it out;
  // those after it that are alike have it there.
  std::byte* stretches = nullptr;
  bool stretches_there = false;
  // Set: the rows' queries and keys are not turned yet and their keys and values not in the cache; attention sees to
  // both. Only if all sequences are split and each row sees itself last.
  struct Fresh {
    const float* table = nullptr;  // of rotation
    int32_t pairs = 0;
    bool neighbours = false;
    View k, v;
  } fresh;
};
inline constexpr int64_t kBriefChunks = 32;  // of the longest sequence, in steps that are recorded apart from others
inline constexpr int64_t kStretchBytes = int64_t{128} << 10;
bool attend_turns(const Rope& rope);  // `fresh` may be used
int32_t attend_chunks(int32_t visible);
int64_t attend_partial_floats(int64_t chunks, int32_t heads, int32_t dim);
cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan& plan);

// ---- attend_small.cu: heads of 64 and 128 in a cache of 8 or 4 bits; plan as for attend(), but never fresh.
bool attend_small_fits(const Attention& attention, const KvView& kv);
void attend_small(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                  View out, const AttendPlan& plan);

// ---- pack.cu
// Rows as a file has them (16-bit or quantised) into panels of panel_type().
void pack(cudaStream_t stream, DType type, const std::byte* from, int64_t rows, int64_t cols, std::byte* to);
// Quantised panels into panels of bfloat16.
void widen(cudaStream_t stream, DType type, const std::byte* from, int64_t panels, int64_t cols, std::byte* to);

// ---- peaks.cu: seconds (median of a few) that reading so many bytes takes, or a number of matrix products.
double seconds_to_read(const std::byte* memory, int64_t bytes, int processors);
struct Multiplying {
  double seconds, operations;
};
Multiplying seconds_to_multiply(float* memory, int processors);

}  // namespace millrace::cuda
