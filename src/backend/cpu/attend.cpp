// Attention on the team. A tile is some rows of one sequence and some kv heads with the heads that share them. Few
// tiles (decoding): the chunks of each are computed apart by all workers and merged in order. Many tiles: a worker
// walks one tile's chunks in order. Both sum the same chunks in the same order, so which way was taken cannot show.
//
// A page keeps one head after another, a few kilobytes each. A machine that sees a run of memory being read fetches
// what lies behind it, so rows that are few take all kv heads of a chunk before they go on: what was fetched is needed.
#include <algorithm>
#include <limits>

#include "backend/cpu/ops.h"
#include "backend/row_math.h"
#include "base/check.h"

namespace millrace::cpu {

namespace {

// Bytes of a chunk, all kv heads of a tile: they and the next stay in a second cache.
constexpr int64_t kTogether = 256 << 10;
constexpr int32_t kRowsTogether = 8;    // kernels take eight queries, or more, at a time: no tile has some left
constexpr int64_t kTasksPerWorker = 4;  // so that a worker held up does not hold up all

// The running softmax of one query, or a chunk's; laid out as [most, total, sums...].
struct Partial {
  float* values;
  float& most() const { return values[0]; }
  float& total() const { return values[1]; }
  float* sums() const { return values + 2; }
};

bool whole_blocks(const KvView& kv) {
  return kv.page_tokens % kKvBlock == 0 && kv.k_dim % kKvBlock == 0 && kv.v_dim % kKvBlock == 0 && kv.v_dim > 0;
}

// The fewest equal parts of a kv head's queries that fit a tile of `most`.
int32_t parts_of(int32_t group, int32_t most) {
  int32_t parts = (group + most - 1) / most;
  while (group % parts != 0) ++parts;
  return parts;
}

int64_t entry_floats(int32_t v_dim) { return aligned((v_dim + 2) * static_cast<int64_t>(sizeof(float))) / 4; }

}  // namespace

// Where a chunk of one kv head of a tile lies.
void CpuOps::look_ahead(const Tile& tile, int32_t index, int64_t chunk, Ahead& ahead) const {
  const KvView& kv = *tile.kv;
  if (kv.page_tokens < kKvBlock) return;
  const PageTables& tables = step_->groups[static_cast<size_t>(kv.group)];
  const int32_t* pages = tables.pages + int64_t{tile.sequence} * tables.stride;
  int64_t k_bytes = kv_code_bytes(kv.form.k, kv.k_dim), v_bytes = kv_code_bytes(kv.form.v, kv.v_dim);
  int64_t begin = std::max(tile.begin, chunk * kAttendChunk), end = std::min(tile.end, (chunk + 1) * kAttendChunk);
  const int64_t head = tile.kv_head(index), k_all = kv_bytes(kv.form.k, kv.k_dim),
                v_all = kv_bytes(kv.form.v, kv.v_dim);
  int64_t page = begin / kv.page_tokens, within = begin % kv.page_tokens;
  for (int64_t p = begin; p < end; ++page, within = 0) {
    int64_t count = std::min(end - p, kv.page_tokens - within);
    const std::byte* base = kv.base + pages[page] * kv.page_stride;
    // The factors of a head's part lie behind its codes.
    const bool whole = count == kv.page_tokens;
    ahead.add(base + kv.k_offset + head * kv.page_tokens * k_all + within * k_bytes, count * (whole ? k_all : k_bytes));
    ahead.add(base + kv.v_offset + head * kv.page_tokens * v_all + within * v_bytes, count * (whole ? v_all : v_bytes));
    p += count;
  }
}

// Where the keys and values of positions [first + unseen, first + positions) of a kv head lie, for a kernel.
void CpuOps::point_at(const Tile& tile, int32_t kv_head, int64_t first, int32_t unseen, int32_t positions,
                      const std::byte** keys, const std::byte** values) const {
  const KvView& kv = *tile.kv;
  const PageTables& tables = step_->groups[static_cast<size_t>(kv.group)];
  const int32_t* pages = tables.pages + int64_t{tile.sequence} * tables.stride;
  int64_t k_bytes = kv_code_bytes(kv.form.k, kv.k_dim), v_bytes = kv_code_bytes(kv.form.v, kv.v_dim);
  int64_t apart = kv.v_dim > 0 ? v_bytes : k_bytes;  // values of one token and the next
  std::fill_n(keys, unseen, nullptr);
  std::fill_n(values, unseen, nullptr);
  int32_t step =
      kernels_.attend_by_blocks[static_cast<size_t>(activations_)][kv_type(kv.form)] && whole_blocks(kv) ? kKvBlock : 1;
  const int64_t k_head = kv.k_offset + kv_head * kv.page_tokens * kv_bytes(kv.form.k, kv.k_dim),
                v_head = kv.v_offset + kv_head * kv.page_tokens * kv_bytes(kv.form.v, kv.v_dim);
  int64_t page = (first + unseen) / kv.page_tokens, within = (first + unseen) % kv.page_tokens;
  for (int32_t j = unseen; j < positions; ++page, within = 0) {
    const std::byte* base = kv.base + pages[page] * kv.page_stride;
    const std::byte* key = base + k_head + within * k_bytes;
    const std::byte* value = base + v_head + within * v_bytes;
    if (kv.v_dim == 0) value = key;
    int32_t count = static_cast<int32_t>(std::min<int64_t>(kv.page_tokens - within, positions - j));
    for (int32_t i = 0; i < count; i += step) keys[j + i] = key + i * k_bytes, values[j + i] = value + i * apart;
    j += count;
  }
}

// One chunk of one kv head of a tile into the partials of its queries, and merged into others if there are such.
void CpuOps::attend_head(const Tile& tile, int32_t index, int64_t chunk, Ahead& ahead, float* partials, float* into,
                         std::byte* scratch, bool again) const {
  const KvView& kv = *tile.kv;
  const Attention& attention = *tile.attention;
  const std::byte *keys[kAttendChunk], *values[kAttendChunk];
  constexpr int32_t kMost = kMostAttendQueries;
  const float* q[kMost];
  int32_t head[kMost], position[kMost], begin[kMost], end[kMost];
  float most[kMost], total[kMost];

  int64_t first = chunk * kAttendChunk, entry = entry_floats(tile.v_dim());
  int32_t queries = 0, kv_head = tile.kv_head(index), first_query = (tile.first_head + index) * tile.group();
  for (int32_t r = tile.first_row; r < tile.first_row + tile.rows; ++r) {
    const int64_t at = step_->positions[r];
    int64_t from = attention.begin(at) - first, to = attention.end(at, step_->visible[r]) - first;
    for (int32_t h = first_query; h < first_query + tile.group(); ++h, ++queries) {
      q[queries] = tile.q.row(r) + int64_t{h} * kv.k_dim;
      head[queries] = h;
      position[queries] = step_->positions[r];
      begin[queries] = static_cast<int32_t>(std::clamp<int64_t>(from, 0, kAttendChunk));
      end[queries] = static_cast<int32_t>(std::clamp<int64_t>(to, 0, kAttendChunk));
    }
  }
  int32_t positions = static_cast<int32_t>(std::min<int64_t>(kAttendChunk, tile.end - first));
  int32_t unseen = static_cast<int32_t>(std::clamp<int64_t>(tile.begin - first, 0, positions));
  if (kv.page_tokens % kKvBlock == 0) unseen = unseen / kKvBlock * kKvBlock;
  point_at(tile, kv_head, first, unseen, positions, keys, values);
  bool taken = false;
  AttendChunk call{&kv,          kv.k_dim, tile.v_dim(), positions, keys,   values, &attention, first,
                   queries,      q,        head,         position,  begin,  end,    most,       total,
                   partials + 2, entry,    scratch,      again,     &ahead, into,   &taken};
  kernels_.attend[static_cast<size_t>(activations_)][kv_type(kv.form)](call);
  for (int32_t i = 0; i < queries && !taken; ++i) {
    float* partial = partials + i * entry;
    partial[0] = most[i], partial[1] = total[i];
    if (into != nullptr) merge_query(partial, into + i * entry, tile.v_dim());
  }
}

// Chunks [first, end) of a tile of one row that sees all of them, merged into the partials of its queries. False: there
// is no kernel for that, and nothing was done.
bool CpuOps::attend_few(const Tile& tile, int64_t first, int64_t end, const Tile* next_tile, int64_t next_chunk,
                        float* partials, std::byte* scratch) const {
  const KvView& kv = *tile.kv;
  auto few = kernels_.attend_few[static_cast<size_t>(activations_)][kv_type(kv.form)];
  if (few == nullptr || kAttendChunk % kv.page_tokens != 0 || kv.v_dim == 0 || tile.parts > 1) return false;
  const PageTables& tables = step_->groups[static_cast<size_t>(kv.group)];
  auto pages = [&](const Tile& of, int64_t chunk) {
    return tables.pages + int64_t{of.sequence} * tables.stride + chunk * (kAttendChunk / kv.page_tokens);
  };
  // A chunk that is not there to its end has pages that may not be named.
  if (next_tile != nullptr && (next_chunk + 1) * kAttendChunk > next_tile->end) next_tile = nullptr;
  int64_t entry = entry_floats(tile.v_dim());
  int32_t group = tile.group();
  for (int32_t index = 0; index < tile.heads; ++index) {
    int32_t head = tile.first_head + index;
    AttendRun run{&kv,
                  tile.attention,
                  head,
                  static_cast<int32_t>(end - first),
                  pages(tile, first),
                  nullptr,
                  0,
                  group,
                  tile.q.row(tile.first_row) + int64_t{head} * group * kv.k_dim,
                  partials + index * group * entry,
                  entry,
                  scratch};
    if (index + 1 < tile.heads) {
      run.next_pages = run.pages, run.next_head = head + 1;
    } else if (next_tile != nullptr) {
      run.next_pages = pages(*next_tile, next_chunk), run.next_head = next_tile->first_head;
    }
    if (!few(run)) return false;
  }
  return true;
}

// Where the chunks of [first, end) that all rows see whole end, if it begins with such chunks.
int64_t CpuOps::seen_whole(const Tile& tile, int64_t first, int64_t end) const {
  if (tile.rows > 1 || tile.begin > first * kAttendChunk) return first;
  return std::clamp(tile.end / kAttendChunk, first, end);
}

// One chunk of one tile into the partials of its queries, and merged into others if there are such. The same worker
// probably goes on with another chunk, of the same tile or another; null: with none. `again`: it had another chunk of
// the tile just now.
void CpuOps::attend_chunk(const Tile& tile, int64_t chunk, const Tile* next_tile, int64_t next_chunk, float* partials,
                          float* into, std::byte* scratch, bool again) const {
  if (seen_whole(tile, chunk, chunk + 1) > chunk &&
      attend_few(tile, chunk, chunk + 1, next_tile, next_chunk, partials, scratch)) {
    if (into != nullptr) merge(tile, 0, tile.queries(), partials, into);
    return;
  }
  int64_t stride = tile.head_queries() * entry_floats(tile.v_dim());
  for (int32_t index = 0; index < tile.heads; ++index) {
    Ahead ahead;
    if (tile.head_queries() < kernels_.ahead_queries) {
      // Nothing is asked for.
    } else if (index + 1 < tile.heads) {
      look_ahead(tile, index + 1, chunk, ahead);
    } else if (next_tile != nullptr) {
      look_ahead(*next_tile, 0, next_chunk, ahead);
    }
    attend_head(tile, index, chunk, ahead, partials + index * stride, into != nullptr ? into + index * stride : nullptr,
                scratch, again && tile.heads == 1);
  }
}

// A sink takes part from the start: a score with no value.
void CpuOps::start_query(const Tile& tile, int32_t query, float* running) const {
  Partial partial{running};
  const float* sinks = tile.attention->sinks;
  partial.most() = sinks != nullptr ? sinks[tile.head(query)] : -std::numeric_limits<float>::infinity();
  partial.total() = sinks != nullptr ? 1.0f : 0.0f;
  std::fill_n(partial.sums(), tile.v_dim(), 0.0f);
}

// All queries of a tile, before anything they see without a gap. Those that the window has parted from the kept
// positions take these in first, turned back to where they are seen from; at most a chunk of them. The upper half of
// the scratch is as attend_tile() cuts it.
void CpuOps::start_queries(const Tile& tile, float* running, std::byte* scratch) const {
  const int64_t entry = entry_floats(tile.v_dim());
  for (int32_t i = 0; i < tile.queries(); ++i) start_query(tile, i, running + i * entry);
  const Attention& attention = *tile.attention;
  bool any = false;
  for (int32_t r = tile.first_row; r < tile.first_row + tile.rows; ++r) any |= attention.apart(step_->positions[r]);
  if (!any) return;
  for (int32_t index = 0; index < tile.heads; ++index)
    attend_kept(tile, index, running + index * tile.head_queries() * entry, scratch);
}

void CpuOps::attend_kept(const Tile& tile, int32_t index, float* running, std::byte* scratch) const {
  const KvView& kv = *tile.kv;
  const Attention& attention = *tile.attention;
  const std::byte *keys[kAttendChunk], *values[kAttendChunk];
  constexpr int32_t kMost = kMostAttendQueries;
  const float* q[kMost];
  int32_t head[kMost], position[kMost], begin[kMost], end[kMost];
  float most[kMost], total[kMost];
  double cosines[kHeadDim / 2], sines[kHeadDim / 2];
  const int64_t entry = entry_floats(tile.v_dim());
  float* turned = reinterpret_cast<float*>(scratch + kWorkerBytes / 2);
  float* partials = turned + 2 * tile.queries() * entry;
  int32_t queries = 0;
  const int32_t first_query = (tile.first_head + index) * tile.group();
  for (int32_t r = tile.first_row; r < tile.first_row + tile.rows; ++r) {
    const int64_t at = step_->positions[r], from = attention.kept_from(at);
    turn_angles(attention.turn, from - at, cosines, sines);
    for (int32_t h = first_query; h < first_query + tile.group(); ++h, ++queries) {
      const float* as_it_was = tile.q.row(r) + int64_t{h} * kv.k_dim;
      turn_head(attention.turn, cosines, sines, kv.k_dim, as_it_was, turned + queries * entry);
      q[queries] = turned + queries * entry;
      head[queries] = h;
      position[queries] = static_cast<int32_t>(from);
      begin[queries] = 0;
      end[queries] = attention.apart(at) ? attention.kept : 0;
    }
  }
  point_at(tile, tile.kv_head(index), 0, 0, attention.kept, keys, values);
  Ahead ahead;
  bool taken = false;
  AttendChunk call{&kv,          kv.k_dim, tile.v_dim(), attention.kept, keys,   values,  &attention, 0,
                   queries,      q,        head,         position,       begin,  end,     most,       total,
                   partials + 2, entry,    scratch,      false,          &ahead, nullptr, &taken};
  kernels_.attend[static_cast<size_t>(activations_)][kv_type(kv.form)](call);
  for (int32_t i = 0; i < queries; ++i) {
    partials[i * entry] = most[i], partials[i * entry + 1] = total[i];
    merge_query(partials + i * entry, running + i * entry, tile.v_dim());
  }
}

void CpuOps::finish_query(const Tile& tile, int32_t query, const float* running) const {
  float* out = tile.out.row(tile.row(query)) + int64_t{tile.head(query)} * tile.v_dim();
  kernels_.divide(running + 2, running[1], out, tile.v_dim());
}

void CpuOps::merge_query(const float* from, float* running, int64_t v_dim) const {
  Partial to{running};
  kernels_.merge(from[0], from[1], from + 2, &to.most(), &to.total(), to.sums(), v_dim);
}

// Queries [first, end) of a tile take in the next chunk or run.
void CpuOps::merge(const Tile& tile, int32_t first, int32_t end, const float* partials, float* running) const {
  int64_t entry = entry_floats(tile.v_dim());
  for (int32_t query = first; query < end; ++query)
    merge_query(partials + query * entry, running + query * entry, tile.v_dim());
}

// The chunks of one run into the partials of the tile's queries: the first as it is, the others merged into it. The
// upper half of the scratch holds the chunk at hand.
void CpuOps::attend_run(const Tile& tile, int64_t run, const Tile* next_tile, int64_t next_chunk, float* partials,
                        std::byte* scratch) const {
  float* fresh = reinterpret_cast<float*>(scratch + kWorkerBytes / 2);
  int64_t first = tile.first_chunk(run), end = tile.end_chunk(run), whole = seen_whole(tile, first, end);
  bool more = whole < end;
  bool few = whole > first &&
             attend_few(tile, first, whole, more ? &tile : next_tile, more ? whole : next_chunk, partials, scratch);
  for (int64_t chunk = few ? whole : first; chunk < end; ++chunk) {
    bool last = chunk + 1 == end;
    attend_chunk(tile, chunk, last ? next_tile : &tile, last ? next_chunk : chunk + 1,
                 chunk == first ? partials : fresh, chunk == first ? nullptr : partials, scratch,
                 tile.rows > 1 && chunk > first);
  }
}

void CpuOps::attend_tile(const Tile& tile, std::byte* scratch) const {
  int64_t floats = tile.queries() * entry_floats(tile.v_dim());
  float* running = reinterpret_cast<float*>(scratch + kWorkerBytes / 2) + floats;
  float* partials = running + floats;
  if (tile.end_run() - tile.first_run() == 1 && tile.attention->sinks == nullptr && tile.attention->kept == 0) {
    // nothing to merge it with
    attend_run(tile, tile.first_run(), nullptr, 0, running, scratch);
  } else {
    attend_runs(tile, partials, running, scratch);
  }
  for (int32_t i = 0; i < tile.queries(); ++i) finish_query(tile, i, running + i * entry_floats(tile.v_dim()));
}
static_assert(3 * (kAttendQueries * kHeadDim + kMostAttendQueries * 16) * sizeof(float) <= kWorkerBytes / 2);

// All runs of a tile, one after another.
void CpuOps::attend_runs(const Tile& tile, float* partials, float* running, std::byte* scratch) const {
  start_queries(tile, running, scratch);
  for (int64_t run = tile.first_run(); run < tile.end_run(); ++run) {
    bool last = run + 1 == tile.end_run();
    attend_run(tile, run, last ? nullptr : &tile, (run + 1) * kAttendRun, partials, scratch);
    merge(tile, 0, tile.queries(), partials, running);
  }
}

void CpuOps::attend_whole(std::span<const Tile> tiles) {
  // The last rows see most: they come first, so that no worker starts a long tile when the others are done.
  team_.each(static_cast<int64_t>(tiles.size()), [&](int64_t task, int worker) {
    attend_tile(tiles[tiles.size() - 1 - static_cast<size_t>(task)], worker_scratch(worker));
  });
}

// A task is a run of a tile, or where there are too few of them a chunk. In rounds of as many as the room for partials
// holds, whole runs at a time.
void CpuOps::attend_split(std::span<const Tile> tiles, bool runs) {
  int64_t entry = entry_floats(tiles[0].v_dim()), queries = 0, first = INT64_MAX, end = 0;
  for (const Tile& tile : tiles) {
    queries += tile.queries();
    first = std::min(first, tile.first_run());
    end = std::max(end, tile.end_run());
  }
  int64_t per_run = runs ? 1 : kAttendRun, count = static_cast<int64_t>(tiles.size()), stride = queries * entry;
  float* running = reinterpret_cast<float*>(fixed_ + team_.workers() * kWorkerBytes);
  float* partials = running + stride;
  int64_t room = (kPartialBytes / 4 / stride - 1) / per_run;  // runs at a time
  CHECK(room >= 1);
  // Tasks [0, steps * count) of a round: step by step, each of all tiles.
  auto step_of = [&](const Tile& tile, int64_t at) {  // its chunks, perhaps none
    if (runs) return std::pair(tile.first_chunk(at), tile.end_chunk(at));
    bool seen = at >= tile.first_chunk() && at < tile.end_chunk();
    return std::pair(at, seen ? at + 1 : at);
  };
  for (int64_t round = first; round < end || round == first; round += room) {
    int64_t begin = round * per_run, steps = std::min(room, end - round) * per_run;
    team_.each(steps * count, [&](int64_t task, int worker) {
      const Tile& tile = tiles[static_cast<size_t>(task % count)];
      int64_t at = begin + task / count;
      auto [from, to] = step_of(tile, at);
      if (from >= to) return;
      // Tasks go to whoever is free, so the next of this worker is about as many further as there are workers.
      int64_t later = task + team_.workers();
      const Tile* next = later < steps * count ? &tiles[static_cast<size_t>(later % count)] : nullptr;
      int64_t next_chunk = next != nullptr ? step_of(*next, begin + later / count).first : 0;
      float* place = partials + task / count * stride + (tile.first_query) * entry;
      runs ? attend_run(tile, at, next, next_chunk, place, worker_scratch(worker))
           : attend_chunk(tile, from, next, next_chunk, place, nullptr, worker_scratch(worker), false);
    });
    for (const Tile& tile : tiles) {
      float *mine = running + tile.first_query * entry, *run = partials + tile.first_query * entry;
      if (round == first) start_queries(tile, mine, worker_scratch(0));  // nobody works now
      for (int64_t r = std::max(round, tile.first_run()); r < std::min(round + room, tile.end_run()); ++r) {
        int64_t from = runs ? r : tile.first_chunk(r), to = runs ? r + 1 : tile.end_chunk(r);
        float* sum = run + (from - begin) * stride;  // the first chunk of the run takes in the others
        for (int64_t c = from + 1; c < to; ++c) merge(tile, 0, tile.queries(), run + (c - begin) * stride, sum);
        merge(tile, 0, tile.queries(), sum, mine);
      }
      for (int32_t i = 0; round + room >= end && i < tile.queries(); ++i) finish_query(tile, i, mine + i * entry);
    }
  }
}

// As many as the kernel wants, where a tile's queries and what is summed for them fit a worker's scratch.
int32_t CpuOps::most_queries(const KvView& kv, int32_t v_dim) const {
  const int32_t wanted = kernels_.attend_queries[static_cast<size_t>(activations_)][kv_type(kv.form)];
  const int64_t width = aligned(std::max(kv.k_dim, v_dim));
  const int64_t fit = kAttendQueries * kHeadDim / width / kAttendQueries * kAttendQueries;
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, kAttendQueries, std::max<int64_t>(kAttendQueries, fit)));
}

