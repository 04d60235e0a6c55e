// Keys and values of fewer bits, in heads of 64 and 128. A chunk's codes are copied to shared memory as they lie in
// their pages. Single rows widen them in registers (attend_coded_team.cuh); pieces of many rows in shared memory, once
// for all of a tile's rows. The numbers, their order and what is rounded are the same, so a row has the same bits in
// either. Every GPU has the instructions.
#include "backend/cuda/attend_coded_team.cuh"
#include "backend/cuda/attend_copied.cuh"
#include "backend/cuda/attend_piece.cuh"

namespace millrace::cuda {
namespace {

Codes codes_of(DType type, int dim, int64_t offset, int page_tokens) {
  return {type, static_cast<int>(kv_code_bytes(type, dim)), offset, page_tokens * kv_bytes(type, dim)};
}

// ---- single rows

template <int D>
struct TeamSide : CodeCopies<D, kTeamThreads> {
  using Base = CodeCopies<D, kTeamThreads>;
  using Known = CodedKv;
  using Four = CodedTeam<D>;
  static constexpr int kJoinBatch = D == 128 ? 16 : 8;
  static constexpr int kTeamsBeside = 4;
  static constexpr int kRoomBytes = CodeRoom<D>::kAll;

  __device__ TeamSide(const CodedKv& known, const KvView& kv, uint32_t room, int thread)
      : Base(known, kv, room, thread) {}
  __device__ Four team(Exchange& exchange, uint32_t queries) const {
    return {{exchange, queries, 1, kChunk, this->thread / 32, {}, {}, {}}, this->coded, this->room};
  }
};

// ---- pieces of many rows

// Codes as they came, then what is multiplied, and what scores and weights are multiplied with.
template <int D>
struct PieceSide : CodeCopies<D, kPieceThreads> {
  using Base = CodeCopies<D, kPieceThreads>;
  using Known = CodedKv;
  using Number = __nv_bfloat16;
  static constexpr int kDim = D;
  static constexpr bool kParted = true;
  static constexpr int kFactorsAt = CodeRoom<D>::kAll, kWideAt = kFactorsAt + 2 * kChunk * 4;
  static constexpr int kPieceRoomBytes = kWideAt + kChunk * D * 2;
  char* raw;
  int first_seen, end;  // positions before and from there on are seen by no row

  __device__ PieceSide(const CodedKv& known, const KvView& kv, char* raw_, int thread, int first_seen_, int end_)
      : Base(known, kv, shared_address(raw_), thread), raw(raw_), first_seen(first_seen_), end(end_) {}

