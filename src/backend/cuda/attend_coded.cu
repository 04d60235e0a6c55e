// Keys and values of fewer bits (backend/kv_form.h): a warp for each row's head rounds and stores them, and a warp for
// each row's head attends to them, 32 positions at a time, in order. Values may be the first numbers of keys. So are
// caches of any form read that keep their first positions and a window.
#include <cuda_fp8.h>

#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

constexpr int kMostDims = kWidestValue;
constexpr int kGroupBytes = 18;  // of 32 numbers of four bits: their factor in float16, then codes

__device__ inline int lane_here() { return static_cast<int>(threadIdx.x) % 32; }

// Keys or values of all tokens.
struct Side {
  DType type;
  int dim;
  int64_t offset;      // in a page
  int64_t code_bytes;  // of a token's head
  int64_t head_bytes;  // of a head's part of a page
};

Side side_of(DType type, int dim, int64_t offset, int page_tokens) {
  return {type, dim, offset, kv_code_bytes(type, dim), page_tokens * kv_bytes(type, dim)};
}

struct Place {
  std::byte* codes;
  float* factor;  // of types that have one for a token's head
};

__device__ inline Place place_of(const DeviceStep& step, const KvView& kv, const Side& side, int sequence, int head,
                                 int position) {
  const int64_t page = step.pages[int64_t{sequence} * step.page_stride + position / kv.page_tokens];
  std::byte* part = kv.base + page * kv.page_stride + side.offset + head * side.head_bytes;
  const int within = position % kv.page_tokens;
  return {part + within * side.code_bytes, reinterpret_cast<float*>(part + kv.page_tokens * side.code_bytes) + within};
}

__device__ inline bool has_factor(DType type) { return type == DType::i8 || type == DType::f8_e4m3; }

// Number i of a token's head, without the factor of those that have one.
__device__ inline float number(DType type, const std::byte* codes, int i) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(codes);
  if (type == DType::i8) return static_cast<float>(reinterpret_cast<const signed char*>(codes)[i]);
  if (type == DType::f8_e4m3) {
    const unsigned bits = (bytes[i] & 0x80u) << 8 | (bytes[i] & 0x7Fu) << 7;
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits))) * 256.0f;
  }
  if (type == DType::q4_0) {
    const unsigned char* group = bytes + i / 32 * kGroupBytes;
    const int j = i % 32, two = group[2 + j % 16];
    return __half2float(*reinterpret_cast<const __half*>(group)) *
           static_cast<float>((j < 16 ? two & 15 : two >> 4) - 8);
  }
  if (type == DType::f16) return __half2float(reinterpret_cast<const __half*>(codes)[i]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(codes)[i]);
}

// kv_turn by one warp, numbers in shared memory.
__device__ void turn(float* x, int dim) {
  const int lane = lane_here(), part = dim & -dim;
  for (int half = 1; half < part; half *= 2) {
    for (int i = lane; i < dim / 2; i += 32) {
      const int low = i / half * 2 * half + i % half;
      const float a = x[low], b = x[low + half];
      x[low] = a + b, x[low + half] = a - b;
    }
    __syncwarp();
  }
  const float scale = 1 / sqrtf(static_cast<float>(part));
  for (int i = lane; i < dim; i += 32) x[i] *= scale;
  __syncwarp();
}

// turn_head (backend/row_math.h) by one warp, numbers in shared memory.
__device__ void turn_on(float* x, const Rope& rope, int positions) {
  const int half = rope.dims / 2;
  for (int pair = lane_here(); pair < half; pair += 32) {
    double sine, cosine;
    sincos(static_cast<double>(positions) * rope.frequencies[pair], &sine, &cosine);
    float& low = x[rope.neighbours ? 2 * pair : pair];
    float& high = x[rope.neighbours ? 2 * pair + 1 : pair + half];
    const double a = low, b = high;
    low = static_cast<float>(a * cosine - b * sine);
    high = static_cast<float>(a * sine + b * cosine);
  }
  __syncwarp();
}

