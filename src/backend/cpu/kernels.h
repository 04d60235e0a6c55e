// The kernel table of the CPU backend. A row of the table is one instruction set: a function that takes the row below
// it and overrides the entries it does better (scalar -> neon -> i8mm, scalar -> avx2 -> avx512 -> amx). Each row lives
// in a folder of its own (cpu/scalar, cpu/arm, cpu/x86) compiled with that folder's flags (backend/CMakeLists.txt), so
// nothing outside a folder may call into it except through this table, and dispatch.cpp names the rows. To add one:
// write the folder, declare its function in dispatch.cpp with the test for the machine, give the folder its flags.
// Tests run every row the machine has.
//
// Rules for every entry, whatever its row (contract 1):
// - a result depends on its own row and on weight shapes; the order of every sum is fixed by the entry, the format and
// the
//   number of inputs. How many rows or outputs are asked for at once must not show in the bits.
// - workers call entries at the same time for different parts; entries keep no state and allocate nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/cpu/cpu.h"
#include "backend/ops.h"
#include "tensor/dtype.h"

namespace millrace::cpu {

inline constexpr int64_t kWorkerBytes = int64_t{5} << 18;  // scratch of one worker, 64-byte aligned

// A part of a product: outputs [begin, end) of all rows of `in`.
struct LinearPart {
  const Weight* weight;
  Tensor in;                  // [rows, inputs] float32; not read by kernels that prepare their input
  const std::byte* prepared;  // what `prepare` wrote, or null
  int64_t prepared_rows;      // how many rows `prepare` was given in all (the layout may depend on it)
  int64_t first_row, rows;    // rows of `in` and `out` to compute
  Tensor out;                 // [rows, outputs] float32
  int64_t begin, end;         // begin is a multiple of outputs_tile
  std::byte* scratch;         // kWorkerBytes
};

// How weights of one format are kept and multiplied.
struct LinearKernel {
  // Parts must start at multiples of these; the last may be shorter.
  int outputs_tile = 1, rows_tile = 1;
  // Rows of a part: what stays in a core's second cache beside the weights. Weights are read once for each such part.
  int part_rows = 64;
  // Rows of few inputs may be more, up to kMostPartRows, as long as rows x inputs stay below this; 0: they may not.
  int64_t part_values = 0;
  static constexpr int64_t kMostPartRows = 192;

  // Null: weights stay as the file has them. Otherwise packs rows [begin, end), begin a multiple of outputs_tile.
  int64_t (*packed_bytes)(int64_t rows, int64_t cols) = nullptr;
  void (*pack)(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) = nullptr;
  // One row of a packed weight as float32, for tables that are multiplied by too.
  void (*unpack_row)(const Weight& weight, int64_t row, float* out) = nullptr;

  // Null: products read the float32 rows. Otherwise turns rows [begin, end) of the input, begin a multiple of
  // rows_tile, into the form products read. prepared_bytes stays within the room memory.h grants.
  int64_t (*prepared_bytes)(int64_t rows, int64_t cols) = nullptr;
  void (*prepare)(Tensor in, int64_t begin, int64_t end, std::byte* out) = nullptr;

  void (*product)(const LinearPart& part) = nullptr;
};

// Attention walks the cache in chunks of this many positions, aligned to position 0, and so many chunks are a run. A
// chunk is summed from nothing, a run from its chunks in order, the whole from its runs in order; so chunks and runs
// may be computed by different workers.
inline constexpr int32_t kAttendChunk = 128;
inline constexpr int32_t kAttendRun = 4;
inline constexpr int32_t kAttendQueries = 64;       // at once
inline constexpr int32_t kMostAttendQueries = 256;  // and of kernels that ask for more, see attend_queries
inline constexpr int32_t kHeadDim = 576;            // largest

// Pages whose tokens are a multiple of this may keep so many tokens interleaved: then a chunk's pointers at multiples
// of it are where such a block starts, and a block of which anything is seen has no null pointers before that.
inline constexpr int32_t kKvBlock = 8;

// What of the cache is read next. Pages are short runs of memory, too short for the machine to see what follows, so
// kernels ask for some lines of it now and then while they compute.
struct Ahead {
  static constexpr int32_t kPiece = 512;  // bytes
  static constexpr int32_t kMost = 2 * kAttendChunk * kHeadDim * static_cast<int32_t>(sizeof(float)) / kPiece;
  const std::byte* pieces[kMost];
  int32_t count = 0, next = 0;

  void add(const std::byte* begin, int64_t bytes) {
    for (int64_t at = 0; at < bytes && count < kMost; at += kPiece) pieces[count++] = begin + at;
  }
  // The next piece, into the second cache: the first has too few places for lines under way. A piece now and then, or
  // the machine waits.
  void fetch() {
    if (next == count) return;
    const std::byte* piece = pieces[next++];
    for (int32_t at = 0; at < kPiece; at += 64) __builtin_prefetch(piece + at, 0, 2);
  }
};

// Query vectors that share a kv head, against one chunk of the cache. Where the cache keeps keys only, it keeps them
// token after token, and values are where keys are.
struct AttendChunk {
  const KvView* kv;
  int32_t k_dim, v_dim;
  int32_t positions;               // of the chunk that any query sees the last of
  const std::byte* const* keys;    // [positions] where each key lies; null for those nobody sees (see kKvBlock)
  const std::byte* const* values;  // [positions]
  const Attention* attention;
  int64_t first;  // position of the chunk's first

  int32_t queries;
  const float* const* q;    // [queries] each [k_dim]
  const int32_t* head;      // [queries]
  const int32_t* position;  // [queries] of the row
  const int32_t* begin;     // [queries] sees [begin, end) of the chunk; empty if begin >= end
  const int32_t* end;

