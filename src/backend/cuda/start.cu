// What a step begins with: arrays that the host has planned, rows of the embedding, tables of rotation. One kernel does
// any of it, each thread group one thing, so that nothing waits for something else.
#include <algorithm>

#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

// How the thread groups are dealt out: 2^array for each array, then 2^row for each row to embed, then `table` for each
// table.
struct Deal {
  int array, row, table;
  int arrays, rows;   // thread groups of all arrays, and of all rows
  int64_t row_bytes;  // of the embedding, unless it lies in panels
};

// Straight from the host's memory, all of it on its way at once.
__device__ void bring(const Arrays& arrays, int group, int groups) {
  const int64_t stride = int64_t{groups} * kThreads, thread = int64_t{group} * kThreads + threadIdx.x;
  const auto* fours = reinterpret_cast<const uint4*>(arrays.from);
  for (int64_t i = thread; i < arrays.count / 4; i += stride)
    reinterpret_cast<uint4*>(arrays.to)[i] = __ldcv(fours + i);
  for (int64_t i = arrays.count / 4 * 4 + thread; i < arrays.count; i += stride) arrays.to[i] = __ldcv(arrays.from + i);
}

__device__ void embed(const Start& start, int64_t row_bytes, int64_t row, int group, int groups) {
  __shared__ int32_t id;
  if (threadIdx.x == 0) id = __ldcv(start.ids + row);
  __syncthreads();
  const Weight& table = start.table;
  const int64_t number = int64_t{id} + start.offset;
  for (int i = group * kThreads + static_cast<int>(threadIdx.x); i < start.out.cols; i += groups * kThreads) {
    float value =
        start.scale * (table.layout == kPanels ? packed_value(table, number, i)
                                               : stored_value(table.type, table.data + number * row_bytes, i));
    if (start.add) value += read(start.out, row, i);
    write(start.out, row, i, value);
  }
}

__device__ void turn(const Start::Turns& turns, const int32_t* positions, int rows, int i) {
  if (i >= rows * turns.pairs) return;
  const int row = i / turns.pairs, pair = i - row * turns.pairs;
  double sine, cosine;  // angles grow to a hundred thousand turns: float32 would lose them
  sincos(static_cast<double>(__ldcv(positions + row)) * turns.frequencies[pair], &sine, &cosine);
  reinterpret_cast<float2*>(turns.table)[i] = {static_cast<float>(cosine * turns.magnitude),
                                               static_cast<float>(sine * turns.magnitude)};
}

// Nothing that may be the host's memory is read through a cache: it has written there since the last step.
__global__ void __launch_bounds__(kThreads)
    start_kernel(const __grid_constant__ Start start, const __grid_constant__ Deal deal) {
  wait_for_previous();
  int group = static_cast<int>(blockIdx.x);
  if (group < deal.arrays)
    return bring(start.arrays[group >> deal.array], group & ((1 << deal.array) - 1), 1 << deal.array);
  group -= deal.arrays;
  if (group < deal.rows)
    return embed(start, deal.row_bytes, group >> deal.row, group & ((1 << deal.row) - 1), 1 << deal.row);
  group -= deal.rows;
  int number = 0;
  for (; group >= deal.table; group -= deal.table) ++number;
  turn(start.turns[number], start.positions, start.rows, group * kThreads + static_cast<int>(threadIdx.x));
}

}  // namespace

void start_step(cudaStream_t stream, const Start& start) {
  constexpr int64_t kMostOfArray = 6, kMostOfRows = 128;  // 2^6 thread groups of an array; of rows that are cut
  Deal deal = {};
  int64_t longest = 0;
  for (int i = 0; i < start.array_count; ++i) longest = std::max(longest, start.arrays[i].count);
  while (deal.array < kMostOfArray && (int64_t{kThreads} * 4 << deal.array) < longest) ++deal.array;
  while ((kThreads << deal.row) < start.out.cols && int64_t{start.out.rows} << (deal.row + 1) <= kMostOfRows)
    ++deal.row;
  for (int i = 0; i < start.turn_count; ++i)
    deal.table = std::max(deal.table, (start.rows * start.turns[i].pairs + kThreads - 1) / kThreads);
  deal.arrays = start.array_count << deal.array;
  deal.rows = start.out.rows << deal.row;
  if (start.table) deal.row_bytes = start.table.bytes / start.table.rows;
  const int64_t groups = deal.arrays + int64_t{deal.rows} + int64_t{start.turn_count} * deal.table;
  if (groups > 0) launch(stream, start_kernel, count(groups), kThreads, 0, start, deal);
}

}  // namespace millrace::cuda
