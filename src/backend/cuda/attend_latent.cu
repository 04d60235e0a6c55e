// Attention over latents: all heads share one key a position, and a value is the first numbers of its key. A thread
// block has sixteen heads of a row and takes the row's positions 64 at a time, at fixed places, in order; its warps
// share the positions for scores and the numbers of values for sums. Keys are read once for sixteen heads. Every GPU.
#include <type_traits>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kHeads = 16, kPositions = 64, kWarps = 4, kThreads = kWarps * 32;
constexpr float kToPowersOfTwo = 1.44269504f;

template <int Key, int Value>
struct Sizes {
  static constexpr int kPitch = Key * 2 + 16;  // bytes of a row in shared memory: an odd number of sixteens
  static constexpr int kWeightPitch = kPositions * 2 + 16;
  static constexpr int kKeys = kHeads * kPitch, kWeights = kKeys + kPositions * kPitch;
  static constexpr int kShared = kWeights + kHeads * kWeightPitch;
  static constexpr int kTiles = Value / kWarps / 8;  // of eight numbers of a value, a warp's
  static_assert(kShared <= (99 << 10) && Key % 16 == 0 && kTiles % 2 == 0 && kPitch / 16 % 2 == 1);
};

template <class T>
__device__ void multiply(float (&sums)[4], const uint4& rows, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, rows, b0, b1);
  else
    multiply_add(sums, rows, b0, b1);
}

__device__ inline float power(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ inline float quad_most(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

template <class T, int Key, int Value>
struct Latents {
  using Size = Sizes<Key, Value>;
  const KvView& kv;
  char* room;
  int begin, end;  // positions seen
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;

  // Rounded as keys are; heads that there are not are zero.
  __device__ void bring_queries(const View& q, int64_t row, int first_head, int heads) const {
    for (int i = static_cast<int>(threadIdx.x); i < kHeads * Key / 2; i += kThreads) {
      const int head = first_head + i / (Key / 2), col = i % (Key / 2) * 2;
      const bool there = head < heads;
      const float low = there ? read(q, row, head * Key + col) : 0,
                  high = there ? read(q, row, head * Key + col + 1) : 0;
      *reinterpret_cast<uint32_t*>(room + i / (Key / 2) * Size::kPitch + col * 2) = two<T>(low, high);
    }
  }
  // Positions that are not seen are zero.
  __device__ void bring_keys(const int32_t* pages, int start) const {
    constexpr int kPieces = Key / 8;
    const uint32_t to = shared_address(room) + Size::kKeys;
    for (int i = static_cast<int>(threadIdx.x); i < kPositions * kPieces; i += kThreads) {
      const int at = i / kPieces, p = start + at;
      const bool seen = p >= begin && p < end;
      const std::byte* from = kv.base;
      if (seen)
        from += int64_t{pages[p / kv.page_tokens]} * kv.page_stride + kv.k_offset +
                int64_t{p % kv.page_tokens} * (Key * 2) + i % kPieces * 16;
      copy_16(to + static_cast<uint32_t>(at * Size::kPitch + i % kPieces * 16), from, seen ? 16 : 0);
    }
    copies_end();
    copies_wait<0>();
  }
  // Of sixteen heads and the warp's sixteen positions.
  __device__ void score(float (&scores)[2][4]) const {
    const uint32_t queries = shared_address(room) + static_cast<uint32_t>(lane % 16 * Size::kPitch + lane / 16 * 16);
    const int matrix = lane / 8;
    const uint32_t keys =
        shared_address(room) + Size::kKeys +
        static_cast<uint32_t>((warp * 16 + matrix / 2 * 8 + lane % 8) * Size::kPitch + matrix % 2 * 16);
#pragma unroll 4
    for (uint32_t k = 0; k < Key / 16; ++k) {
      const uint4 rows = load_matrices(queries + k * 32), some = load_matrices(keys + k * 32);
      multiply<T>(scores[0], rows, some.x, some.y);
      multiply<T>(scores[1], rows, some.z, some.w);
    }
  }
  // Adds the values of 64 positions, weighted, to the warp's share of their numbers.
  __device__ void add_values(float (&sums)[Size::kTiles][4]) const {
    const uint32_t weights =
        shared_address(room) + Size::kWeights + static_cast<uint32_t>(lane % 16 * Size::kWeightPitch + lane / 16 * 16);
    const int matrix = lane / 8;
    const uint32_t values =
        shared_address(room) + Size::kKeys +
        static_cast<uint32_t>((matrix % 2 * 8 + lane % 8) * Size::kPitch + (warp * Size::kTiles + matrix / 2) * 16);
#pragma unroll
    for (uint32_t k = 0; k < kPositions / 16; ++k) {
      const uint4 rows = load_matrices(weights + k * 32);
#pragma unroll
      for (int tile = 0; tile < Size::kTiles; tile += 2) {
        const uint4 some = load_matrices_turned(values + k * 16 * Size::kPitch + static_cast<uint32_t>(tile) * 16);
        multiply<T>(sums[tile], rows, some.x, some.y);
        multiply<T>(sums[tile + 1], rows, some.z, some.w);
      }
    }
  }
};

// What has been summed of two heads (a lane's): their largest score so far, as a power of two, and the sum of weights.
struct Softmax {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};
// What warps tell one another of every head.
struct Told {
  float largest[kWarps][kHeads], added[kWarps][kHeads];
};

// Scores of 64 positions become weights in shared memory. Gives what sums so far are multiplied with.
template <class T, int Key, int Value>
__device__ float2 weigh(const Latents<T, Key, Value>& all, int start, float scale, float (&scores)[2][4], Told& told,
                        Softmax& state) {
  using Size = Sizes<Key, Value>;
  const int g = all.lane / 4, t = all.lane % 4;
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, factor[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int p = start + all.warp * 16 + i / 4 * 8 + 2 * t + i % 2;
    float& score = scores[i / 4][i % 4];
    score = p >= all.begin && p < all.end ? score * scale : -INFINITY;
    most[i % 4 / 2] = fmaxf(most[i % 4 / 2], score);
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float here = quad_most(most[side]);
    if (t == 0) told.largest[all.warp][g + 8 * side] = here;
  }
  __syncthreads();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float next = state.most[side];
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) next = fmaxf(next, told.largest[warp][g + 8 * side]);
    factor[side] = state.most[side] == -INFINITY ? 0.0f : power(state.most[side] - next);
    state.most[side] = next;
  }
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int side = i % 4 / 2;
    const float low = power(scores[i / 4][i % 4] - state.most[side]),
                high = power(scores[i / 4][i % 4 + 1] - state.most[side]);
    sum[side] += low + high;
    *reinterpret_cast<uint32_t*>(all.room + Size::kWeights + (g + 8 * side) * Size::kWeightPitch +
                                 (all.warp * 16 + i / 4 * 8 + 2 * t) * 2) = two<T>(low, high);
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float here = quad_sum(sum[side]);
    if (t == 0) told.added[all.warp][g + 8 * side] = here;
  }
  __syncthreads();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int head = g + 8 * side;
    state.total[side] = state.total[side] * factor[side] +
                        ((told.added[0][head] + told.added[1][head]) + (told.added[2][head] + told.added[3][head]));
  }
  return {factor[0], factor[1]};
}

