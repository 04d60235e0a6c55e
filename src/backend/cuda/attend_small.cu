// Keys and values of fewer bits, in heads of 64 and 128: a chunk's codes are copied to shared memory as they lie in
// their pages and widened there, number times factor, rounded once to bfloat16. From there on all is as for a cache of
// bfloat16 (attend.cuh), for single rows (attend_stretch.cuh) and pieces of many (attend_chunk.cuh) alike, so a row has
// the same bits in either. Every GPU has the instructions.
#include <algorithm>

#include "backend/cuda/attend_chunk.cuh"
#include "backend/cuda/attend_stretch.cuh"

namespace millrace::cuda {
namespace {

using T = __nv_bfloat16;

// Keys or values of all tokens.
struct Codes {
  DType type;
  int code_bytes;      // of a token's head
  int64_t offset;      // in a page
  int64_t head_bytes;  // of a head's part of a page
  bool factors;        // one for each token's head, behind all codes
};
Codes codes_of(DType type, int dim, int64_t offset, int page_tokens) {
  return {type, static_cast<int>(kv_code_bytes(type, dim)), offset, page_tokens * kv_bytes(type, dim),
          type != DType::q4_0};
}

// In shared memory: what is multiplied, then keys and values as they came, factors behind codes.
template <int D>
struct Room {
  static constexpr int kWide = kChunk * D * 2;
  static constexpr int kFactorsAt = kChunk * D, kCoded = kChunk * (D + 4);
  static constexpr int kKeysAt = kWide, kValuesAt = kKeysAt + kCoded, kAll = kValuesAt + kCoded;
};

// A warp copies so many positions of a page at a time.
constexpr int kRun = 16;

// The codes of a chunk's positions up to the last page that has one before `end`. Of Threads that call it together.
template <int D, int Threads>
__device__ void bring_codes(const KvView& kv, const Codes& side, const int32_t* pages, int kv_head, int first, int end,
                            uint32_t to, int thread) {
  const int lane = thread % 32, shift = 31 - __clz(kv.page_tokens), run = min(kv.page_tokens, kRun);
  const int of_codes = run * side.code_bytes / 16, all = of_codes + (side.factors ? run / 4 : 0);
#pragma unroll 1
  for (int r = thread / 32; r < kChunk / run; r += Threads / 32) {
    const int at = first + r * run, within = at & (kv.page_tokens - 1);
    if (at >= end) break;
    const std::byte* part =
        kv.base + side.offset + int64_t{max(pages[at >> shift], 0)} * kv.page_stride + kv_head * side.head_bytes;
    const std::byte* codes = part + within * side.code_bytes;
    const std::byte* factors = part + kv.page_tokens * side.code_bytes + within * 4;
    const uint32_t codes_to = to + static_cast<uint32_t>(r * run * side.code_bytes);
    const uint32_t factors_to = to + static_cast<uint32_t>(Room<D>::kFactorsAt + r * run * 4);
    for (int i = lane; i < all; i += 32) {
      if (i < of_codes)
        copy_16(codes_to + static_cast<uint32_t>(i * 16), codes + i * 16, 16);
      else
        copy_16(factors_to + static_cast<uint32_t>((i - of_codes) * 16), factors + (i - of_codes) * 16, 16);
    }
  }
}

// 2^23 and the byte number `i` of a word, as a float32.
__device__ inline float above_2_23(uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7650u | static_cast<uint32_t>(i)));
}

// Eight numbers of a position, piece number `piece` of its head.
template <int D>
struct Widened {
  const char* raw;
  const Codes& side;

