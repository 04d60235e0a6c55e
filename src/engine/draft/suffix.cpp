#include "engine/draft/suffix.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr Token kBorder = -1;          // between texts; no model has it
constexpr int32_t kTrusted = 1 << 20;  // agreement a client's prediction starts with

}  // namespace

SuffixDrafter::Corpus* SuffixDrafter::corpus(const Identity& root) {
  if (!options_.earlier) return nullptr;
  auto found = std::find_if(corpora_.begin(), corpora_.end(), [&](const auto& one) { return one.first == root; });
  if (found != corpora_.end()) {
    std::rotate(corpora_.begin(), found, found + 1);
  } else {
    corpora_.emplace_front(root, std::make_unique<Corpus>());
    corpora_.front().second->era = eras_++;
    if (corpora_.size() > options_.roots) corpora_.pop_back();
  }
  return corpora_.front().second.get();
}

void SuffixDrafter::follow(const SuffixIndex& index, Cursor& cursor, Token token) {
  if (cursor.at < 0) return;
  const bool agrees = cursor.at < index.size() && index.text()[static_cast<size_t>(cursor.at)] == token;
  cursor = agrees ? Cursor{cursor.at + 1, cursor.agreed + 1} : Cursor{};
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

void SuffixDrafter::read(Track& track, const DraftAsk& ask, Corpus* corpus) {
  if (track.read == 0) {
    for (Token token : ask.prediction) track.index.add(token);
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
    track.match = track.index.read(track.match, token);
    follow(track.index, track.cursor, token);
    track.index.add(token);
    track.match = track.index.settled(track.match);
    if (track.read >= track.prompt) track.said.push_back(token);
    if (corpus == nullptr) continue;
    track.earlier_match = corpus->index.read(track.earlier_match, token);
    follow(corpus->index, track.earlier_cursor, token);
  }
  if (track.read == track.prompt && !ask.prediction.empty()) track.cursor = {0, kTrusted};
  look_up(track.index, track.match, track.cursor);
  if (corpus != nullptr) look_up(corpus->index, track.earlier_match, track.earlier_cursor);
}

void SuffixDrafter::propose(std::span<const DraftAsk> asks) {
  for (const DraftAsk& ask : asks) {
    if (options_.predicted && ask.prediction.empty()) continue;
    Track& track = tracks_[{ask.request, ask.choice}];
    Corpus* earlier = corpus(ask.root);
    // A step that was thrown away may have said more than the answer has.
    if (track.read > ask.tokens.size()) track = Track();
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
  for (auto at = from; at != to && options_.earlier; ++at) {
    const Track& track = at->second;
    Corpus& learnt = *corpus(track.root);
    if (learnt.index.size() + static_cast<int>(track.said.size()) + 1 > options_.earlier_tokens) {
      learnt.index = SuffixIndex();
      learnt.era = eras_++;
    }
    if (static_cast<int>(track.said.size()) >= options_.earlier_tokens) continue;
    for (Token token : track.said) learnt.index.add(token);
    learnt.index.add(kBorder);
  }
  tracks_.erase(from, to);
}

int64_t SuffixDrafter::bytes() const {
  int64_t sum = 0;
  for (const auto& [key, track] : tracks_) sum += track.index.bytes();
  for (const auto& [root, one] : corpora_) sum += one->index.bytes();
  return sum;
}

}  // namespace millrace