// A head's share of a row: a sink takes part in the sum as a score without a value.
__device__ inline float last_share(const Attention& attention, int head, float most, float total) {
  float last = 1;
  if (attention.sinks != nullptr) {
    const float sink = attention.sinks[head] * kToPowersOfTwo, next = fmaxf(most, sink);
    last = most == -INFINITY ? 0.0f : power(most - next);
    total = total * last + power(sink - next);
  }
  return total > 0 ? last / total : 0.0f;
}

template <class T, int Key, int Value>
__global__ void __launch_bounds__(kThreads)
    latent_kernel(DeviceStep step, Attention attention, View q, KvView kv, View out) {
  using Size = Sizes<Key, Value>;
  extern __shared__ __align__(128) char room[];
  __shared__ Told told;
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const Latents<T, Key, Value> all = {kv, room, sight_begin(attention, step.positions[row]), step.visible[row]};
  const int32_t* pages = step.pages + int64_t{step.sequence[row]} * step.page_stride;
  all.bring_queries(q, row, first_head, attention.heads);
  float sums[Size::kTiles][4] = {};
  Softmax state;
#pragma unroll 1
  for (int start = all.begin / kPositions * kPositions; start < all.end; start += kPositions) {
    __syncthreads();  // all have done with the keys before
    all.bring_keys(pages, start);
    __syncthreads();
    float scores[2][4] = {};
    all.score(scores);
    const float2 factor = weigh(all, start, attention.scale * kToPowersOfTwo, scores, told, state);
#pragma unroll
    for (int tile = 0; tile < Size::kTiles; ++tile) {
      sums[tile][0] *= factor.x, sums[tile][1] *= factor.x;
      sums[tile][2] *= factor.y, sums[tile][3] *= factor.y;
    }
    all.add_values(sums);
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int head = first_head + all.lane / 4 + 8 * side;
    if (head >= attention.heads) continue;
    const float share = last_share(attention, head, state.most[side], state.total[side]);
#pragma unroll
    for (int tile = 0; tile < Size::kTiles; ++tile) {
      const int col = head * Value + (all.warp * Size::kTiles + tile) * 8 + all.lane % 4 * 2;
      write(out, row, col, sums[tile][2 * side] * share);
      write(out, row, col + 1, sums[tile][2 * side + 1] * share);
    }
  }
}

template <class T, int Key, int Value>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out) {
  constexpr auto kKernel = latent_kernel<T, Key, Value>;
  static const bool prepared = prepare(kKernel, Sizes<Key, Value>::kShared);
  static_cast<void>(prepared);
  const dim3 grid(count(q.rows), count((attention.heads + kHeads - 1) / kHeads));
  launch(stream, kKernel, grid, kThreads, Sizes<Key, Value>::kShared, step, attention, q, kv, out);
}

}  // namespace

bool attend_latent_fits(const Attention& attention, const KvView& kv) {
  const bool widths =
      (kv.k_dim == 576 && attention.value_dim == 512) || (kv.k_dim == 288 && attention.value_dim == 256);
  return widths && attention.ahead == 0 && kv.form.plain() && kv.v_dim == 0 && kv.kv_heads == 1 &&
         attention.softcap == 0 && attention.slopes == nullptr && kv.page_stride % 16 == 0 && kv.k_offset % 16 == 0;
}

void attend_latent(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out) {
  if (q.rows == 0) return;
  if (kv.k_dim == 576)
    return kv.form.k == DType::f16 ? start<__half, 576, 512>(stream, step, attention, q, kv, out)
                                   : start<__nv_bfloat16, 576, 512>(stream, step, attention, q, kv, out);
  kv.form.k == DType::f16 ? start<__half, 288, 256>(stream, step, attention, q, kv, out)
                          : start<__nv_bfloat16, 288, 256>(stream, step, attention, q, kv, out);
}

cudaError_t load_attend_latent() { return load_kernels(); }

}  // namespace millrace::cuda
