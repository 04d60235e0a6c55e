// What a step begins with: arrays that the host has planned; then rows of the embedding and tables of rotation, side by
// side.
#include <algorithm>

#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

// Straight from the host's memory, 2^bits threads for each array, all of it on its way at once. Nothing of it may come
// from a cache: the host has written there since the last step.
__global__ void __launch_bounds__(kThreads) bring_kernel(const __grid_constant__ Arrays arrays, int bits) {
  wait_for_previous();
  const int thread = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (thread >> bits >= arrays.count) return;
  const Arrays::One& one = arrays.all[thread >> bits];
  const int64_t mine = thread & ((1 << bits) - 1), fours = one.count / 4, last = fours * 4 + mine;
  const bool odd = last < one.count;
  const int32_t number = odd ? __ldcv(one.from + last) : 0;
  for (int64_t i = mine; i < fours; i += 1 << bits)
    reinterpret_cast<uint4*>(one.to)[i] = __ldcv(reinterpret_cast<const uint4*>(one.from) + i);
  if (odd) one.to[last] = number;
}

// How thread blocks are dealt out: 2^row for each row to embed, then `table` for each table.
struct Deal {
  int row, table;
  int rows;           // thread blocks of all rows
  int64_t row_bytes;  // of the embedding, unless it lies in panels
};

// The next kernel may start, and ask for weights, once what is read here is on its way: behind theirs it comes later.
__device__ void embed(const StartRows& start, int64_t row_bytes, int64_t row, int group, int groups) {
  const Weight& table = start.table;
  const int64_t id = int64_t{start.ids[row]} + start.offset, number = id >= 0 && id < table.rows ? id : 0;
  let_next_start();
  for (int i = group * kThreads + static_cast<int>(threadIdx.x); i < start.out.cols; i += groups * kThreads) {
    float value =
        start.scale * (table.layout == kPanels ? packed_value(table, number, i)
                                               : stored_value(table.type, table.data + number * row_bytes, i));
    if (start.add) value += read(start.out, row, i);
    write(start.out, row, i, value);
  }
}

__device__ void turn(const StartRows::Turns& turns, const int32_t* positions, int rows, int i) {
  if (i >= rows * turns.pairs) return;
  const int row = i / turns.pairs, pair = i - row * turns.pairs;
  const double angle = static_cast<double>(positions[row]) * turns.frequencies[pair];
  let_next_start();
  double sine, cosine;  // angles grow to a hundred thousand turns: float32 would lose them
  sincos(angle, &sine, &cosine);
  reinterpret_cast<float2*>(turns.table)[i] = {static_cast<float>(cosine * turns.magnitude),
                                               static_cast<float>(sine * turns.magnitude)};
}

__global__ void __launch_bounds__(kThreads)
    start_kernel(const __grid_constant__ StartRows start, const __grid_constant__ Deal deal) {
  see_previous_end();
  int group = static_cast<int>(blockIdx.x);
  if (group < deal.rows)
    return embed(start, deal.row_bytes, group >> deal.row, group & ((1 << deal.row) - 1), 1 << deal.row);
  group -= deal.rows;
  int number = 0;
  for (; group >= deal.table; group -= deal.table) ++number;
  turn(start.turns[number], start.positions, start.rows, group * kThreads + static_cast<int>(threadIdx.x));
}

}  // namespace

void bring_arrays(cudaStream_t stream, const Arrays& arrays) {
  constexpr int kLeastBits = 5, kMostBits = 14;  // of threads for an array
  int64_t longest = 0;
  for (int i = 0; i < arrays.count; ++i) longest = std::max(longest, arrays.all[i].count);
  int bits = kLeastBits;
  while (bits < kMostBits && int64_t{4} << bits < longest) ++bits;
  if (arrays.count > 0)
    launch(stream, bring_kernel, count(((int64_t{arrays.count} << bits) + kThreads - 1) / kThreads), kThreads, 0,
           arrays, bits);
}

void start_rows(cudaStream_t stream, const StartRows& start) {
  constexpr int64_t kMostOfRows = 128;  // thread blocks of rows that are cut
  Deal deal = {};
  while ((kThreads << deal.row) < start.out.cols && int64_t{start.out.rows} << (deal.row + 1) <= kMostOfRows)
    ++deal.row;
  for (int i = 0; i < start.turn_count; ++i)
    deal.table = std::max(deal.table, (start.rows * start.turns[i].pairs + kThreads - 1) / kThreads);
  deal.rows = start.out.rows << deal.row;
  if (start.table) deal.row_bytes = start.table.bytes / start.table.rows;
  const int64_t groups = deal.rows + int64_t{start.turn_count} * deal.table;
  if (groups > 0) launch(stream, start_kernel, count(groups), kThreads, 0, start, deal);
}

cudaError_t load_start() { return load_kernels(); }

}  // namespace millrace::cuda