  __device__ float factor(int position) const {
    return *reinterpret_cast<const float*>(raw + Room<D>::kFactorsAt + position * 4);
  }
  __device__ uint2 bytes(int position, int piece) const {
    return *reinterpret_cast<const uint2*>(raw + position * D + piece * 8);
  }
  __device__ uint4 of_integers(int position, int piece) const {
    const uint2 eight = bytes(position, piece);
    const float each = factor(position);
    auto pair = [&](uint32_t word, int i) {
      word ^= 0x80808080u;
      return two<T>((above_2_23(word, i) - 8388736.0f) * each, (above_2_23(word, i + 1) - 8388736.0f) * each);
    };
    return {pair(eight.x, 0), pair(eight.x, 2), pair(eight.y, 0), pair(eight.y, 2)};
  }
  // E4M3 in a float16: its exponent is 8 too low.
  __device__ uint4 of_floats(int position, int piece) const {
    const uint2 eight = bytes(position, piece);
    const float each = factor(position) * 256.0f;
    auto pair = [&](uint32_t word, uint32_t which) {
      const uint32_t high = __byte_perm(word, 0, which), bits = (high & 0x80008000u) | (high >> 1 & 0x3F803F80u);
      const float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(&bits));
      return two<T>(numbers.x * each, numbers.y * each);
    };
    return {pair(eight.x, 0x1404u), pair(eight.x, 0x3424u), pair(eight.y, 0x1404u), pair(eight.y, 0x3424u)};
  }
  __device__ uint4 of_fours(int position, int piece) const {
    const char* group = raw + position * side.code_bytes + piece / 4 * 18;
    const auto* halves = reinterpret_cast<const uint16_t*>(group);
    const float each = __half2float(__ushort_as_half(halves[0]));
    const uint16_t* codes = halves + 1 + piece % 2 * 4;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = (piece % 4 < 2 ? uint32_t{codes[i]} : uint32_t{codes[i]} >> 4) & 0x0F0Fu;
      pairs[i] = two<T>((above_2_23(word, 0) - 8388616.0f) * each, (above_2_23(word, 1) - 8388616.0f) * each);
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
};

// A chunk's numbers as products take them; zeros from `end` on.
template <int D, int Threads>
__device__ void widen_codes(const Codes& side, const char* raw, int first, int end, uint32_t to, int thread) {
  constexpr int kPieces = D / 8;
  const Widened<D> numbers = {raw, side};
  auto each = [&](auto&& of) {
#pragma unroll 4
    for (int i = thread; i < kChunk * kPieces; i += Threads) {
      const int position = i / kPieces, piece = i % kPieces;
      uint4 eight = {};
      if (first + position < end) eight = of(position, piece);
      const uint32_t place =
          to + static_cast<uint32_t>(piece / 8 * kChunk * 128 + position * 128 + ((piece ^ position) & 7) * 16);
      asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(place), "r"(eight.x), "r"(eight.y), "r"(eight.z),
                   "r"(eight.w)
                   : "memory");
    }
  };
  if (side.type == DType::i8) {
    each([&](int position, int piece) { return numbers.of_integers(position, piece); });
  } else if (side.type == DType::f8_e4m3) {
    each([&](int position, int piece) { return numbers.of_floats(position, piece); });
  } else {
    each([&](int position, int piece) { return numbers.of_fours(position, piece); });
  }
}

// ---- single rows

template <int D>
struct Coded {
  static constexpr int kJoinBatch = D == 128 ? 16 : 8;
  static constexpr int kRoomBytes = Room<D>::kWide;
  static_assert(kTeamWarps * Joiner<D, kJoinBatch>::kRooms * Joiner<D, kJoinBatch>::kRoom <= kRoomBytes);
  const Team<T, D>& team;
  const DeviceStep& step;
  const KvView& kv;
  const Codes &of_keys, &of_values;
  char* room;
  uint32_t place;  // of the room
  int thread;
  const int32_t* pages = nullptr;
  int kv_head = 0, next_keys = 0, next_values = 0, last = 0, seen_end = 0;

  __device__ void bring(int& chunk, const Codes& side, int at) {
    if (chunk < last)
      bring_codes<D, kTeamThreads>(kv, side, pages, kv_head, chunk * kChunk, seen_end,
                                   place + static_cast<uint32_t>(at), thread);
    copies_end();
    ++chunk;
  }
  // What was asked for longest ago is there, and nobody reads what is overwritten.
  __device__ uint32_t widened(int chunk, const Codes& side, int at) {
    copies_wait<1>();
    team.sync();
    widen_codes<D, kTeamThreads>(side, room + at, chunk * kChunk, seen_end, place, thread);
    team.sync();
    return place;
  }
  __device__ void begin(const ChunkPlace& where, int first, int to, int end) {
    pages = step.pages + int64_t{where.sequence} * step.page_stride;
    kv_head = where.kv_head;
    next_keys = next_values = first;
    last = to;
    seen_end = end;
    bring(next_keys, of_keys, Room<D>::kKeysAt);
    bring(next_values, of_values, Room<D>::kValuesAt);
  }
  __device__ uint32_t keys() {
    const uint32_t wide = widened(next_keys - 1, of_keys, Room<D>::kKeysAt);
    bring(next_keys, of_keys, Room<D>::kKeysAt);
    return wide;
  }
  __device__ void keys_read() {}
  __device__ void keys_free() {}
  __device__ uint32_t values() {
    const uint32_t wide = widened(next_values - 1, of_values, Room<D>::kValuesAt);
    bring(next_values, of_values, Room<D>::kValuesAt);
    return wide;
  }
  __device__ void values_read() {}
};