__device__ float largest(float mine) {
#pragma unroll
  for (int s = 16; s > 0; s /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, s));
  return mine;
}

__device__ void write_bytes(const Side& side, const Place& place, const float* x) {
  const int lane = lane_here();
  float most = 0, odd = 0;
  for (int i = lane; i < side.dim; i += 32) most = fmaxf(most, fabsf(x[i])), odd += x[i] - x[i];
  most = largest(most);
  const bool finite = __all_sync(~0u, odd == 0), some = finite && most >= 1e-30f;
  const float end = side.type == DType::i8 ? 127.0f : 448.0f, over = some ? end / most : 0.0f;
  if (lane == 0) *place.factor = !finite ? nanf("") : some ? most / end : 0.0f;
  for (int i = lane; i < side.dim; i += 32) {
    const float scaled = some ? x[i] * over : 0.0f;
    const unsigned char code = side.type == DType::i8 ? static_cast<unsigned char>(__float2int_rn(scaled))
                                                      : __nv_cvt_float_to_fp8(scaled, __NV_SATFINITE, __NV_E4M3);
    place.codes[i] = static_cast<std::byte>(code);
  }
}

__device__ void write_fours(const Side& side, const Place& place, const float* x) {
  const int lane = lane_here();
  for (int first = 0; first < side.dim; first += 32) {
    const float mine = x[first + lane], most = largest(fabsf(mine));
    const bool finite = __all_sync(~0u, mine - mine == 0) && most <= 65504.0f * 8;
    const unsigned holders = __ballot_sync(~0u, fabsf(mine) == most);
    const float signed_most = __shfl_sync(~0u, mine, holders != 0 ? __ffs(static_cast<int>(holders)) - 1 : 0);
    const __half factor = finite ? __float2half_rn(signed_most / -8) : __ushort_as_half(0x7E00);
    const float d = __half2float(factor), over = finite && d != 0 ? 1 / d : 0.0f;
    const int code = finite ? min(max(__float2int_rn(mine * over) + 8, 0), 15) : 8;
    const int other = __shfl_sync(~0u, code, (lane + 16) % 32);
    auto* group = reinterpret_cast<unsigned char*>(place.codes) + first / 32 * kGroupBytes;
    if (lane == 0) *reinterpret_cast<__half*>(group) = factor;
    if (lane < 16) group[2 + lane] = static_cast<unsigned char>(code | other << 4);
  }
}

// Writes the numbers of a token's head that lie at x, which it overwrites.
__device__ void write_numbers(const DeviceStep& step, const KvView& kv, const Side& side, bool turned, int64_t row,
                              int head, float* x) {
  const int lane = lane_here();
  if (turned) turn(x, side.dim);
  const Place place = place_of(step, kv, side, step.sequence[row], head, step.positions[row]);
  if (has_factor(side.type)) {
    write_bytes(side, place, x);
  } else if (side.type == DType::q4_0) {
    write_fours(side, place, x);
  } else {
    for (int i = lane; i < side.dim; i += 32) {
      if (side.type == DType::f16) {
        reinterpret_cast<__half*>(place.codes)[i] = __float2half_rn(x[i]);
      } else {
        reinterpret_cast<__nv_bfloat16*>(place.codes)[i] = __float2bfloat16_rn(x[i]);
      }
    }
  }
  __syncwarp();
}

__device__ void write_side(const DeviceStep& step, const KvView& kv, const Side& side, bool turned, const View& from,
                           int64_t row, int head, float* x) {
  for (int i = lane_here(); i < side.dim; i += 32) x[i] = read(from, row, head * side.dim + i);
  __syncwarp();
  write_numbers(step, kv, side, turned, row, head, x);
}

__global__ void store_coded_kernel(DeviceStep step, View k, View v, KvView kv, Side keys, Side values, bool turned) {
  wait_for_previous();
  __shared__ float x[kMostDims];
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  write_side(step, kv, keys, turned, k, row, head, x);
  if (kv.v_dim > 0) write_side(step, kv, values, false, v, row, head, x);
}

