// Attention of a few queries over one chunk of the cache. Keys are widened once for all queries; scores are sums of 16
// lanes, the softmax and the sum of values go by ascending position.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/scalar/scalar.h"
#include "tensor/half.h"

namespace millrace::cpu {
namespace {

constexpr int kLanes = 16;

struct F32 {
  using Stored = float;
  static float widen(float x) { return x; }
};
struct F16 {
  using Stored = uint16_t;
  static float widen(uint16_t x) { return f16_to_f32(x); }
};
struct Bf16 {
  using Stored = uint16_t;
  static float widen(uint16_t x) { return bf16_to_f32(x); }
};

// The key or value of position j of the chunk.
template <class Kv>
void widen(const AttendChunk&, int32_t, const std::byte* in, bool, float* out, int32_t count) {
  const auto* stored = reinterpret_cast<const typename Kv::Stored*>(in);
  for (int32_t i = 0; i < count; ++i) out[i] = Kv::widen(stored[i]);
}
struct Any {};
template <>
void widen<Any>(const AttendChunk& chunk, int32_t j, const std::byte* in, bool key, float* out, int32_t count) {
  const KvView& kv = *chunk.kv;
  const bool from_key = key || kv.v_dim == 0;
  const DType type = from_key ? kv.form.k : kv.form.v;
  const int64_t dim = from_key ? kv.k_dim : kv.v_dim, within = (chunk.first + j) % kv.page_tokens;
  const std::byte* part = in - kv_codes_at(type, dim, within);
  kv_read(type, in, part + kv_factor_at(type, dim, kv.page_tokens, within), count, out);
}

float dot(const float* a, const float* b, int32_t count) {
  float sum[kLanes] = {};
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i + lane < count; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
  }
  return sum[0];
}

float finish_score(const Attention& attention, const AttendChunk& chunk, int32_t query, int32_t j, float score) {
  score *= attention.scale;
  if (attention.softcap > 0) score = attention.softcap * std::tanh(score / attention.softcap);
  if (attention.slopes != nullptr) {
    score += attention.slopes[chunk.head[query]] * static_cast<float>(chunk.first + j - chunk.position[query]);
  }
  return score;
}

// Scores become exp(score - most); leaves most and total.
void softmax(const AttendChunk& chunk, int32_t query, float* scores) {
  float most = -std::numeric_limits<float>::infinity(), total = 0;
  for (int32_t j = chunk.begin[query]; j < chunk.end[query]; ++j) most = std::max(most, scores[j]);
  for (int32_t j = chunk.begin[query]; j < chunk.end[query]; ++j) {
    scores[j] = std::exp(scores[j] - most);
    total += scores[j];
  }
  chunk.most[query] = most;
  chunk.total[query] = total;
}

template <class Kv>
void attend(const AttendChunk& chunk) {
  float* widened = reinterpret_cast<float*>(chunk.scratch);  // [kHeadDim]
  float* scores = widened + kHeadDim;                        // [queries, kAttendChunk]
  float* turned = scores + kAttendQueries * kAttendChunk;    // [queries, k_dim], where keys are turned
  const bool turns = std::is_same_v<Kv, Any> && chunk.kv->form.turns_keys();
  for (int32_t query = 0; turns && query < chunk.queries; ++query) {
    std::copy_n(chunk.q[query], chunk.k_dim, turned + query * chunk.k_dim);
    kv_turn(turned + query * chunk.k_dim, chunk.k_dim);
  }
  auto sees = [&](int32_t query, int32_t j) { return j >= chunk.begin[query] && j < chunk.end[query]; };
  for (int32_t j = 0; j < chunk.positions; ++j) {
    if (chunk.keys[j] == nullptr) continue;
    widen<Kv>(chunk, j, chunk.keys[j], true, widened, chunk.k_dim);
    for (int32_t query = 0; query < chunk.queries; ++query) {
      if (!sees(query, j)) continue;
      float score = dot(turns ? turned + query * chunk.k_dim : chunk.q[query], widened, chunk.k_dim);
      scores[query * kAttendChunk + j] = finish_score(*chunk.attention, chunk, query, j, score);
    }
  }
  for (int32_t query = 0; query < chunk.queries; ++query) {
    softmax(chunk, query, scores + query * kAttendChunk);
    std::fill_n(chunk.sums + query * chunk.sums_stride, chunk.v_dim, 0.0f);
  }
  for (int32_t j = 0; j < chunk.positions; ++j) {
    if (chunk.values[j] == nullptr) continue;
    widen<Kv>(chunk, j, chunk.values[j], false, widened, chunk.v_dim);
    for (int32_t query = 0; query < chunk.queries; ++query) {
      if (!sees(query, j)) continue;
      float weight = scores[query * kAttendChunk + j];
      float* sums = chunk.sums + query * chunk.sums_stride;
      for (int32_t i = 0; i < chunk.v_dim; ++i) sums[i] += weight * widened[i];
    }
  }
}

static_assert((kHeadDim + kAttendQueries * (kAttendChunk + kHeadDim)) * sizeof(float) <= kWorkerBytes / 2);

void merge(float chunk_most, float chunk_total, const float* chunk_sums, float* most, float* total, float* sums,
           int64_t count) {
  if (chunk_most == -std::numeric_limits<float>::infinity()) return;
  float highest = std::max(*most, chunk_most);
  float keep = std::exp(*most - highest), take = std::exp(chunk_most - highest);
  for (int64_t i = 0; i < count; ++i) sums[i] = sums[i] * keep + chunk_sums[i] * take;
  *total = *total * keep + chunk_total * take;
  *most = highest;
}

void divide(const float* sums, float total, float* out, int64_t count) {
  float factor = total > 0 ? 1 / total : 0;
  for (int64_t i = 0; i < count; ++i) out[i] = sums[i] * factor;
}

}  // namespace

void add_scalar_attend(Kernels& kernels) {
  for (auto& mode : kernels.attend) mode = {attend<F32>, attend<F16>, attend<Bf16>, attend<Any>};
  kernels.merge = merge;
  kernels.divide = divide;
}

}  // namespace millrace::cpu