template <int D, bool Shaped>
__global__ void __launch_bounds__(kTeamThreads)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ Codes keys,
                 const __grid_constant__ Codes values, const __grid_constant__ View out,
                 const __grid_constant__ AttendPlan::Fresh fresh, const int32_t* first_item, float* partials,
                 unsigned* finished, const StretchStart* stretches) {
  using Four = Team<T, D>;
  extern __shared__ __align__(128) char room[];
  __shared__ Exchange exchange;
  __shared__ __align__(16) char queries[Four::kQueryBytes];
  __shared__ unsigned before[2];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < Four::kQueryBytes / 16; i += kTeamThreads)
    reinterpret_cast<uint4*>(queries)[i] = {0, 0, 0, 0};
  __syncthreads();
  const ChunkList work = {first_item, step.sequences, kv.kv_heads};
  const StretchStart start = stretches[blockIdx.x];
  Four team = {exchange, shared_address(queries), 1, kChunk, thread / 32, {}, {}, {}};
  Stretch<T, D, Shaped, Coded<D>> stretch = {.step = step,
                                             .attention = attention,
                                             .kv = kv,
                                             .q = q,
                                             .out = out,
                                             .work = work,
                                             .fresh = fresh,
                                             .partials = partials,
                                             .finished = finished,
                                             .before = before,
                                             .team = team,
                                             .start = start,
                                             .shares = start.shares,
                                             .me = static_cast<int>(blockIdx.x),
                                             .thread = thread,
                                             .group = attention.heads / kv.kv_heads};
  Coded<D> coded = {team, step, kv, keys, values, room, shared_address(room), thread};
  stretch.run(coded, shared_address(room));
}

template <int D, bool Shaped>
void start_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                 const KvView& kv, const Codes& keys, const Codes& values, const View& out, const AttendPlan& plan) {
  // All of them run at the same time: no more than there is room for.
  static const int beside = [] {
    prepare(short_kernel<D, Shaped>, Room<D>::kAll);
    int number = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, short_kernel<D, Shaped>, kTeamThreads, Room<D>::kAll);
    return std::max(number, 1);
  }();
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  const int teams = static_cast<int>(std::min({int64_t{multiprocessors()} * beside, most, int64_t{kMostTeams}}));
  const StretchStart* stretches = find_stretches(stream, step, plan, kv.kv_heads, teams);
  launch(stream, short_kernel<D, Shaped>, count(teams), kTeamThreads, static_cast<size_t>(Room<D>::kAll), step,
         attention, q, kv, keys, values, out, plan.fresh, plan.first_item, plan.partials, plan.finished, stretches);
}

// ---- pieces of many rows

constexpr int kLongThreads = kTileQueries / 16 * 32;

template <int D>
struct LongRoom {
  static constexpr int kQueryBytes = 64 * D * 2;  // of 64 queries, as put_queries() lays them
  static constexpr int kRoomAt = kTileQueries / 64 * kQueryBytes, kAll = kRoomAt + Room<D>::kAll;
  static_assert(kAll <= 99 << 10);
};

