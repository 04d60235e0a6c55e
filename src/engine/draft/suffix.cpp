#include "engine/draft/suffix.h"

#include <algorithm>
#include <bit>

#include "backend/backend.h"
#include "engine/executor.h"

namespace millrace {
namespace {

constexpr Token kBorder = -1;              // between texts; no model has it
constexpr int32_t kTrusted = 1 << 20;      // agreement a client's prediction starts with
constexpr int32_t kLong = 4;               // agreement that outlives a token which is another
constexpr int32_t kAfterOther = 8;         // what is left of it then at most
constexpr int32_t kAllAnswers = 1 << 19;   // tokens of all answers together; of a long one eight times its own
constexpr int32_t kMostEarlier = 1 << 16;  // of a root
constexpr int32_t kLeast = 64;             // of anything

int32_t power_below(int64_t tokens) {
  return static_cast<int32_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(tokens, kLeast, 1 << 28))));
}
int32_t power_above(int64_t tokens) { return power_below(2 * tokens - 1); }

}  // namespace

// Twice a text, so that a client's prediction has room beside it.
SuffixDrafter::Rooms SuffixDrafter::plan(const SuffixOptions& options, int32_t sequences, int32_t context) {
  const int32_t whole = power_above(int64_t{2} * context);
  const int64_t all = std::max<int64_t>(kAllAnswers, int64_t{4} * whole);
  Rooms rooms{.answer = std::min(whole, power_below(all / sequences)), .earlier = 0, .answers = sequences, .roots = 0};
  if (!options.earlier) return rooms;
  rooms.earlier = std::min(kMostEarlier, power_above(int64_t{sequences} * context));
  rooms.roots = static_cast<int32_t>(options.roots);
  return rooms;
}

Result<std::unique_ptr<Drafter>> SuffixDrafter::create(const SuffixOptions& options, Executor& target,
                                                       Backend& backend) {
  const Rooms rooms = plan(options, target.options().sequences, target.options().context);
  auto memory = backend.allocate_results(rooms.bytes());
  if (!memory.ok()) return within("what guesses from earlier text keep", memory.error());
  return std::unique_ptr<Drafter>(new SuffixDrafter(options, rooms, *memory));
}

SuffixDrafter::SuffixDrafter(const SuffixOptions& options, const Rooms& rooms, std::byte* memory)
    : options_(options), rooms_(rooms) {
  for (int32_t i = 0; i < rooms.roots; ++i, memory += rooms.earlier * SuffixIndex::kTokenBytes)
    corpora_.push_back({.root = {}, .index = SuffixIndex(memory, rooms.earlier), .era = -1});
  for (int32_t i = 0; i < rooms.answers; ++i, memory += rooms.answer * SuffixIndex::kTokenBytes)
    free_.push_back(memory);
}

SuffixDrafter::Corpus* SuffixDrafter::corpus(const Identity& root) {
  if (!options_.earlier) return nullptr;
  auto found = std::find_if(corpora_.begin(), corpora_.end(),
                            [&](const Corpus& one) { return one.era >= 0 && one.root == root; });
  if (found == corpora_.end()) {  // in the place of the one that was used longest ago
    found = std::prev(corpora_.end());
    found->root = root;
    found->index.clear();
    found->era = eras_++;
  }
  std::rotate(corpora_.begin(), found, found + 1);
  return &corpora_.front();
}

// There are places for all answers of a step, so one that is not in this one has what is wanted.
std::byte* SuffixDrafter::place() {
  if (free_.empty()) {
    Track* oldest = nullptr;
    for (auto& [key, track] : tracks_) {
      if (track.place == nullptr || track.used == calls_) continue;
      if (oldest == nullptr || track.used < oldest->used) oldest = &track;
    }
    if (oldest == nullptr) return nullptr;
    free_.push_back(oldest->place);
    *oldest = Track();
  }
  std::byte* const place = free_.back();
  free_.pop_back();
  return place;
}

SuffixDrafter::Track& SuffixDrafter::track_of(const DraftAsk& ask) {
  Track& track = tracks_[{ask.request, ask.choice}];
  track.used = calls_;
  // A step that was thrown away may have said more than the answer has.
  if (track.place != nullptr && track.read <= ask.tokens.size()) return track;
  std::byte* const found = track.place != nullptr ? track.place : place();
  track = Track();
  track.used = calls_;
  track.place = found;
  if (found != nullptr) track.index = SuffixIndex(found, rooms_.answer);
  return track;
}

// After a long agreement a token that is another is taken for one that was written differently: what comes behind it is
// guessed to be as it was.
void SuffixDrafter::follow(const SuffixIndex& index, Cursor& cursor, Token token) {
  if (cursor.at < 0) return;
  const Token next = cursor.at < index.size() ? index.text()[static_cast<size_t>(cursor.at)] : kBorder;
  if (next == token) {
    cursor = {cursor.at + 1, cursor.agreed + 1};
  } else if (next != kBorder && cursor.agreed >= kLong) {
    cursor = {cursor.at + 1, std::min(cursor.agreed / 2, kAfterOther)};
  } else {
    cursor = {};
  }
}

