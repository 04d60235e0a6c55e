#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "engine/sampler_scan.h"

namespace millrace {
namespace {

// One text on its way through the model.
struct Active {
  size_t text = 0;
  int32_t computed = 0;
  SequencePages pages;
};

// Adds the surprise of `token` under a row of logits.
Result<void> add_surprise(std::span<const float> logits, Token token, TextScore& score) {
  TRY(Candidate largest, find_largest(logits));
  const double log_sum = std::log(sum_weights(logits, largest.logit, 1).weight);
  const double surprise = log_sum - static_cast<double>(logits[static_cast<size_t>(token)] - largest.logit);
  ++score.tokens;
  score.surprise += surprise;
  score.squares += surprise * surprise;
  return {};
}

class Scoring {
 public:
  Scoring(Executor& executor, std::span<const ScoredText> texts)
      : executor_(executor), texts_(texts), cache_(executor.layout(), executor.options().pages, 0) {
    result_.texts.resize(texts.size());
  }

  bool done() const { return active_.empty() && next_ == texts_.size(); }
  Result<int64_t> step();
  Perplexity take() {
    for (const TextScore& score : result_.texts) {
      result_.total.tokens += score.tokens;
      result_.total.surprise += score.surprise;
      result_.total.squares += score.squares;
    }
    return std::move(result_);
  }

 private:
  void admit();
  int32_t plan();
  Result<void> collect(Tensor logits);
  // The last token of a text is only predicted.
  int32_t length(const Active& active) const { return static_cast<int32_t>(texts_[active.text].tokens.size()) - 1; }

  Executor& executor_;
  std::span<const ScoredText> texts_;
  KvCache cache_;
  size_t next_ = 0;
  std::vector<Active> active_;
  std::vector<Chunk> chunks_;  // of active_[0], active_[1] ...
  Perplexity result_;
};

void Scoring::admit() {
  while (next_ < texts_.size() && static_cast<int32_t>(active_.size()) < executor_.options().sequences) {
    if (texts_[next_].tokens.size() > 1) active_.push_back({next_, 0, cache_.open(static_cast<int64_t>(next_), {})});
    ++next_;
  }
}

// As many tokens of as many texts as a step takes. Returns the rows.
int32_t Scoring::plan() {
  chunks_.clear();
  int32_t rows = 0, wanted = 0;
  for (Active& active : active_) {
    const ScoredText& text = texts_[active.text];
    int32_t count = std::min(length(active) - active.computed, executor_.options().rows - rows);
    // Row i predicts token i + 1.
    auto scored = [&](int32_t rows_here) {
      return std::min(rows_here, active.computed + rows_here - (text.first - 1));
    };
    if (scored(count) > executor_.options().wanted - wanted)
      count -= scored(count) - (executor_.options().wanted - wanted);
    if (count <= 0) break;
    CHECK(cache_.reserve(active.pages, active.computed, active.computed + count),
          "the executor has pages for all sequences");
    chunks_.push_back(
        {.tokens = std::span(text.tokens).subspan(static_cast<size_t>(active.computed), static_cast<size_t>(count)),
         .begin = active.computed,
         .tables = active.pages.tables,
         .wanted = std::max(0, scored(count))});
    rows += count;
    wanted += chunks_.back().wanted;
  }
  return rows;
}

Result<void> Scoring::collect(Tensor logits) {
  int64_t row = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Active& active = active_[i];
    const int32_t count = static_cast<int32_t>(chunks_[i].tokens.size());
    for (int32_t j = count - chunks_[i].wanted; j < count; ++j, ++row) {
      const Token token = texts_[active.text].tokens[static_cast<size_t>(active.computed + j + 1)];
      TRY_VOID(add_surprise({logits.row(row), static_cast<size_t>(logits.cols)}, token, result_.texts[active.text]));
    }
    active.computed += count;
    if (active.computed == length(active)) cache_.release(active.pages);
  }
  std::erase_if(active_, [&](const Active& active) { return active.computed == length(active); });
  return {};
}

Result<int64_t> Scoring::step() {
  admit();
  if (active_.empty()) return int64_t{0};
  const int32_t rows = plan();
  executor_.carry_out(cache_);
  TRY_VOID(collect(executor_.run(chunks_)));
  return int64_t{rows};
}

}  // namespace

double Perplexity::value() const {
  return total.tokens > 0 ? std::exp(total.surprise / static_cast<double>(total.tokens)) : 0;
}

double Perplexity::standard_error() const {
  if (total.tokens < 2) return 0;
  const double n = static_cast<double>(total.tokens), mean = total.surprise / n;
  const double variance = std::max(0.0, total.squares / n - mean * mean);
  return value() * std::sqrt(variance / (n - 1));
}

std::vector<std::string_view> split_documents(std::string_view text) {
  std::vector<std::string_view> documents;
  size_t start = 0;  // of the document
  bool inside = false;
  size_t last = 0;  // end of its last line that is not blank
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const bool blank = text.substr(line, end - line).find_first_not_of(" \t\r") == std::string_view::npos;
    if (blank && inside) documents.push_back(text.substr(start, last - start));
    if (!blank && !inside) start = line;
    if (!blank) last = end;
    inside = !blank;
    line = end + 1;
  }
  if (inside) documents.push_back(text.substr(start, last - start));
  return documents;
}

std::vector<ScoredText> cut_windows(std::span<const Token> tokens, std::optional<Token> begin, int32_t context) {
  CHECK(context >= 4, "a window of {} tokens", context);
  std::vector<ScoredText> windows;
  const size_t size = static_cast<size_t>(context);
  for (size_t start = 0; start + size <= tokens.size(); start += size) {
    ScoredText window;
    window.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(start),
                         tokens.begin() + static_cast<ptrdiff_t>(start + size));
    if (begin) window.tokens[0] = *begin;
    window.first = context / 2 + 1;
    windows.push_back(std::move(window));
  }
  return windows;
}

Result<Perplexity> score_texts(Executor& executor, std::span<const ScoredText> texts,
                               const std::function<bool(int64_t tokens)>& progress) {
  for (size_t i = 0; i < texts.size(); ++i) {
    CHECK(texts[i].first >= 1, "the first token has nothing before it");
    if (static_cast<int64_t>(texts[i].tokens.size()) - 1 > executor.options().context) {
      return error(Code::invalid, "text {} has {} tokens, but the context has {}; ask for a longer one or cut the text",
                   i + 1, texts[i].tokens.size(), executor.options().context);
    }
  }
  Scoring scoring(executor, texts);
  int64_t computed = 0;
  while (!scoring.done()) {
    TRY(int64_t rows, scoring.step());
    computed += rows;
    if (progress && !progress(computed)) return error(Code::cancelled, "stopped after {} tokens", computed);
  }
  return scoring.take();
}

ExecutorOptions scoring_options(std::span<const ScoredText> texts, int32_t vocab) {
  constexpr int64_t kLogitBytes = int64_t{64} << 20;
  ExecutorOptions options;
  size_t longest = 2;
  for (const ScoredText& text : texts) longest = std::max(longest, text.tokens.size());
  options.context = static_cast<int32_t>(std::min<size_t>(longest - 1, 1 << 30));
  options.rows = static_cast<int32_t>(std::clamp<int64_t>(kLogitBytes / (4 * int64_t{vocab}), 32, 512));
  options.wanted = options.rows;
  // Two more than fill a step with texts of this length: one that ends and one that begins within it.
  options.sequences = std::clamp(options.rows / std::max(1, options.context) + 2, 1, 16);
  return options;
}

}  // namespace millrace
