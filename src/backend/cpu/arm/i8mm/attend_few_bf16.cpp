// Attention of three or four queries over whole chunks of a bfloat16 cache: the sums of attend_bf16.cpp in the same
// order, arranged for one row at depth. Scores and values are bound by how lines come from the second cache, so all
// that is computed around them is done for all queries at once, and lines of the next chunk are asked for evenly all
// the time: asked for in a hurry they are dropped.
#include "backend/cpu/arm/i8mm/attend_bf16.h"
#include "backend/cpu/arm/i8mm/bfmmla.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kRuns = kAttendChunk / 16;  // of sixteen tokens, in a chunk
constexpr int32_t kPairs = 2;
constexpr int32_t kMostPieces = 4 * kHeadDim * kAttendChunk / Ahead::kPiece;

// Where the runs of a chunk lie, and what is read after them.
struct Runs {
  const std::byte *keys[kRuns + 1], *values[kRuns + 1];
};

Runs find_runs(const KvView& kv, const int32_t* pages, int32_t head) {
  Runs runs;
  const int32_t per_page = kv.page_tokens / 16, together = order_of(kv).tokens / 16;
  const int64_t keys = kv.k_offset + int64_t{head} * kv.page_tokens * kv.k_dim * 2;
  const int64_t values = kv.v_offset + int64_t{head} * kv.page_tokens * kv.v_dim * 2;
  for (int32_t i = 0; i < kRuns; ++pages) {
    const std::byte* page = kv.base + *pages * kv.page_stride;
    for (int32_t n = 0; n < per_page; ++n, ++i) {
      runs.keys[i] = page + keys + n * 32 * kv.k_dim;
      runs.values[i] = page + values + n / together * together * 32 * kv.v_dim + n % together * 512;
    }
  }
  runs.keys[kRuns] = runs.values[0];
  runs.values[kRuns] = runs.values[0] + order_of(kv).dimension(16);  // the next dimensions
  return runs;
}

// What is asked for early, piece by piece.
struct Pieces {
  const std::byte* at[kMostPieces];

  void fill(const KvView& kv, const int32_t* pages, int32_t head) {
    const std::byte** to = at;
    const int64_t k_bytes = int64_t{kv.page_tokens} * kv.k_dim * 2, v_bytes = int64_t{kv.page_tokens} * kv.v_dim * 2;
    for (int32_t i = 0; i < kAttendChunk; i += kv.page_tokens, ++pages) {
      const std::byte* page = kv.base + *pages * kv.page_stride;
      const std::byte *keys = page + kv.k_offset + head * k_bytes, *values = page + kv.v_offset + head * v_bytes;
      for (int64_t n = 0; n < k_bytes; n += Ahead::kPiece) *to++ = keys + n;
      for (int64_t n = 0; n < v_bytes; n += Ahead::kPiece) *to++ = values + n;
    }
  }
  void fill(const KvView& kv, const std::byte* near) {
    std::fill_n(at, (kv.k_dim + kv.v_dim) * kAttendChunk * 2 / Ahead::kPiece, near);
  }
};

// Scratch of the kernel in the worker's scratch.
struct Scratch {
  alignas(64) std::byte queries[kHeadDim * kPairs * 4];      // [k_dim / 4][pairs][2][4]
  alignas(64) std::byte weights[kAttendChunk * kPairs * 4];  // [positions / 4][pairs][2][4]
  alignas(64) float scores[2 * kPairs][kAttendChunk];
  Pieces pieces;
};
static_assert(sizeof(Scratch) <= kWorkerBytes / 2);

template <int Queries>
void arrange_queries(const AttendRun& run, std::byte* out) {
  const int32_t dims = run.kv->k_dim;
  for (int32_t d = 0; d < dims; d += kStep) {
#pragma GCC unroll 2
    for (int m = 0; m < kPairs; ++m, out += 16) {
      bfloat16x8_t pair = vcvtq_low_bf16_f32(vld1q_f32(run.q + 2 * m * dims + d));
      if (2 * m + 1 < Queries) pair = vcvtq_high_bf16_f32(pair, vld1q_f32(run.q + (2 * m + 1) * dims + d));
      vst1q_bf16(reinterpret_cast<bfloat16_t*>(out), pair);
    }
  }
}

