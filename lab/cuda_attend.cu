// Attention alone: the same bits for a row however it is computed, close to exact arithmetic, and how fast.
//   nvcc -std=c++20 -O3 --fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc lab/cuda_attend.cu
//   src/backend/cuda/{attend,attend_any,attend_long,attend_short,attend_cluster}.cu
//   src/backend/cuda/portable/{attend_long,attend_short}.cu
//   -o attend_lab && ./attend_lab [portable] [bits|prefill|decode]
// portable: those kernels, their bits against the ones for Hopper.

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "backend/cuda/kernels.h"
#include "backend/cuda/portable/portable.h"
#include "backend/cuda/rows.cuh"
#include "cuda_lab.cuh"

using namespace millrace;
using namespace millrace::cuda;

cudaStream_t stream;
std::mt19937 dice(1);
decltype(&attend) used = attend;

// A kernel that waits for ever must not take the machine with it.
void wait_done(const char* what) {
  MUST(cudaGetLastError());
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaSuccess) return;
    const bool late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(8);
    if (status != cudaErrorNotReady || late) {
      std::printf("%s: %s\n", what, late ? "DOES NOT END" : cudaGetErrorString(status));
      std::fflush(stdout);
      _exit(2);
    }
  }
}

template <class T>
struct Array {
  T* at = nullptr;
  explicit Array(int64_t size) { MUST(cudaMalloc(&at, std::max<size_t>(16, static_cast<size_t>(size) * sizeof(T)))); }
  explicit Array(const std::vector<T>& values) : Array(static_cast<int64_t>(values.size())) {
    MUST(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(at); }
};

__device__ float random_at(uint64_t i) {
  uint64_t x = i * 0x9E3779B97F4A7C15ull + 12345;
  x ^= x >> 29, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 32, x *= 0x94D049BB133111EBull, x ^= x >> 30;
  return static_cast<float>(static_cast<int>(x & 0xFFFF) - 32768) / 32768.0f;
}
__global__ void fill_floats(float* to, int64_t size, float scale, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size; i += int64_t{gridDim.x} * blockDim.x)
    to[i] = random_at(static_cast<uint64_t>(i) + seed) * scale;
}
__global__ void fill_halves(uint16_t* to, int64_t size, bool f16, int64_t nan_every) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size; i += int64_t{gridDim.x} * blockDim.x) {
    const float value = random_at(static_cast<uint64_t>(i));
    to[i] = f16 ? __half_as_ushort(__float2half_rn(value)) : __bfloat16_as_ushort(__float2bfloat16_rn(value));
    if (nan_every == 1) to[i] = 0x7FFF;
  }
}
// Queries as the product that makes them may round them.
__global__ void round_floats(const float* from, uint16_t* to, int64_t size, bool f16) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size; i += int64_t{gridDim.x} * blockDim.x)
    to[i] = f16 ? __half_as_ushort(__float2half_rn(from[i])) : __bfloat16_as_ushort(__float2bfloat16_rn(from[i]));
}
__device__ uint16_t* place_of(const KvView& kv, const int32_t* pages, int position, int head, bool value) {
  return reinterpret_cast<uint16_t*>(kv.base + int64_t{pages[position / kv.page_tokens]} * kv.page_stride +
                                     (value ? kv.v_offset : kv.k_offset)) +
         (int64_t{head} * kv.page_tokens + position % kv.page_tokens) * kv.k_dim;
}
// Numbers for the positions a sequence has; everything else stays what it was.
__global__ void fill_sequence(KvView kv, const int32_t* pages, int tokens, uint64_t seed) {
  const int position = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  if (position >= tokens) return;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kv.k_dim; i += static_cast<int>(blockDim.x)) {
    const float x = random_at(seed + (uint64_t{blockIdx.x} * gridDim.y + blockIdx.y) * 2 * kv.k_dim + i);
    uint16_t* to = place_of(kv, pages, position, head, i >= kv.k_dim) + i % kv.k_dim;
    *to = kv.form.k == DType::f16 ? __half_as_ushort(__float2half_rn(x)) : __bfloat16_as_ushort(__float2bfloat16_rn(x));
  }
}
__device__ double number(const KvView& kv, uint16_t bits) {
  return kv.form.k == DType::f16 ? __half2float(__ushort_as_half(bits)) : __bfloat162float(__ushort_as_bfloat16(bits));
}
// Exact but for double's rounding: a thread for each number of the result.
__global__ void exact(DeviceStep step, Attention attention, View q, KvView kv, double* out, double* room, int widest) {
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), d = static_cast<int>(threadIdx.x);
  const int kv_head = head / (attention.heads / kv.kv_heads), position = step.positions[row], end = step.visible[row];
  const int begin = attention.window > 0 ? max(0, position - attention.window + 1) : 0;
  const int32_t* pages = step.pages + int64_t{step.sequence[row]} * step.page_stride;
  double* scores = room + (int64_t{row} * attention.heads + head) * widest;
  for (int p = begin + d; p < end; p += static_cast<int>(blockDim.x)) {
    double dot = 0;
    for (int i = 0; i < kv.k_dim; ++i) {
      const float x = read(q, row, head * kv.k_dim + i);
      const double rounded = kv.form.k == DType::f16 ? static_cast<double>(__half2float(__float2half_rn(x)))
                                                     : static_cast<double>(__bfloat162float(__float2bfloat16_rn(x)));
      dot += rounded * number(kv, place_of(kv, pages, p, kv_head, false)[i]);
    }
    dot *= attention.scale;
    if (attention.softcap > 0) dot = attention.softcap * tanh(dot / attention.softcap);
    if (attention.slopes != nullptr) dot += attention.slopes[head] * static_cast<double>(p - position);
    scores[p] = dot;
  }
  __syncthreads();
  double most = attention.sinks != nullptr ? attention.sinks[head] : -1e300, total = 0, sum = 0;
  for (int p = begin; p < end; ++p) most = fmax(most, scores[p]);
  if (attention.sinks != nullptr) total = exp(attention.sinks[head] - most);
  for (int p = begin; p < end; ++p) {
    const double weight = exp(scores[p] - most);
    total += weight;
    sum += weight * number(kv, place_of(kv, pages, p, kv_head, true)[d]);
  }
  out[(int64_t{row} * attention.heads + head) * kv.k_dim + d] = sum / total;
}

