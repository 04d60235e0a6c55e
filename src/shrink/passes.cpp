#include "shrink/passes.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {

TextPass::TextPass(Executor& executor, std::span<const ScoredText> texts)
    : executor_(executor), texts_(texts), cache_(executor.layout(), executor.options().pages, 0) {}

// The last token is only predicted.
int32_t TextPass::length(const Active& active) const {
  return static_cast<int32_t>(texts_[active.text].tokens.size()) - 1;
}

Tensor TextPass::step() {
  const ExecutorOptions& options = executor_.options();
  while (next_ < texts_.size() && static_cast<int32_t>(active_.size()) < options.sequences) {
    if (texts_[next_].tokens.size() > 1) active_.push_back({next_, 0, cache_.open(static_cast<int64_t>(next_), {})});
    ++next_;
  }
  rows_.clear();
  std::vector<Chunk> chunks;
  for (Active& active : active_) {
    const auto room = std::min(options.rows, options.wanted) - static_cast<int32_t>(rows_.size());
    const int32_t count = std::min(length(active) - active.computed, room);
    if (count <= 0) break;
    CHECK(cache_.reserve(active.pages, active.computed, active.computed + count), "pages for all sequences");
    const auto tokens = std::span(texts_[active.text].tokens);
    chunks.push_back({.tokens = tokens.subspan(static_cast<size_t>(active.computed), static_cast<size_t>(count)),
                      .begin = active.computed,
                      .tables = active.pages.tables,
                      .wanted = count});
    for (int32_t i = 0; i < count; ++i) rows_.push_back({active.text, active.computed + i});
  }
  if (chunks.empty()) return {};
  executor_.carry_out(cache_);
  const Tensor logits = executor_.run(chunks);
  for (size_t i = 0; i < chunks.size(); ++i) {
    active_[i].computed += static_cast<int32_t>(chunks[i].tokens.size());
    if (active_[i].computed == length(active_[i])) cache_.release(active_[i].pages);
  }
  std::erase_if(active_, [&](const Active& active) { return active.computed == length(active); });
  return logits;
}

int64_t tokens_of(std::span<const ScoredText> texts) {
  int64_t tokens = 0;
  for (const ScoredText& text : texts) tokens += std::max<int64_t>(0, static_cast<int64_t>(text.tokens.size()) - 1);
  return tokens;
}

Result<void> run_pass(Executor& executor, std::span<const ScoredText> texts, const PassProgress& progress) {
  TextPass pass(executor, texts);
  int64_t tokens = 0;
  while (!pass.done()) {
    pass.step();
    tokens += static_cast<int64_t>(pass.rows().size());
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  return {};
}

Result<SplitTexts> split_texts(std::vector<ScoredText> texts) {
  SplitTexts out;
  for (size_t i = 0; i < texts.size(); ++i) {
    (i % 5 == 4 ? out.held_out : out.fitted).push_back(std::move(texts[i]));
  }
  if (out.held_out.empty()) {
    return error(Code::invalid,
                 "the calibration text has {} documents or windows, and every fifth is held out to decide by: at least "
                 "5 are needed; use a longer text, or a smaller --ctx",
                 out.fitted.size());
  }
  return out;
}

}  // namespace millrace
