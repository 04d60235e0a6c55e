// Attention in float32 whatever the cache's format: keys and values of a chunk are widened once for all queries. Scores
// are sums of 16 lanes over the dimensions; values are added by ascending position. With fast activations keys and
// values of eight bits are multiplied as they are (attend_bytes.h).
#include <algorithm>
#include <cmath>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/neon/attend_blocks.h"
#include "backend/cpu/arm/neon/attend_bytes.h"
#include "backend/cpu/arm/simd.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

int32_t up_to(int32_t value, int32_t multiple) { return (value + multiple - 1) / multiple * multiple; }

template <KvType type>
void widen(const std::byte* in, float* out, int32_t count) {
  int32_t i = 0;
  if constexpr (type == kKvF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * 4);
    i = count;
  } else if constexpr (type == kKvF16) {
    for (; i + 4 <= count; i += 4) vst1q_f32(out + i, load_f16_as_f32(in + 2 * i));
    for (; i < count; ++i) out[i] = static_cast<float>(reinterpret_cast<const float16_t*>(in)[i]);
  } else {
    const uint16_t* stored = reinterpret_cast<const uint16_t*>(in);
    for (; i + 4 <= count; i += 4) vst1q_f32(out + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(stored + i), 16)));
    for (; i < count; ++i) {
      uint32_t bits = uint32_t{stored[i]} << 16;
      std::memcpy(out + i, &bits, 4);
    }
  }
}

// What nobody sees, and what pads the last dimensions, is zero.
template <KvType type>
void widen_chunk(const std::byte* const* from, int32_t positions, int32_t dim, int32_t stride, float* out) {
  for (int32_t j = 0; j < positions; ++j) {
    std::fill_n(out + j * stride, stride, 0.0f);
    if (from[j] != nullptr) widen<type>(from[j], out + j * stride, dim);
  }
}

float dot(const float* q, const float* k, int32_t dim) {
  float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int32_t i = 0; i < dim; i += 16) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = vfmaq_f32(sum[j], vld1q_f32(q + i + 4 * j), vld1q_f32(k + i + 4 * j));
  }
  return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3])));
}

// Scores become exp(factor * score - most); returns their sum.
float exponentials(float* scores, int32_t columns, Scores of) {
  float32x4_t sum = vdupq_n_f32(0), offset = vdupq_n_f32(-of.most);
  for (int32_t j = 0; j < columns; j += 4) {
    float32x4_t e = exp_f32(vfmaq_n_f32(offset, vld1q_f32(scores + j), of.factor));
    vst1q_f32(scores + j, e);
    sum = vaddq_f32(sum, e);
  }
  return vaddvq_f32(sum);
}

// The sums of a query [v_dim] = weights [positions] x values [positions, stride]. Only of positions that it sees: one
// that is no number would show in all others, too.
void weigh(const AttendChunk& chunk, int32_t query, const float* weights, const float* values, int32_t stride) {
  const int32_t begin = chunk.begin[query], end = std::min(chunk.end[query], chunk.positions), v_dim = chunk.v_dim;
  float* sums = chunk.sums + query * chunk.sums_stride;
  for (int32_t i = 0; i < v_dim; i += 16) {
    float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (int32_t j = begin; j < end; ++j) {
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sum[n] = vfmaq_n_f32(sum[n], vld1q_f32(values + j * stride + i + 4 * n), weights[j]);
    }
    float out[16];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) vst1q_f32(out + 4 * n, sum[n]);
    std::copy_n(out, std::min(16, v_dim - i), sums + i);
  }
}

template <KvType type>
void attend(const AttendChunk& chunk) {
  int32_t k_stride = up_to(chunk.k_dim, 16), v_stride = up_to(chunk.v_dim, 16), columns = up_to(chunk.positions, 4);
  float* widened = reinterpret_cast<float*>(chunk.scratch);  // [kAttendChunk, stride]
  float* scores = widened + kAttendChunk * kHeadDim;         // [queries, kAttendChunk]
  float* query = scores + kAttendQueries * kAttendChunk;     // [kHeadDim]
  widen_chunk<type>(chunk.keys, chunk.positions, chunk.k_dim, k_stride, widened);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    float* row = scores + i * kAttendChunk;
    std::fill_n(row + chunk.positions, columns - chunk.positions, 0.0f);
    std::fill_n(query + chunk.k_dim, k_stride - chunk.k_dim, 0.0f);
    std::copy_n(chunk.q[i], chunk.k_dim, query);
    for (int32_t j = 0; j < chunk.positions; ++j) row[j] = dot(query, widened + j * k_stride, k_stride);
    Scores finished = finish_scores(chunk, i, columns, row);
    chunk.most[i] = finished.most;
    chunk.total[i] = finished.most == kNothing ? 0.0f : exponentials(row, columns, finished);
  }
  widen_chunk<type>(chunk.values, chunk.positions, chunk.v_dim, v_stride, widened);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    if (chunk.most[i] == kNothing) {
      std::fill_n(chunk.sums + i * chunk.sums_stride, chunk.v_dim, 0.0f);
    } else {
      weigh(chunk, i, scores + i * kAttendChunk, widened, v_stride);
    }
  }
}

