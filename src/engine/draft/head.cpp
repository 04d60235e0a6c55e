#include "engine/draft/head.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/draft/tree.h"

namespace millrace {
namespace {

constexpr int kMostRows = 256;   // entries of one pass
constexpr int kLazy = 16;        // entries of an answer that may wait
constexpr int32_t kChunk = 128;  // attention goes over the cache in chunks of so many

// Arrays begin on cache lines: some machines read them sixteen bytes at a time.
int64_t lines(int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace

HeadDrafter::HeadDrafter(const Head& head, const Executor& target)
    : head_(head),
      feature_(head.spec().feature()),
      rows_(std::min(kMostRows, std::max(target.options().rows, target.options().sequences))),
      sequences_(target.options().sequences),
      context_(target.options().context + kMostDrafts),
      keep_((head.spec().kind == HeadSpec::Kind::medusa ? 1 : rows_) + kMostDrafts),
      lazy_(std::min(kLazy, rows_ - 1)),
      look_back_(target.look_back()),
      slots_(static_cast<size_t>(target.options().sequences), nullptr),
      full_(static_cast<size_t>(target.vocab())),
      scratch_(target.vocab()) {}

std::string_view HeadDrafter::name() const {
  switch (head_.spec().kind) {
    case HeadSpec::Kind::medusa:
      return "medusa";
    case HeadSpec::Kind::mtp:
      return "mtp";
    case HeadSpec::Kind::eagle3:
      return "eagle3";
  }
  return "";
}

BesideLayers HeadDrafter::beside(const HeadSpec& head) {
  if (head.kind == HeadSpec::Kind::medusa) return {};
  const GqaSpec& attention = head.attention;
  KvShape shape;
  shape.kv_heads = attention.kv_heads;
  shape.k_dim = shape.v_dim = attention.head_dim;
  return {.layers = {shape}, .look_back = true};
}

Result<std::unique_ptr<Drafter>> HeadDrafter::create(const Head& head, Executor& target, Backend& backend, int first) {
  const BesideLayers wanted = beside(head.spec());
  TRY_VOID(check_beside(target.options().beside, first, wanted));
  TRY_VOID(target.tap(head.spec().taps, backend));
  std::unique_ptr<HeadDrafter> made(new HeadDrafter(head, target));
  if (wanted.any()) {
    made->kv_ = target.beside(first);
    made->group_ = made->kv_.group;
    made->kv_.group = 0;
  }
  if (auto taken = made->take_memory(backend); !taken.ok()) return within("a head", taken.error());
  return std::unique_ptr<Drafter>(std::move(made));
}

// Rows of a head are counted from a position on that is a multiple of pages and chunks. With attention by a grid of one
// more, every row sees what begins right after it: entry 1, the first that has a stream.
Result<void> HeadDrafter::take_memory(Backend& backend) {
  if (kv_.page_tokens > 0) {
    const int32_t whole = std::max(kChunk, kv_.page_tokens);
    shift_ = (context_ + whole - 1) / whole * whole;
    lead_ = shift_ / kv_.page_tokens;
    stride_ = lead_ + (context_ + kv_.page_tokens - 1) / kv_.page_tokens;
  }
  const int64_t rows = rows_, sequences = sequences_,
                empty_cols = std::max<int64_t>(feature_, kv_.kv_heads * kv_.k_dim);
  const int64_t integers = 4 * lines(rows) + lines(sequences + 1) + lines(sequences) + lines(sequences * stride_);
  const int64_t row_bytes = feature_ * static_cast<int64_t>(sizeof(float));
  const int64_t empty_bytes = empty_cols * static_cast<int64_t>(sizeof(float));
  TRY(in_, backend.allocate(Purpose::workspace, (rows + sequences * keep_) * row_bytes));
  streams_ = {in_ + rows * row_bytes, DType::f32, sequences * keep_, feature_, row_bytes};
  TRY(std::byte * empty, backend.allocate(Purpose::workspace, sequences * empty_bytes));
  const std::vector<std::byte> zeros(static_cast<size_t>(sequences * empty_bytes));
  backend.copy(empty, zeros.data(), sequences * empty_bytes);
  nothing_ = {empty, DType::f32, sequences, empty_cols, empty_bytes};
  TRY(std::byte * staging, backend.allocate(Purpose::staging, integers * 4));
  if (backend.apart()) {
    const int64_t results = sequences * head_.spec().vocab * static_cast<int64_t>(sizeof(float));
    TRY(std::byte * numbers, backend.allocate_results(results));
    results_ = reinterpret_cast<float*>(numbers);
  }
  auto* next = reinterpret_cast<int32_t*>(staging);
  auto array = [&](int64_t count) { return std::exchange(next, next + lines(count)); };
  step_.tokens = tokens_ = array(rows);
  step_.positions = positions_ = array(rows);
  step_.visible = visible_ = array(rows);
  step_.sequence = sequence_ = array(rows);
  step_.first_row = first_row_ = array(sequences + 1);
  step_.wanted_rows = wanted_rows_ = array(sequences);
  pages_ = array(sequences * stride_);
  std::fill_n(pages_, sequences * stride_, 0);
  groups_ = {{pages_, stride_}};
  step_.groups = groups_;
  TRY(ops_, backend.make_ops(head_workspace(head_, rows_, sequences_)));
  return {};
}

void HeadDrafter::observe(std::span<Observed> rows) {
  ++calls_;
  gaps_.clear();
  bool now = false;
  for (const Observed& seen : rows) {
    Track& track = tracks_[{seen.request, seen.choice}];
    take_slot(track);
    track.line.step(seen.residence, seen.begin, look_back_);
    const Gap gap = keep(track, seen);
    if (kv_.page_tokens == 0 || gap.from >= gap.upto) continue;
    now = now || !seen.waits || gap.upto - gap.from > lazy_;
    gaps_.push_back(gap);
  }
  if (kv_.page_tokens == 0) return;
  if (now) make(gaps_);
  for (Observed& seen : rows) seen.entries = tracks_.at({seen.request, seen.choice}).line.whole();
}

// Rows lie where they were computed, on a machine apart too.
void HeadDrafter::copy_rows(Tensor from, int64_t first, Tensor to, int64_t at, int64_t rows) {
  from.data += first * from.stride;
  to.data += at * to.stride;
  from.rows = to.rows = rows;
  ops_->copy_heads(1, to.cols, from, to);
}

// Streams of positions [first, first + rows) lie in at most two stretches of the slot's ring.
template <class F>
void HeadDrafter::each_stretch(const Track& track, int first, int rows, F body) const {
  for (int done = 0; done < rows;) {
    const int at = (first + done) % keep_, count = std::min(rows - done, keep_ - at);
    body(int64_t{track.slot} * keep_ + at, done, count);
    done += count;
  }
}

// The streams of a step come to those that wait; what there is no room for becomes entries at once.
HeadDrafter::Gap HeadDrafter::keep(Track& track, const Observed& seen) {
  EntryLine& line = track.line;
  Gap gap = {&track, seen.tables, seen.tokens, line.whole(), seen.begin};
  const auto count = static_cast<int>(seen.streams.rows);
  for (int done = 0; done < count;) {
    if (line.kept() == keep_ && kv_.page_tokens > 0) make({&gap, 1});
    const int room = kv_.page_tokens > 0 ? keep_ - line.kept() : keep_, taken = std::min(room, count - done);
    each_stretch(track, line.end(), taken,
                 [&](int64_t at, int first, int rows) { copy_rows(seen.streams, done + first, streams_, at, rows); });
    line.came(taken, keep_);
    done += taken;
    gap.upto = line.end();
  }
  gap.from = line.whole();
  return gap;
}

void HeadDrafter::stage_pages(int sequence, std::span<const PageTable> tables) {
  const auto pages = tables[static_cast<size_t>(group_)].pages();
  CHECK(static_cast<int32_t>(pages.size()) <= stride_ - lead_, "{} pages of {}", pages.size(), stride_ - lead_);
  std::copy(pages.begin(), pages.end(), pages_ + int64_t{sequence} * stride_ + lead_);
}

// Rows for so many entries of a gap. Streams that are not at hand (they were lost, or states were found in the cache)
// count as zero.
void HeadDrafter::stage_gap(int sequence, const Gap& gap, int rows) {
  const EntryLine& line = gap.track->line;
  const int to = step_.rows, first = gap.from - 1;
  const int lost = std::clamp(line.base() - first, 0, rows);
  for (int row = 0; row < lost; ++row) copy_rows(columns(nothing_, 0, feature_), 0, input(feature_), to + row, 1);
  each_stretch(*gap.track, first + lost, rows - lost, [&](int64_t at, int done, int count) {
    copy_rows(streams_, at, input(feature_), to + lost + done, count);
  });
  for (int row = 0; row < rows; ++row, ++step_.rows)
    stage_row(step_.rows, sequence, gap.tokens[static_cast<size_t>(gap.from + row)], gap.from + row);
  stage_pages(sequence, gap.tables);
  first_row_[sequence + 1] = step_.rows;
}

// A machine apart reads the step's arrays when it comes to the pass: they stay as they are until it has.
void HeadDrafter::free_arrays() {
  if (!std::exchange(arrays_used_, false) || results_ == nullptr) return;
  const Tensor one = {in_, DType::f32, 1, 1, static_cast<int64_t>(sizeof(float))};
  ops_->fetch(one, results_, nullptr);  // what failed is said by the model's next step
}

// Entry 0 has no stream. Nothing sees it, but kernels that read in chunks may touch it: it holds zeros.
void HeadDrafter::begin_lines(std::span<Gap> gaps) {
  free_arrays();
  step_.rows = step_.sequences = step_.wanted = 0;
  first_row_[0] = 0;
  for (Gap& gap : gaps) {
    if (gap.from > 0 || gap.upto == 0 || step_.rows == std::min(rows_, sequences_)) continue;
    stage_pages(step_.sequences, gap.tables);
    stage_row(step_.rows, step_.sequences, gap.tokens[0], 0);
    first_row_[++step_.sequences] = ++step_.rows;
    gap.track->line.made(gap.from = 1);
  }
  if (step_.rows == 0) return;
  Tensor empty = columns(nothing_, 0, int64_t{kv_.kv_heads} * kv_.k_dim);
  empty.rows = step_.rows;
  ops_->begin(step_);
  ops_->kv_store(empty, empty, kv_);
  arrays_used_ = true;
}

// Passes over what is missing, as many rows at once as one takes.
void HeadDrafter::make(std::span<Gap> gaps) {
  while (true) {
    begin_lines(gaps);
    free_arrays();
    step_.rows = step_.sequences = step_.wanted = 0;
    first_row_[0] = 0;
    for (Gap& gap : gaps) {
      const int rows = std::min(rows_ - step_.rows, gap.upto - gap.from);
      if (rows <= 0 || gap.from == 0 || step_.sequences == sequences_) continue;
      stage_gap(step_.sequences++, gap, rows);
      gap.from += rows;
    }
    if (step_.rows == 0) return;
    run_head(*ops_, head_, kv_, step_, input(feature_), true, shift_ + 1);
    arrays_used_ = true;
    for (const Gap& gap : gaps) gap.track->line.made(gap.from);
  }
}

void HeadDrafter::take_slot(Track& track) {
  track.used = calls_;
  if (track.slot >= 0) return;
  track.line.lose_streams();
  size_t best = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr) {
      best = i;
      break;
    }
    if (slots_[i]->used < slots_[best]->used) best = i;
  }
  if (slots_[best] != nullptr) slots_[best]->slot = -1;
  slots_[best] = &track;
  track.slot = static_cast<int>(best);
}

// The first entry that must be made before something can be guessed; 0: nothing can.
int HeadDrafter::settle(const DraftAsk& ask, Track& track) {
  track.line.step(ask.residence, ask.begin, look_back_);
  const auto known = static_cast<int>(ask.tokens.size());
  if (track.slot < 0 || !track.line.has(known - 2)) return 0;
  if (kv_.page_tokens == 0) return known - 1;
  const int from = std::min(track.line.whole(), known - 1);
  return known - from <= rows_ ? from : 0;
}

void HeadDrafter::stage_row(int row, int sequence, Token token, int position) {
  tokens_[row] = token;
  positions_[row] = shift_ + position;
  visible_[row] = shift_ + position + 1;
  sequence_[row] = sequence;
}

Tensor HeadDrafter::input(int64_t cols) const {
  return {in_, DType::f32, step_.rows, cols, cols * static_cast<int64_t>(sizeof(float))};
}

// Where the host reads them; null: the machine failed, and its next step will say so.
const float* HeadDrafter::brought(Tensor logits) {
  if (results_ == nullptr) return logits.row(0);
  logits.cols = head_.spec().vocab;
  return ops_->fetch(logits, results_, nullptr).empty() ? results_ : nullptr;
}

// The entries that are missing, the last of each wanted.
void HeadDrafter::stage_fresh(std::span<OpenAsk> parts) {
  free_arrays();
  step_.rows = 0;
  step_.sequences = step_.wanted = static_cast<int32_t>(parts.size());
  first_row_[0] = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DraftAsk& ask = *parts[i].ask;
    const auto known = static_cast<int>(ask.tokens.size());
    stage_gap(static_cast<int>(i), {parts[i].track, ask.tables, ask.tokens, parts[i].from, known},
              known - parts[i].from);
    wanted_rows_[i] = step_.rows - 1;
  }
}