// The first queries' rows of [pair][columns / 2].
template <int Queries>
[[gnu::always_inline]] inline void rows_of(const Sums& sums, float32x4_t (&rows)[Queries][4]) {
#pragma GCC unroll 4
  for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      float64x2_t a = vreinterpretq_f64_f32(sums.of[i / 2][2 * n]);
      float64x2_t b = vreinterpretq_f64_f32(sums.of[i / 2][2 * n + 1]);
      rows[i][n] = vreinterpretq_f32_f64(i % 2 == 0 ? vzip1q_f64(a, b) : vzip2q_f64(a, b));
    }
  }
}

// Scores of a chunk; returns the largest of each query.
template <int Queries>
float32x4_t score(const AttendRun& run, const Runs& runs, const std::byte* const* pieces, Scratch& room) {
  float32x4_t most[4] = {};
  const int32_t dims = run.kv->k_dim;
  for (int32_t r = 0; r < kRuns; ++r, pieces += dims / 64 * kPiecesPerSixteen) {
    float32x4_t rows[Queries][4];
    rows_of(score_sixteen(runs.keys[r], runs.keys[r + 1], 16 * dims, room.queries, dims / kStep, pieces), rows);
#pragma GCC unroll 4
    for (int i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) vst1q_f32(room.scores[i] + 16 * r + 4 * n, rows[i][n]);
      float32x4_t largest = vmaxq_f32(vmaxq_f32(rows[i][0], rows[i][1]), vmaxq_f32(rows[i][2], rows[i][3]));
      most[i] = r == 0 ? largest : vmaxq_f32(most[i], largest);
    }
  }
  float32x4_t pairs[2] = {vpmaxq_f32(most[0], most[1]), vpmaxq_f32(most[2], most[3])};
  return vmulq_n_f32(vpmaxq_f32(pairs[0], pairs[1]), run.attention->scale);
}

// Scores become weights, eight positions of all queries at a time; returns their totals as they were rounded.
template <int Queries>
float32x4_t weigh_scores(const AttendRun& run, float32x4_t most, const std::byte* const* pieces, Scratch& room) {
  const float factor = run.attention->scale * kLog2e;
  const int32_t more = (run.kv->k_dim + run.kv->v_dim) / 128;
  const bfloat16x8_t ones = bf16_ones();
  float32x4_t nothing = vreinterpretq_f32_u32(vceqq_f32(most, vdupq_n_f32(kNothing)));
  float offsets[4];
  vst1q_f32(offsets, vbslq_f32(vreinterpretq_u32_f32(nothing), vdupq_n_f32(0), vmulq_n_f32(vnegq_f32(most), kLog2e)));
  float32x4_t offset[Queries], sum[kPairs] = {vdupq_n_f32(0), vdupq_n_f32(0)};
#pragma GCC unroll 4
  for (int i = 0; i < Queries; ++i) offset[i] = vdupq_n_f32(offsets[i]);
  std::byte* weights = room.weights;
  const Exp2Constants constants;
  for (int32_t j = 0; j < kAttendChunk; j += 8, weights += 2 * kPairs * 16) {
    float32x4_t x[2 * Queries];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * Queries; ++i)
      x[i] = vfmaq_n_f32(again(offset[i / 2]), vld1q_f32(room.scores[i / 2] + j + i % 2 * 4), factor);
    for (int32_t i = 0; i < more; ++i) ask_for(*pieces++);
    exp2_rough(constants, x);
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kPairs; ++i) {  // [four][pair]
      const int m = i % kPairs, four = i / kPairs;
      bfloat16x8_t pair = vcvtq_low_bf16_f32(x[4 * m + four]);
      if (2 * m + 1 < Queries) pair = vcvtq_high_bf16_f32(pair, x[(4 * m + 2 + four) % (2 * Queries)]);
      vst1q_bf16(reinterpret_cast<bfloat16_t*>(weights + i * 16), pair);
      sum[m] = vbfmmlaq_f32(sum[m], pair, ones);
    }
  }
  return vuzp1q_f32(sum[0], sum[1]);
}