static_assert((kAttendChunk * kHeadDim + kAttendQueries * kAttendChunk + kHeadDim) * sizeof(float) <= kWorkerBytes / 2);

// A cache of any form. Keys or values of it, and where a position has its factor.
struct Side {
  DType type;
  int32_t dim;
  const std::byte* const* from;

  const std::byte* factor(const AttendChunk& chunk, int32_t j) const {
    const int64_t tokens = chunk.kv->page_tokens, within = (chunk.first + j) % tokens;
    return from[j] - kv_codes_at(type, dim, within) + kv_factor_at(type, dim, tokens, within);
  }
  float number(const AttendChunk& chunk, int32_t j) const {
    float value;
    std::memcpy(&value, factor(chunk, j), sizeof value);
    return value;
  }
  bool bytes(int32_t read) const { return type == DType::i8 && read % 16 == 0; }
  // The first `read` numbers of every position, zero up to the stride.
  void widen(const AttendChunk& chunk, int32_t read, int32_t stride, float* out) const {
    for (int32_t j = 0; j < chunk.positions; ++j) {
      std::fill_n(out + j * stride, stride, 0.0f);
      if (from[j] != nullptr) kv_read(type, from[j], factor(chunk, j), read, out + j * stride);
    }
  }
};

// Scores of a query in `row`: positions that are there.
void score_any(const AttendChunk& chunk, const Side& keys, const float* q, const float* widened, float* row) {
  const int32_t stride = up_to(chunk.k_dim, 16);
  alignas(64) float query[kHeadDim + 16];
  std::fill_n(query + chunk.k_dim, stride - chunk.k_dim, 0.0f);
  std::copy_n(q, chunk.k_dim, query);
  if (chunk.kv->form.turns_keys()) kv_turn(query, chunk.k_dim);
  if (!keys.bytes(chunk.k_dim)) {
    for (int32_t j = 0; j < chunk.positions; ++j) row[j] = dot(query, widened + j * stride, stride);
    return;
  }
  alignas(16) int8_t high[kHeadDim], low[kHeadDim];
  const float scale = split(query, chunk.k_dim, high, low);
  for (int32_t j = 0; j < chunk.positions; ++j) {
    row[j] = 0;
    if (keys.from[j] == nullptr) continue;
    const auto* key = reinterpret_cast<const int8_t*>(keys.from[j]);
    row[j] = product(key, high, low, chunk.k_dim) * (scale * keys.number(chunk, j));
  }
}

// The sums of all queries from values of eight bits.
void weigh_any_bytes(const AttendChunk& chunk, const Side& values, const float* scores, SplitWeights* weights) {
  const int8_t* at[kAttendChunk] = {};
  float factors[kAttendChunk];
  for (int32_t j = 0; j < chunk.positions; ++j) {
    at[j] = reinterpret_cast<const int8_t*>(values.from[j]);
    factors[j] = at[j] != nullptr ? values.number(chunk, j) : 0.0f;
  }
  const int32_t positions = up_to(chunk.positions, 16);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    alignas(16) float shares[kAttendChunk] = {};
    if (chunk.most[i] != kNothing)
      for (int32_t j = chunk.begin[i]; j < std::min(chunk.end[i], chunk.positions); ++j)
        shares[j] = scores[i * kAttendChunk + j] * factors[j];
    weights[i].scale = split(shares, positions, weights[i].high, weights[i].low);
  }
  int32_t i = 0;
  for (; i + 2 <= chunk.queries; i += 2)
    weigh_bytes<2>(weights + i, at, positions, chunk.v_dim, chunk.sums + i * chunk.sums_stride, chunk.sums_stride);
  if (i < chunk.queries)
    weigh_bytes<1>(weights + i, at, positions, chunk.v_dim, chunk.sums + i * chunk.sums_stride, chunk.sums_stride);
}