struct Piece {
  int cached, rows;
};

// A step's arrays on the device, for sequences that may share page tables.
struct Batch {
  std::vector<int32_t> positions, visible, sequence, first_row{0}, first_item{0}, table;
  int64_t chunks = 0, longest = 0, long_rows = 0;
  int32_t page_stride;
  explicit Batch(int32_t stride) : page_stride(stride) {}
  void add(int cached, int rows, const int32_t* pages) {
    const int32_t number = static_cast<int32_t>(first_row.size()) - 1;
    for (int i = 0; i < rows; ++i) {
      positions.push_back(cached + i), visible.push_back(cached + i + 1), sequence.push_back(number);
    }
    table.insert(table.end(), pages, pages + page_stride);
    first_row.push_back(first_row.back() + rows);
    const int64_t mine = rows == 1 ? attend_chunks(cached + 1) : 0;
    chunks += mine, longest = std::max(longest, mine);
    first_item.push_back(static_cast<int32_t>(chunks));
    long_rows += rows == 1 ? 0 : rows;
  }
};
struct OnDevice {
  Array<int32_t> positions, visible, sequence, first_row, first_item, table;
  DeviceStep step;
  int64_t chunks, longest, long_rows;
  explicit OnDevice(const Batch& b)
      : positions(b.positions),
        visible(b.visible),
        sequence(b.sequence),
        first_row(b.first_row),
        first_item(b.first_item),
        table(b.table),
        chunks(b.chunks),
        longest(b.longest),
        long_rows(b.long_rows) {
    step = {static_cast<int32_t>(b.positions.size()),
            static_cast<int32_t>(b.first_row.size()) - 1,
            positions.at,
            visible.at,
            sequence.at,
            first_row.at,
            table.at,
            b.page_stride};
  }
  static const Array<std::byte>& stretches() {
    static const Array<std::byte> room(kStretchBytes);
    return room;
  }
  // shorts: single rows are split; otherwise all go tile by tile.
  AttendPlan plan(bool shorts, float* partials, unsigned* finished, bool stretches_there = false) const {
    const bool split = shorts && chunks > 0;
    const int64_t singles = longest == 0 ? 0 : step.rows - long_rows;
    return {split,
            first_item.at,
            longest,
            split ? step.sequences - singles : step.sequences,
            split ? long_rows : int64_t{step.rows},
            partials,
            finished,
            stretches().at,
            stretches_there};
  }
};

