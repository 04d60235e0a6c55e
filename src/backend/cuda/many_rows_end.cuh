// What becomes of a tile's sums (many_rows.cu): results, results of a gated unit, what is added to the stream, or
// queries, keys and values as attention wants them. Lane 4g + t of a warp has in sums[4j + i] row g + i / 2 * 8, output
// 8j + 2t + i % 2. Device code.
#pragma once

#include "backend/cuda/many_rows.cuh"
#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

template <int Sums>
__device__ void add_bias(const Products::Product& part, int output, float* sums) {
  if (part.bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < Sums; ++i) {
    const int at = output + i / 4 * 8 + i % 2;
    if (at < part.rows) sums[i] += part.bias[at];
  }
}

// The two rows of a thread: body(row, first of its sums).
template <class F>
__device__ void each_row(const Products& work, const Tile& tile, F&& body) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = tile.first_row + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
    if (row < work.in.rows) body(row, 2 * i);
  }
}

// Sums of one row: sums[4j + first] and its neighbour are outputs 8j and 8j + 1 from `output` on.
template <int Sums>
__device__ void put_row(const Products& work, const Products::Product& to, int64_t row, int output, int first,
                        const float (&sums)[Sums]) {
  constexpr int kPairs = Sums / 4, kBatch = kPairs % 32 == 0 ? 8 : kPairs;
  float* place = work.residual != nullptr ? work.residual + row * work.residual_stride + output
                                          : to.out + row * to.out_stride + output;
  const bool together = to.rows - output >= Sums * 2 && reinterpret_cast<uintptr_t>(place) % 8 == 0;
  if (!together) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (output + 8 * j + k >= to.rows) continue;
        float* one = place + 8 * j + k;
        const float value = sums[4 * j + first + k];
        *one = work.residual != nullptr ? *one + work.residual_scale * value : value;
      }
    }
  } else if (work.residual == nullptr) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      *reinterpret_cast<float2*>(place + 8 * j) = {sums[4 * j + first], sums[4 * j + first + 1]};
  } else {
#pragma unroll
    for (int batch = 0; batch < kPairs; batch += kBatch) {  // all reads before the first write
      float2 old[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) old[j] = *reinterpret_cast<const float2*>(place + 8 * (batch + j));
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int at = 4 * (batch + j) + first;
        *reinterpret_cast<float2*>(place + 8 * (batch + j)) = {old[j].x + work.residual_scale * sums[at],
                                                               old[j].y + work.residual_scale * sums[at + 1]};
      }
    }
  }
}

template <int Outputs>
__device__ void finish(const Products& work, const Tile& tile, float (&sums)[Outputs / 2]) {
  const Products::Product& to = work.parts[tile.part];
  const int output = tile.first_output + static_cast<int>(threadIdx.x) % 4 * 2;
  if (output >= to.rows) return;
  add_bias<Outputs / 2>(to, output, sums);
  each_row(work, tile, [&](int row, int first) { put_row(work, to, row, output, first, sums); });
}

// ---- gated units

__device__ __noinline__ float activated_rarely(Activation activation, float x) { return activated(activation, x); }

// act(gate) * up: the second half of a thread's sums belongs to the first.
template <int Outputs>
__device__ void finish_gated(const Products& work, const Tile& tile, float (&sums)[Outputs / 2]) {
  constexpr int kHalf = Outputs / 4;
  const int rows = work.parts[0].rows, output = tile.first_output + static_cast<int>(threadIdx.x) % 4 * 2;
  if (output >= rows) return;
  add_bias<kHalf>(work.parts[0], output, sums);
  add_bias<kHalf>(work.parts[1], output, sums + kHalf);
  if (work.activation == Activation::silu) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) sums[i] = activated(Activation::silu, sums[i]) * sums[kHalf + i];
  } else {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) sums[i] = activated_rarely(work.activation, sums[i]) * sums[kHalf + i];
  }
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, rows, work.out_form};
  each_row(work, tile, [&](int row, int first) {
    if (rows - output >= Outputs / 2 && out.form == Form::bf16) {
      auto* place = reinterpret_cast<uint32_t*>(static_cast<char*>(out.data) + row * out.stride) + output / 2;
#pragma unroll
      for (int j = 0; j < kHalf / 4; ++j)
        place[4 * j] = two<__nv_bfloat16>(sums[4 * j + first], sums[4 * j + first + 1]);
      return;
    }
#pragma unroll
    for (int j = 0; j < kHalf / 2; ++j) {
      const int at = output + j / 2 * 8 + j % 2;
      if (at < rows) write(out, row, at, sums[j / 2 * 4 + first + j % 2]);
    }
  });
}

// ---- the stream

// A group's 64 rows of a tile of 256 outputs are added to the stream by the copy engine, half of the outputs at a time,
// through its room in shared memory: boxes of 32 numbers, their sixteenths turned by the row's number. It goes on with
// its next tile meanwhile.
inline constexpr int kBoxNumbers = 32, kBoxBytes = 64 * kBoxNumbers * 4;