void attend_any(const AttendChunk& chunk) {
  const KvView& kv = *chunk.kv;
  const bool latent = kv.v_dim == 0;
  const Side keys = {kv.form.k, kv.k_dim, chunk.keys};
  const Side values = {latent ? kv.form.k : kv.form.v, latent ? kv.k_dim : kv.v_dim, chunk.values};
  int32_t v_stride = up_to(chunk.v_dim, 16), columns = up_to(chunk.positions, 4);
  float* widened = reinterpret_cast<float*>(chunk.scratch);  // [kAttendChunk, stride], or split weights
  float* scores = widened + kAttendChunk * kHeadDim;         // [queries, kAttendChunk]
  if (!keys.bytes(chunk.k_dim)) keys.widen(chunk, chunk.k_dim, up_to(chunk.k_dim, 16), widened);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    float* row = scores + i * kAttendChunk;
    std::fill_n(row + chunk.positions, columns - chunk.positions, 0.0f);
    score_any(chunk, keys, chunk.q[i], widened, row);
    Scores finished = finish_scores(chunk, i, columns, row);
    chunk.most[i] = finished.most;
    chunk.total[i] = finished.most == kNothing ? 0.0f : exponentials(row, columns, finished);
  }
  if (values.bytes(chunk.v_dim))
    return weigh_any_bytes(chunk, values, scores, reinterpret_cast<SplitWeights*>(widened));
  values.widen(chunk, chunk.v_dim, v_stride, widened);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    if (chunk.most[i] == kNothing) {
      std::fill_n(chunk.sums + i * chunk.sums_stride, chunk.v_dim, 0.0f);
    } else {
      weigh(chunk, i, scores + i * kAttendChunk, widened, v_stride);
    }
  }
}

static_assert(kAttendQueries * sizeof(SplitWeights) <= kAttendChunk * kHeadDim * sizeof(float));

// With fast activations shapes of whole blocks have their own kernel.
template <Stored stored, KvType type>
void attend_half(const AttendChunk& chunk) {
  has_blocks(*chunk.kv, chunk.v_dim) ? BlockAttention<stored>::attend(chunk) : attend<type>(chunk);
}

void merge(float chunk_most, float chunk_total, const float* chunk_sums, float* most, float* total, float* sums,
           int64_t count) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (chunk_most == kNone) return;
  if (*most == kNone) {  // the first: taken as it is
    std::copy_n(chunk_sums, count, sums);
    *total = chunk_total;
    *most = chunk_most;
    return;
  }
  float highest = std::max(*most, chunk_most);
  float apart[4] = {*most - highest, chunk_most - highest};
  vst1q_f32(apart, exp_f32(vld1q_f32(apart)));
  float keep = apart[0], take = apart[1];
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    float32x4_t a = vmulq_n_f32(vld1q_f32(sums + i), keep), b = vmulq_n_f32(vld1q_f32(sums + i + 4), keep);
    vst1q_f32(sums + i, vfmaq_n_f32(a, vld1q_f32(chunk_sums + i), take));
    vst1q_f32(sums + i + 4, vfmaq_n_f32(b, vld1q_f32(chunk_sums + i + 4), take));
  }
  for (; i < count; ++i) sums[i] = std::fma(chunk_sums[i], take, sums[i] * keep);
  *total = std::fma(chunk_total, take, *total * keep);
  *most = highest;
}

void divide(const float* sums, float total, float* out, int64_t count) {
  float factor = total > 0 ? 1 / total : 0;
  map_floats(count, sums, out, [=](float32x4_t x, int64_t) { return vmulq_n_f32(x, factor); });
}

}  // namespace

void neon_attend_f16(const AttendChunk& chunk) { attend<kKvF16>(chunk); }

void add_neon_attend(Kernels& kernels) {
  for (auto& mode : kernels.attend)
    mode[kKvF32] = attend<kKvF32>, mode[kKvF16] = attend<kKvF16>, mode[kKvBf16] = attend<kKvBf16>;
  constexpr size_t kFast = static_cast<size_t>(Activations::fast);
  kernels.attend[kFast][kKvF16] = attend_half<Stored::f16, kKvF16>;
  kernels.store[kFast][kKvF16] = BlockAttention<Stored::f16>::store;
  kernels.attend[kFast][kKvBf16] = attend_half<Stored::bf16, kKvBf16>;
  kernels.attend[kFast][kKvAny] = attend_any;
  kernels.store[kFast][kKvBf16] = BlockAttention<Stored::bf16>::store;
  // One instruction widens four numbers; of float16 it takes two, or one in two places.
  kernels.fastest_kv = DType::bf16;
  kernels.ahead_queries = kFewQueries + 1;
  kernels.merge = merge;
  kernels.divide = divide;
}

}  // namespace millrace::cpu