// One entry more for each, of the token just guessed. It does not count as made: the answer may go on otherwise.
void HeadDrafter::stage_next(std::span<OpenAsk> parts, Tensor next) {
  copy_rows(next, 0, input(head_.spec().width), 0, static_cast<int64_t>(parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto row = static_cast<int>(i);
    const std::vector<Token>& out = *parts[i].ask->out;
    const auto position = static_cast<int>(parts[i].ask->tokens.size() + std::max<size_t>(out.size(), 1)) - 1;
    stage_row(row, row, out.empty() ? 0 : out.back(), position);
    first_row_[i + 1] = row + 1;
    wanted_rows_[i] = row;
  }
  step_.rows = step_.wanted = static_cast<int32_t>(parts.size());
}

void HeadDrafter::choose(OpenAsk& part, const float* logits) {
  const DraftAsk& ask = *part.ask;
  if (!part.open) return;
  std::span<const float> row(logits, static_cast<size_t>(head_.spec().vocab));
  if (const auto names = head_.tokens(); !names.empty()) {
    std::fill(full_.begin(), full_.end(), -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < names.size(); ++i) full_[static_cast<size_t>(names[i])] = logits[i];
    row = full_;
  }
  context_tokens_.assign(ask.tokens.begin(), ask.tokens.end());
  context_tokens_.insert(context_tokens_.end(), ask.out->begin(), ask.out->end());
  const size_t depth = ask.out->size();
  banned_.assign(ask.banned_now.begin(), depth == 0 ? ask.banned_now.end() : ask.banned_now.begin());
  part.choices.emplace_back();
  // The next likeliest are what is left without those before: under the draw, who would have come in next.
  for (int count = choices_at(static_cast<int>(depth), ask.branches); count > 0; --count) {
    const auto token = ask.sampler->guess(row, context_tokens_, scratch_, banned_);
    if (!token.ok()) break;
    part.choices.back().push_back(*token);
    banned_.push_back(*token);
  }
  if (!part.choices.back().empty()) ask.out->push_back(part.choices.back()[0]);
  part.open = ask.out->size() > depth && static_cast<int>(ask.out->size()) < main_depth(ask.limit, ask.branches);
}

// Whether the likeliest token of each row is all that is wanted: a machine apart finds it without bringing the others.
bool HeadDrafter::best_do(std::span<const OpenAsk> parts) const {
  return results_ != nullptr && std::all_of(parts.begin(), parts.end(), [](const OpenAsk& part) {
           const DraftAsk& ask = *part.ask;
           return ask.branches == 0 && ask.banned_now.empty() && takes_largest(ask.sampler->sampling());
         });
}

bool HeadDrafter::take_best(std::span<OpenAsk> parts, Tensor logits) {
  logits.cols = head_.spec().vocab;
  best_.resize(static_cast<size_t>(logits.rows));
  if (!ops_->fetch(logits, nullptr, best_.data()).empty()) return false;
  bool more = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    OpenAsk& part = parts[i];
    if (!part.open || best_[i] < 0) {  // broken numbers guess nothing
      part.open = false;
      continue;
    }
    const auto names = head_.tokens();
    part.ask->out->push_back(names.empty() ? best_[i] : names[static_cast<size_t>(best_[i])]);
    part.open = static_cast<int>(part.ask->out->size()) < part.ask->limit;
    more = more || part.open;
  }
  return more;
}