template <int D, bool Shaped>
__global__ void __launch_bounds__(kLongThreads, 1)
    long_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ Codes keys,
                const __grid_constant__ Codes values, const __grid_constant__ View out,
                const __grid_constant__ LongWork work) {
  extern __shared__ __align__(128) char raw[];
  char* room = raw + LongRoom<D>::kRoomAt;
  const uint32_t shared = shared_address(raw), wide = shared_address(room);
  const int thread = static_cast<int>(threadIdx.x), group = attention.heads / kv.kv_heads;
  wait_for_previous();
  // The longest come last in a piece: start with them.
  QueryTile tile = find_tile(step, attention, work, work.tiles - 1 - static_cast<int>(blockIdx.x), group);
  tile.kv_head = static_cast<int>(blockIdx.y);
  if (tile.sequence < 0) return;
  const int32_t* pages = step.pages + int64_t{tile.sequence} * step.page_stride;
  int first = tile.first_chunk * kChunk;
  const int last = first + (tile.chunks - 1) * kChunk;
  auto bring = [&](const Codes& side, int from, int at) {
    if (from <= last)
      bring_codes<D, kLongThreads>(kv, side, pages, tile.kv_head, from, tile.end, wide + static_cast<uint32_t>(at),
                                   thread);
    copies_end();
  };
  auto widened = [&](const Codes& side, int at) {
    copies_wait<1>();
    __syncthreads();  // what was asked for longest ago is there, and nobody reads what is overwritten
    widen_codes<D, kLongThreads>(side, room + at, first, tile.end, wide, thread);
    __syncthreads();
    bring(side, first + kChunk, at);
  };
  bring(keys, first, Room<D>::kKeysAt);
  bring(values, first, Room<D>::kValuesAt);
  const int half = thread / 128, mine = tile.first_query + thread / 32 * 16 + thread % 32 / 4;
  const uint32_t queries = shared + static_cast<uint32_t>(half * LongRoom<D>::kQueryBytes);
  put_queries<T, D>(q, tile, group, tile.first_query + half * 64, queries);
  auto sight = [&](int i) {
    return sight_of(step, attention, mine + 8 * i, tile.rows * group, tile.first_row, group, tile.kv_head);
  };
  const int seen_by_all = __reduce_min_sync(~0u, min(sight(0).end, sight(1).end)) - kChunk;
  const int seen_from = __reduce_max_sync(~0u, max(sight(0).begin, sight(1).begin));
  const float factor = Shaped ? kLog2e : attention.scale * kLog2e;
  float all[D / 2] = {}, base[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (; first <= last; first += kChunk) {
    widened(keys, Room<D>::kKeysAt);
    float scores[kChunk / 2];
    multiply_keys<T, D>(scores, queries + static_cast<uint32_t>(thread / 32 % 4 * 16 * 128), wide);
    const bool plain = first >= seen_from && first <= seen_by_all;
    if (Shaped || !plain) {
      const Sight both[2] = {sight(0), sight(1)};
      shape_scores<Shaped>(scores, first, plain, both, attention);
    }
    uint32_t weights[kChunk / 4];
    ChunkSums chunk = weigh<T>(scores, weights, factor);
    Factors factors[2];
    join_rows(base, total, chunk, factors);
    widened(values, Room<D>::kValuesAt);
    add_values<T, D>(all, weights, factors, wide);
  }
  put_results<D>(out, attention, tile, group, mine, base, total, all);
}

template <int D, bool Shaped>
void start_long(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                const KvView& kv, const Codes& keys, const Codes& values, const View& out, const AttendPlan& plan) {
  static const bool prepared = prepare(long_kernel<D, Shaped>, LongRoom<D>::kAll);
  static_cast<void>(prepared);
  // Each sequence may have one tile that is not full.
  const int64_t tiles = plan.long_rows * (attention.heads / kv.kv_heads) / kTileQueries + plan.long_queries;
  const LongWork work = {nullptr, static_cast<int32_t>(tiles), !plan.shorts};
  launch(stream, long_kernel<D, Shaped>, dim3(count(tiles), count(kv.kv_heads)), kLongThreads,
         static_cast<size_t>(LongRoom<D>::kAll), step, attention, q, kv, keys, values, out, work);
}

template <int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const AttendPlan& plan) {
  const Codes keys = codes_of(kv.form.k, kv.k_dim, kv.k_offset, kv.page_tokens);
  const Codes values = codes_of(kv.form.v, kv.v_dim, kv.v_offset, kv.page_tokens);
  if (plan.shorts) start_short<D, Shaped>(stream, step, attention, q, kv, keys, values, out, plan);
  if (plan.long_queries > 0) start_long<D, Shaped>(stream, step, attention, q, kv, keys, values, out, plan);
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