__device__ __forceinline__ void meet_group() { group_sync(1 + static_cast<int>(threadIdx.x) / 128, 128); }
// What was sent from the room has been read: it may be written to again.
__device__ __forceinline__ void room_is_free() {
  if (threadIdx.x % 128 == 0) sent_read();
  meet_group();
}

__device__ inline void add_boxes(const Products& work, const Maps& maps, const Tile& tile, uint32_t room,
                                 float (&sums)[128]) {
  const int thread = static_cast<int>(threadIdx.x) % 128, g = thread % 32 / 4, t = thread % 4;
  const Products::Product& to = work.parts[tile.part];
  add_bias<128>(to, tile.first_output + 2 * t, sums);
  const uint32_t row = room + static_cast<uint32_t>((thread / 32 * 16 + g) * 128 + t % 2 * 8);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    room_is_free();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const uint32_t place =
            row + static_cast<uint32_t>(j / 4 * kBoxBytes + i * 8 * 128 + ((j % 4 * 2 + t / 2) ^ g) * 16);
        const int at = half * 64 + 4 * j + 2 * i;
        asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(place), "f"(work.residual_scale * sums[at]),
                     "f"(work.residual_scale * sums[at + 1])
                     : "memory");
      }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    meet_group();
    if (thread == 0) {
      const int first_row = tile.first_row + static_cast<int>(threadIdx.x) / 128 * 64;
      for (int box = 0; box < 4; ++box) {
        const int output = tile.first_output + half * 128 + box * kBoxNumbers;
        if (first_row < work.in.rows && output < to.rows)
          add_box(maps.stream, output, first_row, room + static_cast<uint32_t>(box * kBoxBytes));
      }
      sent_end();
    }
  }
}

// ---- queries, keys and values

// Pairs of a row that are D / 2 apart, in all the heads the tile has.
template <int D, int Sums>
__device__ void turn_halves(const float2* angles, int first, float (&sums)[Sums]) {
  constexpr int kApart = D / 16;
#pragma unroll
  for (int j = 0; j < kApart; ++j) {
    const float4 both = *reinterpret_cast<const float4*>(angles + 8 * j + static_cast<int>(threadIdx.x) % 4 * 2);
#pragma unroll
    for (int head = 0; head < Sums / 4; head += D / 8) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float &x = sums[4 * (head + j) + first + k], &y = sums[4 * (head + j + kApart) + first + k];
        const float2 to = turned(k == 0 ? float2{both.x, both.y} : float2{both.z, both.w}, x, y);
        x = to.x, y = to.y;
      }
    }
  }
}
template <int Sums>
__device__ void turn_neighbours(const float2* angles, int pairs, int first, float (&sums)[Sums]) {
#pragma unroll
  for (int j = 0; j < Sums / 4; ++j) {
    const float2 angle = angles[(4 * j & (pairs - 1)) + static_cast<int>(threadIdx.x) % 4];
    float &x = sums[4 * j + first], &y = sums[4 * j + first + 1];
    const float2 to = turned(angle, x, y);
    x = to.x, y = to.y;
  }
}

// Keys and values go where the cache has them, queries to `out`; all are rounded as the cache's numbers are.
template <int Outputs>
__device__ void finish_heads(const Products& work, const Tile& tile, float (&sums)[Outputs / 2]) {
  const Products::Product& to = work.parts[tile.part];
  const Products::Heads& heads = work.heads;
  const int t = static_cast<int>(threadIdx.x) % 4, dim = heads.kv.k_dim;
  if (tile.first_output >= to.rows) return;
  add_bias<Outputs / 2>(to, tile.first_output + 2 * t, sums);
  const Form form = heads.kv.form.k == DType::f16 ? Form::f16 : Form::bf16;
  const bool query = to.role == Products::Role::query, value = to.role == Products::Role::value;
  const int64_t head_bytes = int64_t{dim} * 2 * (query ? 1 : heads.kv.page_tokens);
  each_row(work, tile, [&](int row, int first) {
    if (!value) {
      const float2* angles = reinterpret_cast<const float2*>(heads.table) + int64_t{row} * (dim / 2);
      if (heads.neighbours)
        turn_neighbours(angles, dim / 2, first, sums);
      else if (dim == 64)
        turn_halves<64>(angles, first, sums);
      else
        turn_halves<128>(angles, first, sums);
    }
    char* place = reinterpret_cast<char*>(to.out + row * to.out_stride) + tile.first_output * 2;
    if (!query)
      place = reinterpret_cast<char*>(
          slot(heads.step, heads.kv, row, tile.first_output / dim, value ? heads.kv.v_offset : heads.kv.k_offset, dim));
#pragma unroll
    for (int j = 0; j < Outputs / 8; ++j) {
      if (tile.first_output + 8 * j >= to.rows) break;
      *reinterpret_cast<uint32_t*>(place + 8 * j / dim * head_bytes + ((8 * j & (dim - 1)) + 2 * t) * 2) =
          two(form, sums[4 * j + first], sums[4 * j + first + 1]);
    }
  });
}

}  // namespace
}  // namespace millrace::cuda