// A longer agreement elsewhere counts more than going on where it was.
void SuffixDrafter::look_up(const SuffixIndex& index, const SuffixIndex::Match& match, Cursor& cursor) const {
  if (match.length < options_.least_match || (cursor.at >= 0 && match.length <= cursor.agreed)) return;
  cursor = {index.after(match), match.length};
}

// Reads on past the end of the text into what was copied: a loop goes on for ever.
void SuffixDrafter::copy(const SuffixIndex& index, const Cursor& cursor, int limit, std::vector<Token>& out) {
  const int32_t most = std::min(limit, cursor.agreed);
  for (int32_t i = 0; i < most; ++i) {
    const auto at = static_cast<size_t>(cursor.at + i), size = static_cast<size_t>(index.size());
    if (at >= size && at - size >= out.size()) return;
    const Token token = at < size ? index.text()[at] : out[at - size];
    if (token == kBorder) return;
    out.push_back(token);
  }
}

// Where the text is longer than there is room for, its latest half is read again and the rest forgotten.
void SuffixDrafter::take(Track& track, Token token) {
  track.match = track.index.read(track.match, token);
  follow(track.index, track.cursor, token);
  if (track.index.full()) {
    const auto text = track.index.text();
    latest_.assign(text.begin() + std::ssize(text) / 2, text.end());
    latest_.push_back(token);
    track.index.clear();
    track.match = {};
    track.cursor = {};
    for (const Token again : latest_) {
      track.match = track.index.read(track.match, again);
      track.index.add(again);
      track.match = track.index.settled(track.match);
    }
  } else {
    track.index.add(token);
    track.match = track.index.settled(track.match);
  }
  look_up(track.index, track.match, track.cursor);
}

void SuffixDrafter::read(Track& track, const DraftAsk& ask, Corpus* corpus) {
  if (track.read == 0) {
    const size_t most = static_cast<size_t>(track.index.room()) / 2 - 1;
    for (Token token : ask.prediction.first(std::min(ask.prediction.size(), most))) track.index.add(token);
    if (!ask.prediction.empty()) track.index.add(kBorder);
    track.root = ask.root;
    track.prompt = static_cast<size_t>(ask.prompt);
  }
  if (corpus != nullptr && corpus->era != track.era) {
    track.earlier_match = {};
    track.earlier_cursor = {};
    track.era = corpus->era;
  }
  if (corpus != nullptr) track.earlier_match = corpus->index.settled(track.earlier_match);
  for (; track.read < ask.tokens.size(); ++track.read) {
    const Token token = ask.tokens[track.read];
    if (track.read == track.prompt && !ask.prediction.empty()) track.cursor = {0, kTrusted};
    take(track, token);
    if (track.read >= track.prompt && std::ssize(track.said) < rooms_.earlier) track.said.push_back(token);
    if (corpus == nullptr) continue;
    track.earlier_match = corpus->index.read(track.earlier_match, token);
    follow(corpus->index, track.earlier_cursor, token);
    look_up(corpus->index, track.earlier_match, track.earlier_cursor);
  }
  if (track.read == track.prompt && !ask.prediction.empty()) track.cursor = {0, kTrusted};
}

void SuffixDrafter::propose(std::span<const DraftAsk> asks) {
  ++calls_;
  for (const DraftAsk& ask : asks) {
    if (options_.predicted && ask.prediction.empty()) continue;
    Track& track = track_of(ask);
    if (track.place == nullptr) continue;
    Corpus* earlier = corpus(ask.root);
    read(track, ask, earlier);
    const bool elsewhere = track.earlier_cursor.at >= 0 && track.earlier_cursor.agreed > track.cursor.agreed;
    if (elsewhere) {
      copy(earlier->index, track.earlier_cursor, ask.limit, *ask.out);
    } else if (track.cursor.at >= 0) {
      copy(track.index, track.cursor, ask.limit, *ask.out);
    }
  }
}

void SuffixDrafter::forget(RequestId request) {
  const auto from = tracks_.lower_bound({request, 0}), to = tracks_.lower_bound({request + 1, 0});
  for (auto at = from; at != to; ++at) {
    const Track& track = at->second;
    if (track.place == nullptr) continue;
    free_.push_back(track.place);
    const auto said = static_cast<int32_t>(track.said.size());
    if (!options_.earlier || said >= rooms_.earlier) continue;
    Corpus& learnt = *corpus(track.root);
    if (learnt.index.size() + said + 1 > rooms_.earlier) {
      learnt.index.clear();
      learnt.era = eras_++;
    }
    for (Token token : track.said) learnt.index.add(token);
    learnt.index.add(kBorder);
  }
  tracks_.erase(from, to);
}

}  // namespace millrace