int64_t compared = 0, different = 0, left_counters = 0;
double worst = 0;

void check(DType type, int dim, int kv_heads, int group, int page, const Attention& shape, float size,
           const std::vector<Piece>& pieces, const std::string& name) {
  const int heads = kv_heads * group;
  int longest = 0;
  for (const Piece& p : pieces) longest = std::max(longest, p.cached + p.rows);
  const int32_t stride = (longest + page - 1) / page + 1;
  // Every sequence has its pages in a random order among all; what is not used holds NaN.
  const int count = static_cast<int>(pieces.size());
  std::vector<int32_t> order(static_cast<size_t>(stride * count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), dice);
  const int64_t side = int64_t{kv_heads} * page * dim * 2, page_bytes = side * 2 + 256;
  Array<std::byte> pool(page_bytes * static_cast<int64_t>(order.size()));
  fill_halves<<<512, 256, 0, stream>>>(reinterpret_cast<uint16_t*>(pool.at),
                                       page_bytes / 2 * static_cast<int64_t>(order.size()), false, 1);
  const KvView kv = {pool.at, page_bytes, 128, 128 + side, page, kv_heads, dim, dim, type, 0};
  Array<int32_t> tables(order);
  Batch together(stride), alone(stride);
  for (int s = 0; s < count; ++s) {
    const Piece& p = pieces[static_cast<size_t>(s)];
    const dim3 grid(static_cast<unsigned>(p.cached + p.rows), static_cast<unsigned>(kv_heads));
    fill_sequence<<<grid, 128, 0, stream>>>(kv, tables.at + s * stride, p.cached + p.rows, 1000003ull * (s + 1));
    // Entries that are not in use yet hold nonsense.
    for (int i = (p.cached + p.rows + page - 1) / page; i < stride; ++i)
      order[static_cast<size_t>(s * stride + i)] = -7;
    together.add(p.cached, p.rows, &order[static_cast<size_t>(s * stride)]);
    for (int r = 0; r < p.rows; ++r) alone.add(p.cached + r, 1, &order[static_cast<size_t>(s * stride)]);
  }
  const OnDevice pieces_step(together), rows_step(alone);
  const int rows = pieces_step.step.rows;
  const int64_t cols = int64_t{heads} * dim, numbers = rows * cols;
  Array<float> q(numbers), out(numbers), sinks(heads), slopes(heads);
  fill_floats<<<512, 256, 0, stream>>>(q.at, numbers, size, 77);
  Array<uint16_t> rounded(numbers);
  round_floats<<<512, 256, 0, stream>>>(q.at, rounded.at, numbers, type == DType::f16);
  fill_floats<<<1, 256, 0, stream>>>(sinks.at, heads, 2, 99);
  fill_floats<<<1, 256, 0, stream>>>(slopes.at, heads, 0.05f, 55);
  Attention attention = shape;
  attention.heads = heads;
  attention.scale = 1 / std::sqrt(static_cast<float>(dim));
  if (shape.sinks != nullptr) attention.sinks = sinks.at;
  if (shape.slopes != nullptr) attention.slopes = slopes.at;
  Array<float> partials(attend_partial_floats(rows_step.chunks, heads, dim));
  const int64_t counters = int64_t{rows} * kv_heads;
  Array<unsigned> finished(counters);
  MUST(cudaMemset(finished.at, 0, static_cast<size_t>(counters) * 4));
  auto view = [&](float* data, int first, int number) {
    return View{data + first * cols, cols * 4, number, static_cast<int32_t>(cols), Form::f32};
  };
  const Form form = type == DType::f16 ? Form::f16 : Form::bf16;
  auto run = [&](const OnDevice& at, bool shorts, int first, const char* way, bool hopper = false,
                 bool as_made = true) {
    MUST(cudaMemsetAsync(out.at, 0xFF, static_cast<size_t>(numbers) * 4, stream));
    View queries = view(q.at, first, at.step.rows);
    if (!as_made) queries = {rounded.at + first * cols, cols * 2, at.step.rows, static_cast<int32_t>(cols), form};
    (hopper ? attend : used)(stream, at.step, attention, queries, kv, view(out.at, first, at.step.rows),
                             at.plan(shorts, partials.at, finished.at));
    wait_done((name + ", " + way).c_str());
    std::vector<float> result(static_cast<size_t>(at.step.rows * cols));
    MUST(cudaMemcpy(result.data(), out.at + first * cols, result.size() * 4, cudaMemcpyDeviceToHost));
    std::vector<unsigned> left(static_cast<size_t>(counters));
    MUST(cudaMemcpy(left.data(), finished.at, left.size() * 4, cudaMemcpyDeviceToHost));
    for (unsigned one : left) left_counters += one != 0;
    return result;
  };
  const std::vector<float> split = run(rows_step, true, 0, "every row a sequence, on Hopper", true);
  int64_t wrong[4] = {};
  auto compare = [&](const std::vector<float>& other, int first, int way) {
    for (size_t i = 0; i < other.size(); ++i)
      wrong[way] += std::memcmp(&other[i], &split[static_cast<size_t>(first * cols) + i], 4) != 0;
    compared += static_cast<int64_t>(other.size() / static_cast<size_t>(cols));
  };
  if (used != attend) compare(run(rows_step, true, 0, "every row a sequence"), 0, 0);
  compare(run(pieces_step, true, 0, "pieces"), 0, 0);
  compare(run(pieces_step, false, 0, "all as tiles"), 0, 1);
  compare(run(pieces_step, true, 0, "pieces, rounded before", false, false), 0, 0);
  compare(run(pieces_step, false, 0, "all as tiles, rounded before", false, false), 0, 1);
  for (int i = 0; i < 4; ++i) {  // some rows with nothing beside them
    const int row = i == 0 ? rows - 1 : static_cast<int>(dice() % static_cast<unsigned>(rows));
    const int s = pieces_step.step.rows > 0 ? together.sequence[static_cast<size_t>(row)] : 0;
    Batch one(stride);
    one.add(together.positions[static_cast<size_t>(row)], 1, &order[static_cast<size_t>(s * stride)]);
    const OnDevice step(one);
    compare(run(step, true, row, "a row alone"), row, 2);
    compare(run(step, false, row, "a row alone, as a tile"), row, 3);
  }
  Array<double> reference(numbers), room(int64_t{rows} * heads * longest);
  exact<<<dim3(static_cast<unsigned>(rows), static_cast<unsigned>(heads)), static_cast<unsigned>(dim), 0, stream>>>(
      pieces_step.step, attention, view(q.at, 0, rows), kv, reference.at, room.at, longest);
  wait_done("exact");
  std::vector<double> expected(static_cast<size_t>(numbers));
  MUST(cudaMemcpy(expected.data(), reference.at, expected.size() * 8, cudaMemcpyDeviceToHost));
  double error = 0;
  int64_t first_bad = -1;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double here = std::abs(expected[i] - split[i]);
    if (!(here <= error)) error = std::isnan(here) ? 1e9 : here;
    if (!(here <= 0.02) && first_bad < 0) first_bad = static_cast<int64_t>(i);
  }
  worst = std::max(worst, error);
  different += wrong[0] + wrong[1] + wrong[2] + wrong[3];
  static int told = 0;
  if ((wrong[0] + wrong[1] + wrong[2] + wrong[3] > 0 || error > 0.02) && told++ < 12)
    std::printf(
        "  %s: different %ld in pieces, %ld as tiles, %ld alone, %ld alone as tiles; error %.1e (first: row %ld, "
        "number %ld)\n",
        name.c_str(), (long)wrong[0], (long)wrong[1], (long)wrong[2], (long)wrong[3], error, (long)(first_bad / cols),
        (long)(first_bad % cols));
}

