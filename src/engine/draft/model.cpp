#include "engine/draft/model.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kLazy = 32;  // tokens of an answer that may wait

// How many of the first tokens two lines have in common.
int agreed(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

ModelDrafter::ModelDrafter(std::unique_ptr<Executor> executor, bool own)
    : executor_(std::move(executor)), scratch_(executor_->vocab()) {
  if (own) own_ = std::make_unique<KvCache>(executor_->layout(), executor_->options().pages, 0);
  // Pages that a window has left are gone: what reads a window waits for nothing.
  const auto shapes = kv_shapes(executor_->model().spec(), executor_->options().kv);
  const bool windows = std::any_of(shapes.begin(), shapes.end(), [](const KvShape& shape) { return shape.window > 0; });
  lazy_ = windows ? 0 : std::min(kLazy, executor_->options().rows - 1);
}

BesideLayers ModelDrafter::beside(const ModelSpec& model) {
  BesideLayers layers{.layers = kv_shapes(model, KvForm())};
  const bool states =
      std::any_of(layers.layers.begin(), layers.layers.end(), [](const auto& shape) { return shape.state.kept(); });
  return states ? BesideLayers() : layers;
}

Result<std::unique_ptr<Drafter>> ModelDrafter::create(const Model& model, Executor& target, Backend& backend,
                                                      int first) {
  const ModelSpec& own = model.spec();
  if (own.vocab != target.vocab())
    return error(Code::invalid, "the draft model has {} tokens and the model {}: they must have the same vocabulary",
                 own.vocab, target.vocab());
  if (own.context < target.options().context)
    return error(Code::invalid, "the draft model was made for {} tokens, a context of {} is wanted: ask for less (-c)",
                 own.context, target.options().context);
  const BesideLayers wanted = beside(own);
  TRY_VOID(check_beside(target.options().beside, first, wanted));
  ExecutorOptions options = target.options();
  options.pages = 0;
  options.wanted = 0;
  options.beside = {};
  options.branches = options.branch_tokens = 0;
  auto executor =
      wanted.any() ? Executor::create_in(target, first, model, backend) : Executor::create(model, backend, options);
  if (!executor.ok()) return within("the draft model", executor.error());
  return std::unique_ptr<Drafter>(new ModelDrafter(std::move(*executor), !wanted.any()));
}

// In new pages everything before `begin` was found in the cache, and nothing behind it.
void ModelDrafter::settle(Track& track, int residence, int begin, std::span<const Token> tokens) {
  const bool moved = residence != track.residence;
  const int same = moved ? begin : agreed(std::span(track.line).first(static_cast<size_t>(track.computed)), tokens);
  track.computed = std::min(moved ? begin : track.computed, same);
  if (begin != track.begin) track.computed = std::min(track.computed, begin);
  track.residence = residence;
  track.begin = begin;
  track.line.assign(tokens.begin(), tokens.end());
}

void ModelDrafter::observe(std::span<Observed> rows) {
  parts_.clear();
  bool now = false;
  for (const Observed& seen : rows) {
    Track& track = tracks_[{seen.request, seen.choice}];
    const int upto = seen.begin + seen.rows;
    settle(track, seen.residence, seen.begin, seen.tokens.first(static_cast<size_t>(upto)));
    track.tables = seen.tables;
    const int waiting = upto - track.computed;
    now = now || waiting > (seen.waits ? lazy_ : 0);
    if (waiting > 0) parts_.push_back({.track = &track});
  }
  while (now && pass(parts_)) continue;
  for (Observed& seen : rows) seen.entries = tracks_.at({seen.request, seen.choice}).computed;
}

// Goes back to where the answer and what is in the store agree.
void ModelDrafter::read_own(Track& track, const DraftAsk& ask) {
  if (track.used == 0) track.pages = own_->open(opened_++, ask.root);
  const size_t most = std::min(static_cast<size_t>(track.computed), ask.tokens.size() - 1);
  const int same = agreed(std::span(track.line).first(most), ask.tokens);
  if (track.pages.empty()) {
    track.computed = own_->reuse_prefix(track.pages, ask.tokens);
  } else if (same < track.computed) {
    track.computed = own_->rollback(track.pages, same);
  }
  track.line.assign(ask.tokens.begin(), ask.tokens.end());
  track.used = calls_;
  track.asked = true;
}

bool ModelDrafter::drop_oldest() {
  Track* oldest = nullptr;
  for (auto& [key, track] : tracks_) {
    if (track.asked || track.pages.empty()) continue;
    if (oldest == nullptr || track.used < oldest->used) oldest = &track;
  }
  if (oldest == nullptr) return false;
  own_->release(oldest->pages);
  oldest->computed = 0;
  return true;
}

bool ModelDrafter::reserve(Track& track, int upto) {
  while (own_ != nullptr && !own_->reserve(track.pages, track.computed, upto, false)) {
    if (!drop_oldest()) return false;
  }
  if (own_ != nullptr) track.tables = track.pages.tables;
  return true;
}

// One guess more. False: none could be made.
bool ModelDrafter::choose(const PassShare& part, std::span<const float> logits) {
  const DraftAsk& ask = *part.ask;
  const std::span<const Token> banned = ask.out->empty() ? ask.banned_now : std::span<const Token>();
  const auto token = ask.sampler->guess(logits, part.track->line, scratch_, banned);
  if (!token.ok()) return false;  // broken numbers guess nothing
  if (ask.odds != nullptr) {
    auto odds = ask.sampler->distribution(logits, part.track->line, scratch_, banned);
    if (!odds.ok()) return false;
    ask.odds->push_back(std::move(*odds));
  }
  ask.out->push_back(*token);
  part.track->line.push_back(*token);
  return true;
}

// One pass of the draft model over what its lines lack, as far as rows go. False: everybody has what they want.
bool ModelDrafter::pass(std::span<PassShare> parts) {
  int rows = executor_->options().rows;
  chunks_.clear();
  for (PassShare& part : parts) {
    Track& track = *part.track;
    const int lacks = static_cast<int>(track.line.size()) - track.computed;
    part.count = part.open ? std::min(lacks, rows) : 0;
    if (part.count <= 0) continue;
    if (!reserve(track, track.computed + part.count)) {
      part.open = false;  // no room: no guesses
      part.count = 0;
      continue;
    }
    rows -= part.count;
    const auto begin = static_cast<size_t>(track.computed), count = static_cast<size_t>(part.count);
    chunks_.push_back({.tokens = std::span<const Token>(track.line).subspan(begin, count),
                       .begin = track.computed,
                       .tables = track.tables,
                       .wanted = part.ask != nullptr && part.count == lacks ? 1 : 0});
  }
  if (chunks_.empty()) return false;
  if (own_ != nullptr) executor_->carry_out(*own_);
  const Tensor logits = executor_->run(chunks_);
  int64_t row = 0;
  for (PassShare& part : parts) {
    if (part.count == 0) continue;
    Track& track = *part.track;
    track.computed += part.count;
    if (part.ask == nullptr || track.computed < static_cast<int>(track.line.size())) continue;
    part.open = choose(part, {logits.row(row++), static_cast<size_t>(executor_->vocab())}) &&
                static_cast<int>(part.ask->out->size()) < part.ask->limit;
  }
  return true;
}

void ModelDrafter::propose(std::span<const DraftAsk> asks) {
  ++calls_;
  parts_.clear();
  for (const DraftAsk& ask : asks) {
    if (ask.limit < 1) continue;
    Track& track = tracks_[{ask.request, ask.choice}];
    if (own_ != nullptr) {
      read_own(track, ask);
    } else {
      settle(track, ask.residence, ask.begin, ask.tokens);
      track.computed = std::min(track.computed, static_cast<int>(ask.tokens.size()) - 1);
      track.tables = ask.tables;
    }
    parts_.push_back({.track = &track, .ask = &ask});
  }
  while (pass(parts_)) continue;
  for (const PassShare& part : parts_) {
    Track& track = *part.track;
    if (own_ == nullptr) continue;
    track.asked = false;
    // Only the answer itself is offered to others, not guesses after it.
    const int certain = std::min(track.computed, static_cast<int>(part.ask->tokens.size()));
    if (!track.pages.empty()) own_->publish(track.pages, part.ask->tokens, certain);
  }
}

void ModelDrafter::forget(RequestId request) {
  const auto from = tracks_.lower_bound({request, 0}), to = tracks_.lower_bound({request + 1, 0});
  for (auto at = from; at != to && own_ != nullptr; ++at) own_->release(at->second.pages);
  tracks_.erase(from, to);
}

}  // namespace millrace