// One guess more for everybody who wants one. False: nobody does.
bool HeadDrafter::choose_all(std::span<OpenAsk> parts, Tensor logits) {
  if (best_do(parts)) return take_best(parts, logits);
  const float* numbers = brought(logits);
  bool more = false;
  for (size_t i = 0; numbers != nullptr && i < parts.size(); ++i) {
    const int64_t stride =
        results_ != nullptr ? head_.spec().vocab : logits.stride / static_cast<int64_t>(sizeof(float));
    choose(parts[i], numbers + static_cast<int64_t>(i) * stride);
    more = more || parts[i].open;
  }
  return more;
}

void HeadDrafter::guess(std::span<OpenAsk> parts) {
  stage_fresh(parts);
  HeadOutput output = run_head(*ops_, head_, kv_, step_, input(feature_), true, shift_ + 1);
  for (const OpenAsk& part : parts) part.track->line.made(static_cast<int>(part.ask->tokens.size()));
  while (choose_all(parts, output.logits)) {
    stage_next(parts, output.next);
    output = run_head(*ops_, head_, kv_, step_, input(head_.spec().width), false, shift_ + 1);
  }
}

void HeadDrafter::guess_medusa(std::span<OpenAsk> parts) {
  step_.rows = step_.sequences = step_.wanted = static_cast<int32_t>(parts.size());
  first_row_[0] = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto row = static_cast<int>(i);
    stage_row(row, row, 0, 0);
    first_row_[i + 1] = row + 1;
    wanted_rows_[i] = row;
    const auto last = static_cast<int>(parts[i].ask->tokens.size()) - 2;
    each_stretch(*parts[i].track, last, 1,
                 [&](int64_t at, int, int rows) { copy_rows(streams_, at, input(feature_), row, rows); });
  }
  for (int ahead = 0; ahead < head_.spec().guesses; ++ahead) {
    if (!choose_all(parts, run_medusa(*ops_, head_, ahead, step_, input(feature_)))) return;
  }
}