// The values of a chunk become the sums of the queries, or are taken in by them: sums * keep + values * take.
template <int Queries>
void weigh_values(const AttendRun& run, const Runs& runs, bool first, float32x4_t keep, float32x4_t take,
                  const std::byte* const* pieces, const Scratch& room) {
  const Order order = order_of(*run.kv);
  float keeps[4], takes[4];
  vst1q_f32(keeps, keep);
  vst1q_f32(takes, take);
  for (int32_t dim = 0; dim < run.kv->v_dim; dim += 16, pieces += kRuns / 4 * kPiecesPerSixteen) {
    float32x4_t rows[Queries][4];
    rows_of(weigh_sixteen(runs.values, order.dimension(dim), kRuns, room.weights, pieces), rows);
#pragma GCC unroll 4
    for (int i = 0; i < Queries; ++i) {
      float* sums = run.partials + i * run.stride + 2 + dim;
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        float32x4_t sum = rows[i][n];
        if (!first) sum = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(sums + 4 * n), keeps[i]), sum, takes[i]);
        vst1q_f32(sums + 4 * n, sum);
      }
    }
  }
}

template <int Queries>
void attend(const AttendRun& run) {
  Scratch& room = *reinterpret_cast<Scratch*>(run.scratch);
  const KvView& kv = *run.kv;
  const int32_t pages = kAttendChunk / kv.page_tokens;  // of a chunk
  arrange_queries<Queries>(run, room.queries);
  Softmax running;
  float32x4_t keep = vdupq_n_f32(0), take = keep;
  for (int32_t c = 0; c < run.chunks; ++c) {
    Runs runs = find_runs(kv, run.pages + c * pages, run.kv_head);
    if (c + 1 < run.chunks) {
      room.pieces.fill(kv, run.pages + (c + 1) * pages, run.kv_head);
    } else if (run.next_pages != nullptr) {
      room.pieces.fill(kv, run.next_pages, run.next_head);
    } else {
      room.pieces.fill(kv, room.queries);
    }
    const std::byte* const* pieces = room.pieces.at;
    Softmax chunk;
    chunk.most = score<Queries>(run, runs, pieces, room);
    pieces += kv.k_dim / 64 * kRuns * kPiecesPerSixteen;
    chunk.total = weigh_scores<Queries>(run, chunk.most, pieces, room);
    pieces += (kv.k_dim + kv.v_dim) / 128 * (kAttendChunk / 8);
    c == 0 ? void(running = chunk) : merge(chunk, running, keep, take);
    weigh_values<Queries>(run, runs, c == 0, keep, take, pieces, room);
  }
  float most[4], total[4];
  vst1q_f32(most, running.most);
  vst1q_f32(total, running.total);
  for (int i = 0; i < Queries; ++i) {
    run.partials[i * run.stride] = most[i];
    run.partials[i * run.stride + 1] = total[i];
  }
}

}  // namespace

bool i8mm_attend_few_bf16(const AttendRun& run) {
  const KvView& kv = *run.kv;
  if (!is_plain(*run.attention) || kv.page_tokens % 16 != 0 || kAttendChunk % kv.page_tokens != 0 ||
      kv.k_dim % 64 != 0 || kv.v_dim % 64 != 0)
    return false;
  if (run.queries == 3) return attend<3>(run), true;
  if (run.queries == 4) return attend<4>(run), true;
  return false;
}

}  // namespace millrace::cpu