  __device__ void put_eight(int position, int piece, const uint32_t (&pairs)[4]) const {
    const uint32_t place = this->room + static_cast<uint32_t>(kWideAt + piece / 8 * kChunk * 128 + position * 128 +
                                                              ((piece ^ position) & 7) * 16);
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(place), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]),
                 "r"(pairs[3])
                 : "memory");
  }
  // Sixteen numbers of a position as two pieces, parted or one after the other, from the two pairs of each word.
  template <bool Parted, class F>
  __device__ void put_sixteen(int position, int piece, F&& pair_of_word) const {
    uint32_t pieces[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        (Parted ? pieces[half][i] : pieces[i / 2][i % 2 * 2 + half]) = pair_of_word(i, half);
    }
    put_eight(position, piece, pieces[0]);
    put_eight(position, piece + 1, pieces[1]);
  }
  template <DType Kind, bool Parted>
  __device__ void widen_bytes(const char* codes) const {
#pragma unroll 2
    for (int i = this->thread; i < kChunk * (D / 16); i += kPieceThreads) {
      const int position = i / (D / 16), piece = i % (D / 16);
      const uint4 four = *reinterpret_cast<const uint4*>(codes + piece_at<D>(position, piece));
      const uint32_t words[4] = {ready<Kind>(four.x), ready<Kind>(four.y), ready<Kind>(four.z), ready<Kind>(four.w)};
      put_sixteen<Parted>(position, piece * 2, [&](int word, int half) {
        return half == 0 ? pair_of_codes<Kind, 0, 1>(words[word]) : pair_of_codes<Kind, 2, 3>(words[word]);
      });
    }
  }
  // Where nothing was written factors may be no numbers.
  template <bool Parted>
  __device__ void widen_fours(const char* codes, int code_bytes, int first) const {
#pragma unroll 1
    for (int i = this->thread; i < kChunk * (D / 32); i += kPieceThreads) {
      const int position = i / (D / 32), group = i % (D / 32);
      const auto* halves = reinterpret_cast<const uint16_t*>(codes + position * code_bytes + group * 18);
      const bool seen = first + position >= first_seen && first + position < end;
      const uint32_t factor = seen ? halves[0] : 0;
      const __nv_bfloat162 both = factors_of_fours(factor, factor), less = less_of_fours(both);
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = halves[1 + 2 * j] | uint32_t{halves[2 + 2 * j]} << 16;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        put_sixteen<Parted>(position, group * 4 + upper * 2, [&](int word, int half) {
          const uint32_t fours = words[word] >> (4 * upper) & kLowFours;
          return half == 0 ? pair_of_fours<0, 1>(fours, both, less) : pair_of_fours<2, 3>(fours, both, less);
        });
      }
    }
  }
  template <bool Parted>
  __device__ uint32_t widened(const Codes& side, int at, int first) const {
    by_code(side.type, [&](auto kind) {
      constexpr DType kKind = decltype(kind)::value;
      if constexpr (kKind == DType::q4_0)
        widen_fours<Parted>(raw + at, side.code_bytes, first);
      else
        widen_bytes<kKind, Parted>(raw + at);
    });
    __syncthreads();
    return this->room + kWideAt;
  }
  // The next chunk's factors come over those of this one before they have been used.
  __device__ void keep_factors(const Codes& side, int from, int to, int first) const {
    const int position = first + this->thread % kChunk;
    const bool seen = position >= first_seen && position < end;
    by_code(side.type, [&](auto kind) {
      constexpr DType kKind = decltype(kind)::value;
      float factor = 1;
      if constexpr (kKind != DType::q4_0) factor = reinterpret_cast<const float*>(raw + from)[this->thread % kChunk];
      reinterpret_cast<float*>(raw + kFactorsAt + to)[this->thread % kChunk] = seen ? factor * kMissing<kKind> : 0.0f;
    });
  }
  __device__ uint32_t keys(int first) const {
    if (this->thread < kChunk)
      keep_factors(this->coded.keys, CodeRoom<D>::kKeyFactorsAt, 0, first);
    else
      keep_factors(this->coded.values, CodeRoom<D>::kValueFactorsAt, kChunk * 4, first);
    return widened<true>(this->coded.keys, CodeRoom<D>::kKeysAt, first);
  }
  __device__ uint32_t values(int first) const {
    return widened<false>(this->coded.values, CodeRoom<D>::kValuesAt, first);
  }
  __device__ void keys_read() const {}  // what is widened lies elsewhere, and the loop meets before it is overwritten
  __device__ void values_read() const {}
  __device__ float2 factors(int at, int j) const {
    return load_factors(this->room + static_cast<uint32_t>(kFactorsAt + at + (j * 8 + this->thread % 4 * 2) * 4));
  }
  __device__ void scale_scores(float (&scores)[kChunk / 2]) const {
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
      const float2 each = factors(0, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[4 * j + i] *= i % 2 == 0 ? each.x : each.y;
    }
  }
  __device__ auto weight_scale() const {
    return [this](int j) { return factors(kChunk * 4, j); };
  }
};

template <int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const AttendPlan& plan) {
  const CodedKv known = {codes_of(kv.form.k, kv.k_dim, kv.k_offset, kv.page_tokens),
                         codes_of(kv.form.v, kv.v_dim, kv.v_offset, kv.page_tokens)};
  if (plan.shorts) start_copied_short<TeamSide<D>, Shaped>(stream, step, attention, q, kv, out, plan, known);
  if (plan.long_queries > 0) start_copied_long<PieceSide<D>, Shaped>(stream, step, attention, q, kv, out, plan, known);
}

bool coded(DType type) { return type == DType::i8 || type == DType::f8_e4m3 || type == DType::q4_0; }

}  // namespace

bool attend_small_fits(const Attention& attention, const KvView& kv) {
  return coded(kv.form.k) && coded(kv.form.v) && attend_fits_but_form(attention, kv);
}

void attend_small(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                  View out, const AttendPlan& plan) {
  const bool shapes = shapes_scores(attention);
  if (kv.k_dim == 64)
    (shapes ? start<64, true> : start<64, false>)(stream, step, attention, q, kv, out, plan);
  else
    (shapes ? start<128, true> : start<128, false>)(stream, step, attention, q, kv, out, plan);
}

cudaError_t load_attend_small() { return load_kernels(); }

}  // namespace millrace::cuda
