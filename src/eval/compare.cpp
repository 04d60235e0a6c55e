#include "eval/compare.h"

#include <algorithm>
#include <cmath>

#include "eval/divergence.h"

namespace millrace {
namespace {

constexpr int32_t kDepths = 4;  // parts that positions are sorted into

// One executor and its cache, going through a text.
struct Side {
  explicit Side(Executor& runs) : executor(runs), cache(runs.layout(), runs.options().pages, 0) {}

  void open(int64_t id) { pages = cache.open(id, {}); }
  void close() { cache.release(pages); }
  Tensor run(std::span<const Token> tokens, int32_t begin) {
    const auto count = static_cast<int32_t>(tokens.size());
    CHECK(cache.reserve(pages, begin, begin + count), "the executor has pages for a sequence");
    executor.carry_out(cache);
    const Chunk chunk = {.tokens = tokens, .begin = begin, .tables = pages.tables, .wanted = count};
    return executor.run({&chunk, 1});
  }

  Executor& executor;
  KvCache cache;
  SequencePages pages;
};

size_t likeliest(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Result<void> add_row(std::span<const float> base, std::span<const float> variant, Token next, int32_t position,
                     Comparison& result) {
  const double kl = divergence(base, variant);
  if (!std::isfinite(kl)) return error(Code::corrupt, "logits at position {} are not finite", position);
  const auto token = static_cast<size_t>(next);
  const double mine = log_sum_exp(base) - static_cast<double>(base[token]);
  const double other = log_sum_exp(variant) - static_cast<double>(variant[token]);
  const bool flipped = likeliest(base) != likeliest(variant);
  ++result.tokens;
  result.flips += flipped;
  result.kl.push_back(static_cast<float>(kl));
  result.kl_sum += kl;
  result.base_surprise += mine;
  result.variant_surprise += other;
  result.difference_squares += (other - mine) * (other - mine);
  for (DepthShare& depth : result.depths) {
    if (position < depth.from || position >= depth.to) continue;
    ++depth.tokens;
    depth.flips += flipped;
    depth.kl_sum += kl;
  }
  return {};
}

}  // namespace

double Comparison::kl_error() const {
  if (tokens < 2) return 0;
  double squares = 0;
  for (float value : kl) squares += (static_cast<double>(value) - kl_mean()) * (static_cast<double>(value) - kl_mean());
  return std::sqrt(squares / static_cast<double>(tokens - 1) / static_cast<double>(tokens));
}

double Comparison::kl_at(double share) const {
  if (kl.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(kl.size() - 1) + 0.5);
  return static_cast<double>(kl[std::min(index, kl.size() - 1)]);
}

double Comparison::base_perplexity() const {
  return tokens > 0 ? std::exp(base_surprise / static_cast<double>(tokens)) : 0;
}

double Comparison::variant_perplexity() const {
  return tokens > 0 ? std::exp(variant_surprise / static_cast<double>(tokens)) : 0;
}

double Comparison::perplexity_change() const {
  return tokens > 0 ? std::exp((variant_surprise - base_surprise) / static_cast<double>(tokens)) - 1 : 0;
}

double Comparison::perplexity_change_error() const {
  if (tokens < 2) return 0;
  const double n = static_cast<double>(tokens), mean = (variant_surprise - base_surprise) / n;
  const double variance = std::max(0.0, difference_squares / n - mean * mean);
  return (1 + perplexity_change()) * std::sqrt(variance / (n - 1));
}

Result<Comparison> compare_models(Executor& base, Executor& variant, std::span<const ScoredText> texts,
                                  const std::function<bool(int64_t tokens)>& progress) {
  if (base.vocab() != variant.vocab()) {
    return error(Code::invalid, "vocabularies of {} and {} tokens cannot be compared; the models must share one",
                 base.vocab(), variant.vocab());
  }
  Comparison result;
  size_t longest = 1;
  for (const ScoredText& text : texts) longest = std::max(longest, text.tokens.size());
  for (int32_t i = 0; i < kDepths; ++i) {
    const auto length = static_cast<int64_t>(longest);
    result.depths.push_back(
        {.from = static_cast<int32_t>(length * i / kDepths), .to = static_cast<int32_t>(length * (i + 1) / kDepths)});
  }
  Side one(base), two(variant);
  const int32_t rows =
      std::min({base.options().rows, variant.options().rows, base.options().wanted, variant.options().wanted});
  int64_t computed = 0;
  for (size_t t = 0; t < texts.size(); ++t) {
    const std::vector<Token>& tokens = texts[t].tokens;
    const int32_t end = static_cast<int32_t>(tokens.size()) - 1;  // the last is only predicted
    one.open(static_cast<int64_t>(t)), two.open(static_cast<int64_t>(t));
    for (int32_t begin = 0; begin < end;) {
      const int32_t count = std::min(rows, end - begin);
      const auto part = std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      const Tensor a = one.run(part, begin), b = two.run(part, begin);
      for (int32_t i = 0; i < count; ++i) {
        const int32_t position = begin + i;
        if (position + 1 < texts[t].first) continue;
        const auto width = static_cast<size_t>(a.cols);
        TRY_VOID(
            add_row({a.row(i), width}, {b.row(i), width}, tokens[static_cast<size_t>(position) + 1], position, result));
      }
      begin += count;
      computed += count;
      if (progress && !progress(computed)) return error(Code::cancelled, "stopped after {} tokens", computed);
    }
    one.close(), two.close();
  }
  std::sort(result.kl.begin(), result.kl.end());
  return result;
}

}  // namespace millrace