  // Results: the softmax of this chunk alone, as its largest score, its sum of exp(score - most), and that sum of
  // values.
  float* most;   // [queries]; -infinity if nothing was seen
  float* total;  // [queries]
  float* sums;   // [queries, sums_stride]
  int64_t sums_stride;
  std::byte* scratch;  // kWorkerBytes / 2
  bool again;          // the call before left the scratch as it is and had the same queries
  Ahead* ahead;

  // Null, or the softmax so far of each query, [queries, sums_stride] as its largest score, its total and its sums. A
  // kernel may take the chunk in itself, as `merge` would do to the bit, and say so; then the results above are not
  // there.
  float* into;
  bool* taken;
};

// The queries of one row that share a kv head, against whole chunks that follow each other, all of which the row sees:
// what decoding is made of.
struct AttendRun {
  const KvView* kv;
  const Attention* attention;
  int32_t kv_head, chunks;
  const int32_t* pages;  // from the first chunk on, which starts with a page
  // The chunk this worker probably reads next; null: none.
  const int32_t* next_pages;
  int32_t next_head;

  int32_t queries;
  const float* q;  // [queries, k_dim]
  // Result: the chunks merged in order (see `merge`); of each query its largest score, its total and its sums.
  float* partials;  // [queries, stride]
  int64_t stride;
  std::byte* scratch;  // kWorkerBytes / 2
};

// A loop of nothing but multiplying and adding, to measure what an instruction set allows (machine/ceilings).
struct Peak {
  double operations = 0;  // multiplications and additions of one round
  void (*run)(int64_t rounds) = nullptr;
};
enum PeakKind : uint8_t { kPeakInt8, kPeakBf16, kPeakF32, kPeaks };

struct KvPlace {
  const KvView* kv;
  std::byte *keys, *values;  // of one head in one page
  int64_t within;            // which token of the page
};

struct HeadColumns;  // backend/cpu/state_columns.h
struct ChannelColumns;

// Numbers as they are, the same for keys and values; or any form of backend/kv_form.h.
enum KvType : uint8_t { kKvF32, kKvF16, kKvBf16, kKvAny, kKvTypes };

struct Kernels {
  std::string_view name;

  std::array<std::array<LinearKernel, kDTypes>, 2> linear;  // [Activations][DType]
  std::array<Peak, kPeaks> peaks;                           // null where the row has no such arithmetic

  // One part of a row. Weight and bias may be null. May be in place.
  void (*norm)(const Norm& norm, const float* weight, const float* bias, const float* in, float* out, int64_t width);
  void (*activate)(Activation activation, const float* in, float* out, int64_t count);
  void (*glu)(Activation activation, const float* gate, const float* up, float* out, int64_t count);
  void (*add)(const float* in, float scale, float* out, int64_t count);
  void (*clamp)(float limit, float* inout, int64_t count);
  void (*finish_logits)(float scale, float softcap, float* inout, int64_t count);
  // The two halves of a row's delta (delta_rows.h): low = down * in; out += strength * scale * (up^T * low).
  void (*delta_down)(const Delta& delta, const float* in, int64_t ins, float* low);
  void (*delta_up)(const Delta& delta, const float* low, int64_t outs, float strength, float* out);
  // Turns the leading dims of one head; cos and sin are [dims / 2].
  void (*rotate)(const float* cos, const float* sin, int64_t dims, bool neighbours, float* head);

  // Some columns of a state through the rows of one sequence; and of one row of a convolution, whose taps are given as
  // where each one's numbers begin. A column's bits do not depend on which others are asked for with it.
  void (*convolve_row)(const Convolution& convolution, const float* const* taps, int64_t outputs, int64_t first,
                       int64_t count, float* out);
  void (*scan_heads)(const HeadColumns& columns);
  void (*scan_channels)(const ChannelColumns& columns);

  // Rounds one token's key and value of one head and puts them at place `within` of the head's part of a page. How
  // tokens lie in that part is the business of `store` and `attend` of the same entry, as long as kKvBlock tokens stay
  // together.
  std::array<std::array<void (*)(const KvPlace& place, const float* k, const float* v), kKvTypes>, 2> store;
  std::array<std::array<void (*)(const AttendChunk& chunk), kKvTypes>, 2> attend;  // [Activations][KvType]
  // True: where tokens of a page and dimensions are multiples of kKvBlock, `attend` reads pointers at multiples of it
  // only; the others are not set.
  std::array<std::array<bool, kKvTypes>, 2> attend_by_blocks = {};
  // So many queries a call at most where they are not wider than kHeadDim * kAttendQueries numbers together, which
  // gains where bringing a chunk into order costs much. 0: kAttendQueries.
  std::array<std::array<int32_t, kKvTypes>, 2> attend_queries = {};
  // Null, or does what `attend` and `merge` would do to the bit; false: not for this shape, and nothing was done.
  std::array<std::array<bool (*)(const AttendRun& run), kKvTypes>, 2> attend_few = {};
  // Fewer queries of a kv head than this do not look at `ahead`.
  int32_t ahead_queries = 1;
  DType fastest_kv = DType::f16;  // of the formats of 16 bits, with fast activations
  // Merges the next chunk of one query into the running softmax (most, total, sums).
  void (*merge)(float chunk_most, float chunk_total, const float* chunk_sums, float* most, float* total, float* sums,
                int64_t count);
  void (*divide)(const float* sums, float total, float* out, int64_t count);  // out = sums / total
};

// The rows. Each is defined in the folder of its name and only where that folder is built.
void add_scalar(Kernels& kernels);

// The table for an instruction set by name; an error that lists the names if this machine cannot run it.
Result<Kernels> choose_kernels(std::string_view isa);

}  // namespace millrace::cpu
