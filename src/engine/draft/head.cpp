#include "engine/draft/head.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/draft/tree.h"
#include "engine/executor.h"

namespace millrace {
namespace {

constexpr int kMostRows = 256;  // entries of one pass; a longer gap is a hole
constexpr int32_t kPageTokens = 16;

}  // namespace

HeadDrafter::HeadDrafter(const Head& head, const Executor& target)
    : head_(head),
      feature_(head.spec().feature()),
      rows_(std::min(kMostRows, std::max(target.options().rows, target.options().sequences))),
      sequences_(target.options().sequences),
      context_(target.options().context + kMostDrafts),
      keep_((head.spec().kind == HeadSpec::Kind::medusa ? 1 : rows_) + kMostDrafts),
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

Result<std::unique_ptr<Drafter>> HeadDrafter::create(const Head& head, Executor& target, Backend& backend) {
  TRY_VOID(target.tap(head.spec().taps, backend));
  std::unique_ptr<HeadDrafter> made(new HeadDrafter(head, target));
  if (auto taken = made->take_memory(backend, target.options().kv); !taken.ok()) return within("a head", taken.error());
  return std::unique_ptr<Drafter>(std::move(made));
}

Result<void> HeadDrafter::take_memory(Backend& backend, const KvForm& kv) {
  const HeadSpec& spec = head_.spec();
  if (spec.kind != HeadSpec::Kind::medusa) {
    const std::vector<KvShape> shapes = {{.kv_heads = spec.attention.kv_heads,
                                          .k_dim = spec.attention.head_dim,
                                          .v_dim = spec.attention.head_dim,
                                          .form = kv}};
    TRY(auto specs, specs_of(shapes));
    TRY(const CacheLayout layout, plan_layout(specs, {.page_tokens = kPageTokens}));
    slot_pages_ = layout.groups[0].pages_for(context_);
    TRY(const int64_t bytes, Store::bytes_needed(layout, slot_pages_ * sequences_));
    TRY(std::byte * memory, backend.allocate(Purpose::kv, bytes));
    TRY(Store store, Store::over(layout, shapes, slot_pages_ * sequences_, {memory, static_cast<size_t>(bytes)}));
    store_ = std::move(store);
  }
  const int64_t rows = rows_, sequences = sequences_;
  // Arrays begin on cache lines: some machines read them sixteen bytes at a time.
  auto lines = [](int64_t count) { return (count + 15) / 16 * 16; };
  const int64_t integers =
      4 * lines(rows) + lines(sequences + 1) + lines(sequences) + lines(sequences * std::max(1, slot_pages_));
  const int64_t row_bytes = feature_ * static_cast<int64_t>(sizeof(float));
  TRY(in_, backend.allocate(Purpose::workspace, (rows + sequences * keep_) * row_bytes));
  streams_ = {in_ + rows * row_bytes, DType::f32, sequences * keep_, feature_, row_bytes};
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
  pages_ = array(sequences * std::max(1, slot_pages_));
  groups_ = {{pages_, slot_pages_}};
  step_.groups = groups_;
  TRY(ops_, backend.make_ops(head_workspace(head_, rows_, sequences_)));
  return {};
}

void HeadDrafter::observe(std::span<const Observed> rows) {
  ++calls_;
  for (const Observed& seen : rows) {
    Track& track = tracks_[{seen.request, seen.choice}];
    take_slot(track);
    keep(track, seen);
  }
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

// The latest streams stay, as many as a slot has room for.
void HeadDrafter::keep(Track& track, const Observed& seen) {
  const auto count = static_cast<int>(seen.streams.rows), taken = std::min(count, keep_);
  const int first = seen.begin + count - taken;
  if (first < track.base || first > track.base + track.kept) track.base = first;  // computed again, or a hole
  track.kept = first + taken - track.base;
  if (const int more = track.kept - keep_; more > 0) {
    track.base += more;
    track.kept -= more;
  }
  each_stretch(track, first, taken, [&](int64_t at, int done, int rows) {
    copy_rows(seen.streams, count - taken + done, streams_, at, rows);
  });
}

void HeadDrafter::take_slot(Track& track) {
  track.used = calls_;
  if (track.slot >= 0) return;
  track.line.clear();
  track.kept = 0;
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

// How many fresh entries the answer needs before something can be guessed; 0: nothing can.
int HeadDrafter::settle(const DraftAsk& ask, Track& track) {
  const auto last = static_cast<int>(ask.tokens.size()) - 2;  // position of the last stream that counts
  if (track.slot < 0 || last < track.base || last >= track.base + track.kept) return 0;
  if (head_.spec().kind == HeadSpec::Kind::medusa) return 1;
  // Entries of tokens that the answer does not have after all are made again.
  for (size_t i = 0; i < track.line.size(); ++i) {
    const auto at = static_cast<size_t>(track.start) + 1 + i;
    if (at < ask.tokens.size() && ask.tokens[at] == track.line[i]) continue;
    track.line.resize(i);
    break;
  }
  if (track.line.empty() || track.next() < track.base || last - track.next() + 1 > rows_) {
    track.start = std::max(track.base, last + 1 - rows_);
    track.line.clear();
  }
  return std::max(0, last - track.next() + 1);
}

void HeadDrafter::stage_row(int row, int sequence, Token token, int position) {
  tokens_[row] = token;
  positions_[row] = position;
  visible_[row] = position + 1;
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
void HeadDrafter::stage_fresh(std::span<Part> parts) {
  step_.rows = 0;
  step_.sequences = step_.wanted = static_cast<int32_t>(parts.size());
  first_row_[0] = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto sequence = static_cast<int>(i);
    Track& track = *parts[i].track;
    for (int page = 0; page < slot_pages_; ++page)
      pages_[sequence * slot_pages_ + page] = track.slot * slot_pages_ + page;
    const int fresh = parts[i].rows, to = step_.rows;
    each_stretch(track, track.next(), fresh,
                 [&](int64_t at, int done, int rows) { copy_rows(streams_, at, input(feature_), to + done, rows); });
    for (int row = 0; row < fresh; ++row) {
      const int position = track.next();
      const Token token = parts[i].ask->tokens[static_cast<size_t>(position) + 1];
      stage_row(step_.rows, sequence, token, position - track.start);
      track.line.push_back(token);
      ++step_.rows;
    }
    first_row_[i + 1] = step_.rows;
    wanted_rows_[i] = step_.rows - 1;
  }
}

// One entry more for each, of the token just guessed. They are not part of the line: the answer may go on otherwise.
void HeadDrafter::stage_next(std::span<Part> parts, Tensor next) {
  copy_rows(next, 0, input(head_.spec().width), 0, static_cast<int64_t>(parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto row = static_cast<int>(i);
    const std::vector<Token>& out = *parts[i].ask->out;
    const auto position = static_cast<int>(parts[i].track->line.size() + std::max<size_t>(out.size(), 1)) - 1;
    stage_row(row, row, out.empty() ? 0 : out.back(), position);
    first_row_[i + 1] = row + 1;
    wanted_rows_[i] = row;
  }
  step_.rows = step_.wanted = static_cast<int32_t>(parts.size());
}

void HeadDrafter::choose(Part& part, const float* logits) {
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

// One guess more for everybody who wants one. False: nobody does.
bool HeadDrafter::choose_all(std::span<Part> parts, Tensor logits) {
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

void HeadDrafter::guess(std::span<Part> parts) {
  stage_fresh(parts);
  HeadOutput output = run_head(*ops_, head_, store_->view(0), step_, input(feature_), true);
  while (choose_all(parts, output.logits)) {
    stage_next(parts, output.next);
    output = run_head(*ops_, head_, store_->view(0), step_, input(head_.spec().width), false);
  }
}

void HeadDrafter::guess_medusa(std::span<Part> parts) {
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
      const int count = settle(asks[next], found->second);
      if (count == 0) continue;
      if (rows + count > rows_) break;
      rows += count;
      parts_.push_back({&asks[next], &found->second, count, true, {}});
    }
    if (parts_.empty()) return;
    medusa ? guess_medusa(parts_) : guess(parts_);
    for (Part& part : parts_) {
      if (part.ask->branches > 0) {
        part.ask->out->clear();
        plan_paths(part.choices, medusa, part.ask->limit, part.ask->branches, *part.ask->out, *part.ask->others);
      }
      // What was used is not needed again.
      part.track->base = static_cast<int>(part.ask->tokens.size()) - 1;
      part.track->kept = 0;
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