bool bits() {
  const std::vector<Piece> pieces = {{0, 1},   {0, 2},     {5, 3},   {100, 17},  {127, 1},  {128, 1}, {0, 64},
                                     {61, 65}, {200, 129}, {0, 300}, {1000, 33}, {11, 257}, {700, 1}, {3000, 40}};
  const float yes = 1;
  const Attention plain = {}, window = {.window = 100}, wide = {.window = 517}, cap = {.softcap = 5},
                  sinks = {.window = 130, .sinks = &yes}, slopes = {.slopes = &yes};
  struct Shape {
    const char* name;
    const Attention* attention;
    float size;
  };
  const Shape shapes[] = {
      {"plain", &plain, 1.5f}, {"plain, far apart", &plain, 30}, {"window 100", &window, 3}, {"window 517", &wide, 20},
      {"softcap", &cap, 10},   {"sinks and window", &sinks, 3},  {"slopes", &slopes, 3}};
  for (DType type : {DType::bf16, DType::f16}) {
    for (int dim : {64, 128}) {
      compared = different = left_counters = 0, worst = 0;
      int turn = 0;
      for (int group : {1, 4, 8}) {
        for (const Shape& shape : shapes) {
          const int page = (const int[]){16, 64, 16, 128, 8, 64, 32, 256}[turn++ % 8];
          check(type, dim, group == 1 ? 3 : 2, group, page, *shape.attention, shape.size, pieces,
                std::string(type == DType::f16 ? "f16" : "bf16") + " D " + std::to_string(dim) + " group " +
                    std::to_string(group) + " page " + std::to_string(page) + " " + shape.name);
        }
      }
      check(type, dim, 2, 4, 16, plain, 10, {{40000, 3}, {9000, 1}}, "long sequences");
      check(type, dim, 2, 1, 16, plain, 10, {{4090, 9}, {4500, 3}}, "more chunks than a cluster takes");
      check(type, dim, 1, 16, 64, sinks, 3, {{20000, 2}, {9, 130}}, "group of 16");
      std::printf("%s D %3d: %ld rows compared, %ld numbers different, %ld counters left, largest error %.2e\n",
                  type == DType::f16 ? "f16 " : "bf16", dim, (long)compared, (long)different, (long)left_counters,
                  worst);
      std::fflush(stdout);
      if (different + left_counters > 0 || worst > 0.02) return false;
    }
  }
  return true;
}