// A warp for each row's head, those of q, then of k and v.
constexpr int kFinishWarps = 4;
__global__ void finish_coded_kernel(DeviceStep step, Turn turns, const float2* table, int heads, View q, View k, View v,
                                    KvView kv, Side keys, Side values, bool turned_keys) {
  wait_for_previous();
  __shared__ float room[kFinishWarps][kMostDims];
  const int64_t row = blockIdx.x;
  const int lane = lane_here(), warp = static_cast<int>(threadIdx.x) / 32;
  float* x = room[warp];
  int head = static_cast<int>(blockIdx.y) * kFinishWarps + warp;
  if (head >= heads + kv.kv_heads) return;
  const bool query = head < heads;
  if (!query) head -= heads;
  const View& from = query ? q : k;
  const int start = head * kv.k_dim;
  for (int pair = lane; pair < turns.half; pair += 32) {
    const int low = turns.first(pair), high = turns.second(pair);
    const float2 to =
        turned(table[row * turns.half + pair], read(from, row, start + low), read(from, row, start + high));
    if (query) {
      write(from, row, start + low, to.x);
      write(from, row, start + high, to.y);
    } else {
      x[low] = to.x, x[high] = to.y;
    }
  }
  if (query) return;
  for (int i = 2 * turns.half + lane; i < kv.k_dim; i += 32) x[i] = read(k, row, start + i);
  __syncwarp();
  write_numbers(step, kv, keys, turned_keys, row, head, x);
  write_side(step, kv, values, false, v, row, head, x);
}

__global__ void turn_queries_kernel(int dim, View inout) {
  wait_for_previous();
  __shared__ float x[kMostDims];
  const int64_t row = blockIdx.x;
  const int start = static_cast<int>(blockIdx.y) * dim;
  for (int i = lane_here(); i < dim; i += 32) x[i] = read(inout, row, start + i);
  __syncwarp();
  turn(x, dim);
  for (int i = lane_here(); i < dim; i += 32) write(inout, row, start + i, x[i]);
}

// Keeps: there are kept positions, and a row may have parted from them.
template <bool Keeps>
__global__ void attend_coded_kernel(DeviceStep step, Attention attention, View q, KvView kv, Side keys, Side values,
                                    bool turned, View out) {
  wait_for_previous();
  __shared__ float query[kMostDims];
  const int lane = lane_here();
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (attention.heads / kv.kv_heads);
  const int position = step.positions[row], sequence = step.sequence[row];
  const int begin = sight_begin(attention, position), end = sight_end(attention, position, step.visible[row]);
  const int width = kv.v_dim > 0 ? kv.v_dim : attention.value_dim;
  float most = attention.sinks != nullptr ? attention.sinks[head] : -INFINITY;
  float total = attention.sinks != nullptr ? 1.0f : 0.0f;
  float sums[kMostDims / 32] = {};
  // Where the window has parted from the kept positions, these first; then what is seen without a gap.
  const bool parted = Keeps && position >= attention.window + attention.kept;
  for (int part = parted ? 0 : 1; part < 2; ++part) {
    const bool first_part = Keeps && part == 0;
    const int seen = first_part ? 0 : begin, upto = first_part ? attention.kept : end;
    const int from = first_part ? attention.window + attention.kept - 1 : position;
    __syncwarp();
    for (int i = lane; i < kv.k_dim; i += 32) query[i] = read(q, row, head * kv.k_dim + i);
    __syncwarp();
    if (first_part) turn_on(query, attention.turn, from - position);
    if (turned) turn(query, kv.k_dim);
    for (int first = seen; first < upto; first += 32) {
      const int p = first + lane;
      float score = -INFINITY, factor_of_value = 1;
      if (p < upto) {
        const Place key = place_of(step, kv, keys, sequence, kv_head, p);
        float dot = 0;
        for (int i = 0; i < kv.k_dim; ++i) dot = fmaf(query[i], number(keys.type, key.codes, i), dot);
        if (has_factor(keys.type)) dot *= *key.factor;
        score = dot * attention.scale;
        if (attention.softcap > 0) score = attention.softcap * tanhf(score / attention.softcap);
        if (attention.slopes != nullptr) score += attention.slopes[head] * static_cast<float>(p - from);
        if (has_factor(values.type)) factor_of_value = *place_of(step, kv, values, sequence, kv_head, p).factor;
      }
      const float higher = fmaxf(largest(score), most);
      const float factor = most == -INFINITY ? 0.0f : expf(most - higher),
                  weight = p < upto ? expf(score - higher) : 0.0f;
      most = higher;
      float sum = weight;
#pragma unroll
      for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
      total = total * factor + sum;
      const float share_of_mine = weight * factor_of_value;
      const int here = upto - first < 32 ? upto - first : 32;
#pragma unroll
      for (int d = 0; d < kMostDims / 32; ++d) {
        if (d * 32 >= width) break;
        sums[d] *= factor;
      }
      for (int j = 0; j < here; ++j) {
        const float share = __shfl_sync(~0u, share_of_mine, j);
        const std::byte* value = place_of(step, kv, values, sequence, kv_head, first + j).codes;
#pragma unroll
        for (int d = 0; d < kMostDims / 32; ++d) {
          if (d * 32 >= width) break;
          if (d * 32 + lane < width) sums[d] = fmaf(share, number(values.type, value, d * 32 + lane), sums[d]);
        }
      }
    }
  }
#pragma unroll
  for (int d = 0; d < kMostDims / 32; ++d) {
    if (d * 32 >= width) break;
    if (d * 32 + lane < width) write(out, row, head * width + d * 32 + lane, total > 0 ? sums[d] / total : 0.0f);
  }
}

}  // namespace