void HeadDrafter::propose(std::span<const DraftAsk> asks) {
  ++calls_;
  const bool medusa = head_.spec().kind == HeadSpec::Kind::medusa;
  size_t next = 0;
  while (next < asks.size()) {
    parts_.clear();
    int rows = 0;
    for (; next < asks.size() && static_cast<int>(parts_.size()) < sequences_; ++next) {
      const auto found = tracks_.find({asks[next].request, asks[next].choice});
      if (found == tracks_.end() || asks[next].limit < 1 || asks[next].tokens.size() < 2) continue;
      const int from = settle(asks[next], found->second);
      if (from == 0) continue;
      const int count = medusa ? 1 : static_cast<int>(asks[next].tokens.size()) - from;
      if (rows + count > rows_) break;
      rows += count;
      parts_.push_back({&asks[next], &found->second, from, true, {}});
    }
    if (parts_.empty()) return;
    medusa ? guess_medusa(parts_) : guess(parts_);
    for (OpenAsk& part : parts_) {
      if (part.ask->branches > 0) {
        part.ask->out->clear();
        plan_paths(part.choices, medusa, part.ask->limit, part.ask->branches, *part.ask->out, *part.ask->others);
      }
    }
  }
}

void HeadDrafter::forget(RequestId request) {
  const auto from = tracks_.lower_bound({request, 0}), to = tracks_.lower_bound({request + 1, 0});
  for (auto at = from; at != to; ++at) {
    if (at->second.slot >= 0) slots_[static_cast<size_t>(at->second.slot)] = nullptr;
  }
  tracks_.erase(from, to);
}

}  // namespace millrace