// One layer after the other, each with keys and values of its own.
double layers_us(int sequences, int cached, int rows, int page, int rounds) {
  const int kv_heads = 8, heads = 32, dim = 128;
  const int64_t side = int64_t{kv_heads} * page * dim * 2;
  const int32_t stride = (cached + rows + page - 1) / page;
  const int64_t layer = int64_t{stride} * sequences * side * 2;
  const int layers = static_cast<int>(std::clamp<int64_t>((int64_t{400} << 20) / layer, 8, 32));
  std::vector<int32_t> order(static_cast<size_t>(stride) * static_cast<size_t>(sequences));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), dice);
  Array<std::byte> pool(layer * layers);
  fill_halves<<<2048, 256, 0, stream>>>(reinterpret_cast<uint16_t*>(pool.at), layer * layers / 2, false, 0);
  Batch batch(stride);
  for (int s = 0; s < sequences; ++s)
    batch.add(cached, rows, &order[static_cast<size_t>(s) * static_cast<size_t>(stride)]);
  const OnDevice step(batch);
  const int64_t cols = int64_t{heads} * dim;
  Array<float> q(step.step.rows * cols), out(step.step.rows * cols);
  fill_floats<<<512, 256, 0, stream>>>(q.at, step.step.rows * cols, 3, 7);
  Array<uint16_t> rounded(step.step.rows * cols);
  round_floats<<<512, 256, 0, stream>>>(q.at, rounded.at, step.step.rows * cols, false);
  View queries = {q.at, cols * 4, step.step.rows, static_cast<int32_t>(cols), Form::f32};
  if (rows >= 512) queries = {rounded.at, cols * 2, step.step.rows, static_cast<int32_t>(cols), Form::bf16};
  Array<float> partials(attend_partial_floats(step.chunks, heads, dim));
  Array<unsigned> finished(int64_t{sequences} * kv_heads);
  MUST(cudaMemset(finished.at, 0, static_cast<size_t>(sequences) * kv_heads * 4));
  wait_done("filling");
  Attention attention = {.heads = heads, .scale = 1 / std::sqrt(128.0f)};
  auto body = [&] {
    for (int i = 0; i < layers; ++i) {
      const KvView kv = {
          pool.at, side * 2 * layers, i * side * 2, i * side * 2 + side, page, kv_heads, dim, dim, DType::bf16, 0};
      used(stream, step.step, attention, queries, kv,
           {out.at, cols * 4, step.step.rows, static_cast<int32_t>(cols), Form::bf16},
           step.plan(true, partials.at, finished.at, i > 0));
    }
  };
  body();
  wait_done("first layers");
  return time_graph(stream, body, rounds) / layers;
}