void store_coded(cudaStream_t stream, const DeviceStep& step, View k, View v, const KvView& kv) {
  const Side keys = side_of(kv.form.k, kv.k_dim, kv.k_offset, kv.page_tokens);
  const Side values = side_of(kv.form.v, kv.v_dim, kv.v_offset, kv.page_tokens);
  const dim3 grid(static_cast<unsigned>(k.rows), static_cast<unsigned>(kv.kv_heads));
  launch(stream, store_coded_kernel, grid, 32, 0, step, k, v, kv, keys, values, kv.form.turns_keys());
}

void finish_coded(cudaStream_t stream, const DeviceStep& step, const Rope& rope, const float* table, int32_t heads,
                  View q, View k, View v, const KvView& kv) {
  const Side keys = side_of(kv.form.k, kv.k_dim, kv.k_offset, kv.page_tokens);
  const Side values = side_of(kv.form.v, kv.v_dim, kv.v_offset, kv.page_tokens);
  const int all = heads + kv.kv_heads;
  launch(stream, finish_coded_kernel, dim3(count(q.rows), count((all + kFinishWarps - 1) / kFinishWarps)),
         32 * kFinishWarps, 0, step, Turn{rope.dims / 2, rope.neighbours}, reinterpret_cast<const float2*>(table),
         heads, q, k, v, kv, keys, values, kv.form.turns_keys());
}

void turn_queries(cudaStream_t stream, int32_t heads, View inout) {
  launch(stream, turn_queries_kernel, dim3(count(inout.rows), count(heads)), 32, 0, inout.cols / heads, inout);
}

void attend_coded(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                  View out) {
  const Side keys = side_of(kv.form.k, kv.k_dim, kv.k_offset, kv.page_tokens);
  const Side values = kv.v_dim > 0 ? side_of(kv.form.v, kv.v_dim, kv.v_offset, kv.page_tokens) : keys;
  const dim3 grid(static_cast<unsigned>(q.rows), static_cast<unsigned>(attention.heads));
  launch(stream, attention.kept > 0 ? attend_coded_kernel<true> : attend_coded_kernel<false>, grid, 32, 0, step,
         attention, q, kv, keys, values, kv.form.turns_keys(), out);
}

cudaError_t load_attend_coded() { return load_kernels(); }

}  // namespace millrace::cuda
