#include "engine/draft/model.h"

#include <algorithm>

namespace millrace {

ModelDrafter::ModelDrafter(std::unique_ptr<Executor> executor)
    : executor_(std::move(executor)),
      cache_(executor_->layout(), executor_->options().pages, 0),
      scratch_(executor_->vocab()) {}

Result<std::unique_ptr<Drafter>> ModelDrafter::create(const Model& model, const Executor& target, Backend& backend) {
  const ModelSpec& own = model.spec();
  if (own.vocab != target.vocab())
    return error(Code::invalid, "the draft model has {} tokens and the model {}: they must have the same vocabulary",
                 own.vocab, target.vocab());
  ExecutorOptions options = target.options();
  if (own.context < options.context)
    return error(Code::invalid, "the draft model was made for {} tokens, a context of {} is wanted: ask for less (-c)",
                 own.context, options.context);
  options.pages = 0;
  options.wanted = 0;
  options.beside = {};
  auto executor = Executor::create(model, backend, options);
  if (!executor.ok()) return within("the draft model", executor.error());
  return std::unique_ptr<Drafter>(new ModelDrafter(std::move(*executor)));
}

// Goes back to where the answer and what is in the store agree.
ModelDrafter::Track& ModelDrafter::catch_up(const DraftAsk& ask) {
  auto [found, fresh] = tracks_.try_emplace({ask.request, ask.choice});
  Track& track = found->second;
  if (fresh) track.pages = cache_.open(opened_++, ask.root);
  const auto most = std::min<size_t>(static_cast<size_t>(track.computed), ask.tokens.size() - 1);
  const auto agreed = static_cast<int>(
      std::mismatch(track.line.begin(), track.line.begin() + static_cast<ptrdiff_t>(most), ask.tokens.begin()).first -
      track.line.begin());
  if (track.pages.empty()) {
    track.computed = cache_.reuse_prefix(track.pages, ask.tokens);
  } else if (agreed < track.computed) {
    track.computed = cache_.rollback(track.pages, agreed);
  }
  track.line.assign(ask.tokens.begin(), ask.tokens.end());
  track.used = calls_;
  track.asked = true;
  return track;
}

bool ModelDrafter::drop_oldest() {
  Track* oldest = nullptr;
  for (auto& [key, track] : tracks_) {
    if (track.asked || track.pages.empty()) continue;
    if (oldest == nullptr || track.used < oldest->used) oldest = &track;
  }
  if (oldest == nullptr) return false;
  cache_.release(oldest->pages);
  oldest->computed = 0;
  return true;
}

bool ModelDrafter::reserve(Track& track, int upto) {
  while (!cache_.reserve(track.pages, track.computed, upto, false)) {
    if (!drop_oldest()) return false;
  }
  return true;
}

void ModelDrafter::choose(const DraftAsk& ask, Track& track, std::span<const float> logits) {
  const bool first = ask.out->empty();
  const std::span<const Token> banned = first ? ask.banned_now : std::span<const Token>();
  const auto token = ask.sampler->guess(logits, track.line, scratch_, banned);
  if (!token.ok()) return;  // broken numbers guess nothing
  if (ask.odds != nullptr) {
    auto odds = ask.sampler->distribution(logits, track.line, scratch_, banned);
    if (!odds.ok()) return;
    ask.odds->push_back(std::move(*odds));
  }
  ask.out->push_back(*token);
  track.line.push_back(*token);
}

// One pass of the draft model over what its lines lack, as far as rows go. False: everybody has what they want.
bool ModelDrafter::pass(std::span<const DraftAsk> asks) {
  int rows = executor_->options().rows;
  chunks_.clear();
  for (size_t i = 0; i < asks.size(); ++i) {
    Track* track = active_[i];
    if (track == nullptr) continue;
    const int size = static_cast<int>(track->line.size());
    track->begin = track->computed;
    track->count = std::min(size - track->computed, rows);
    if (track->count <= 0) continue;
    if (!reserve(*track, track->begin + track->count)) {
      active_[i] = nullptr;  // no room: no guesses
      continue;
    }
    rows -= track->count;
    const bool reaches = track->begin + track->count == size;
    chunks_.push_back({.tokens = std::span<const Token>(track->line)
                                     .subspan(static_cast<size_t>(track->begin), static_cast<size_t>(track->count)),
                       .begin = track->begin,
                       .tables = track->pages.tables,
                       .wanted = reaches ? 1 : 0});
  }
  if (chunks_.empty()) return false;
  executor_->carry_out(cache_);
  const Tensor logits = executor_->run(chunks_);
  int64_t row = 0;
  for (size_t i = 0; i < asks.size(); ++i) {
    Track* track = active_[i];
    if (track == nullptr || track->count <= 0) continue;
    track->computed += track->count;
    if (track->computed < static_cast<int>(track->line.size())) continue;
    const size_t before = asks[i].out->size();
    choose(asks[i], *track, {logits.row(row++), static_cast<size_t>(executor_->vocab())});
    const bool more = asks[i].out->size() > before && static_cast<int>(asks[i].out->size()) < asks[i].limit;
    if (!more) active_[i] = nullptr;
  }
  return true;
}

void ModelDrafter::propose(std::span<const DraftAsk> asks) {
  ++calls_;
  active_.clear();
  for (const DraftAsk& ask : asks) active_.push_back(ask.limit > 0 ? &catch_up(ask) : nullptr);
  while (pass(asks)) continue;
  for (const DraftAsk& ask : asks) {
    auto found = tracks_.find({ask.request, ask.choice});
    if (found == tracks_.end()) continue;
    Track& track = found->second;
    track.asked = false;
    // Only the answer itself is offered to others, not guesses after it.
    const int certain = std::min(track.computed, static_cast<int>(ask.tokens.size()));
    if (!track.pages.empty()) cache_.publish(track.pages, ask.tokens, certain);
  }
}

void ModelDrafter::forget(RequestId request) {
  const auto from = tracks_.lower_bound({request, 0}), to = tracks_.lower_bound({request + 1, 0});
  for (auto at = from; at != to; ++at) cache_.release(at->second.pages);
  tracks_.erase(from, to);
}

}  // namespace millrace