void prefill() {
  for (int page : {16, 64}) {
    std::printf("prefill, pages of %d:", page);
    for (const Piece& p : {Piece{0, 2048}, Piece{0, 8192}, Piece{0, 32768}, Piece{6144, 2048}}) {
      const double us = layers_us(1, p.cached, p.rows, page, p.rows > 10000 ? 5 : 15);
      const double seen = p.rows * (static_cast<double>(p.cached) + (p.rows + 1) / 2.0);
      std::printf("  %d behind %d: %.1f us %.0f TFLOP/s", p.rows, p.cached, us, seen * 32 * 128 * 4 / us / 1e6);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("prefill, 16 pieces of 512, pages of 16: %.1f us\n", layers_us(16, 0, 512, 16, 15));
}

void decode() {
  for (int page : {16, 64}) {
    std::printf("decode, pages of %d:", page);
    for (const Piece& p :
         {Piece{1023, 1}, Piece{1023, 8}, Piece{1023, 64}, Piece{1100, 64}, Piece{1023, 256}, Piece{1100, 256},
          Piece{4095, 16}, Piece{8191, 1}, Piece{8191, 16}, Piece{16383, 4}, Piece{65535, 1}}) {
      const double us = layers_us(p.rows, p.cached, 1, page, 15);
      std::printf("  %d x %d: %.1f us %.0f GB/s", p.rows, p.cached + 1, us,
                  static_cast<double>(p.rows) * (p.cached + 1) * 8 * 128 * 4 / us / 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

int main(int argc, char** argv) {
  MUST(cudaStreamCreate(&stream));
  if (argc > 1 && std::strcmp(argv[1], "portable") == 0) used = portable::attend, --argc, ++argv;
  const std::string only = argc > 1 ? argv[1] : "";
  bool fine = true;
  if (only.empty() || only == "bits") fine = bits();
  if (only.empty() || only == "decode") decode();
  if (only.empty() || only == "prefill") prefill();
  std::printf(fine ? "fine\n" : "NOT FINE\n");
  return fine ? 0 : 1;
}