// Tiles of at most `heads` kv heads and `most` queries. Queries of a kv head that are too many for a tile are several
// parts of it, as if there were as many kv heads more.
void CpuOps::add_tiles(const Attention& attention, Tensor q, const KvView& kv, Tensor out, int32_t heads,
                       int32_t most) {
  int32_t parts = parts_of(attention.heads / kv.kv_heads, most), all = kv.kv_heads * parts;
  int32_t group = attention.heads / all, most_rows = most / group;
  if (most_rows > kRowsTogether) most_rows = most_rows / kRowsTogether * kRowsTogether;
  int32_t queries = 0;
  tiles_.clear();
  for (int32_t s = 0; s < step_->sequences; ++s) {
    for (int32_t row = step_->first_row[s]; row < step_->first_row[s + 1]; row += most_rows) {
      int32_t rows = std::min(most_rows, step_->first_row[s + 1] - row);
      int64_t begin = INT64_MAX, end = 0;
      for (int32_t r = row; r < row + rows; ++r) {
        begin = std::min(begin, attention.begin(step_->positions[r]));
        end = std::max(end, attention.end(step_->positions[r], step_->visible[r]));
      }
      int32_t together = std::clamp(kAttendQueries / (rows * group), 1, heads);
      for (int32_t head = 0; head < all; head += together) {
        tiles_.push_back({&attention, &kv, q, out, s, parts, head, std::min(together, all - head), row, rows, queries,
                          std::min(begin, end), end});
        queries += tiles_.back().queries();
      }
    }
  }
}

void CpuOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  int32_t group = attention.heads / kv.kv_heads;
  const int32_t v_dim = attention.value_width(kv);
  CHECK(group >= 1 && kv.k_dim <= kHeadDim && v_dim > 0 && v_dim <= (kv.v_dim > 0 ? kHeadDim : kv.k_dim),
        "{} heads, {} kv heads of {} and {}", attention.heads, kv.kv_heads, kv.k_dim, v_dim);
  CHECK(attention.kept <= kAttendChunk && (attention.kept == 0 || kv.k_dim <= v_dim),
        "{} kept positions of keys of {} and values of {}", attention.kept, kv.k_dim, v_dim);
  int64_t head_bytes = kAttendChunk * token_bytes(kv) / kv.kv_heads;
  int64_t tasks = kTasksPerWorker * team_.workers();
  auto runs = [&] {
    int64_t sum = 0;
    for (const Tile& tile : tiles_) sum += tile.end_run() - tile.first_run();
    return sum;
  };
  const auto heads = static_cast<int32_t>(std::clamp<int64_t>(kTogether / head_bytes, 1, kv.kv_heads));
  // Larger tiles where there are enough of them for all workers; else more of them, and if need be of one head each.
  const int32_t most = most_queries(kv, v_dim);
  add_tiles(attention, q, kv, out, heads, most);
  if (most > kAttendQueries && team_.workers() > 1 && static_cast<int64_t>(tiles_.size()) < tasks)
    add_tiles(attention, q, kv, out, heads, kAttendQueries);
  if (team_.workers() > 1 && runs() < tasks) add_tiles(attention, q, kv, out, 1, kAttendQueries);
  bool few = team_.workers() > 1 && static_cast<int64_t>(tiles_.size()) < tasks;
  int64_t queries = int64_t{q.rows} * attention.heads;
  bool fits = queries * entry_floats(v_dim) * static_cast<int64_t>(sizeof(float)) * (kAttendRun + 2) <= kPartialBytes;
  few&& fits ? attend_split(tiles_, runs() >= tasks) : attend_whole(tiles_);
}

}  // namespace millrace::cpu
