#include "shrink/judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kMostKept = int64_t{1} << 30;  // bytes of the teacher's logits

struct RowResult {
  double kl = 0, base = 0, variant = 0;  // surprises of the next token
  bool flipped = false;
};

struct Peak {
  size_t at;
  double log_sum;
};

Peak peak_of(const float* logits, size_t count) {
  const size_t at = static_cast<size_t>(std::max_element(logits, logits + count) - logits);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(std::exp(logits[i] - logits[at]));
  return {at, static_cast<double>(logits[at]) + std::log(sum)};
}

RowResult compare_row(const float* base, const float* variant, size_t count, Token next) {
  const Peak mine = peak_of(base, count), other = peak_of(variant, count);
  const double shift = other.log_sum - mine.log_sum;
  const auto mine_sum = static_cast<float>(mine.log_sum);
  double kl = 0;
  for (size_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(base[i]) - static_cast<double>(variant[i]) + shift;
    kl += static_cast<double>(std::exp(base[i] - mine_sum)) * difference;
  }
  const auto token = static_cast<size_t>(next);
  return {.kl = kl < 0 ? 0 : kl,
          .base = mine.log_sum - static_cast<double>(base[token]),
          .variant = other.log_sum - static_cast<double>(variant[token]),
          .flipped = mine.at != other.at};
}

Result<void> add(const RowResult& row, Comparison& result) {
  if (!std::isfinite(row.kl)) return error(Code::corrupt, "logits are not finite");
  ++result.tokens;
  result.flips += row.flipped;
  result.kl.push_back(static_cast<float>(row.kl));
  result.kl_sum += row.kl;
  result.base_surprise += row.base;
  result.variant_surprise += row.variant;
  result.difference_squares += (row.variant - row.base) * (row.variant - row.base);
  return {};
}

}  // namespace

Judge::Judge(std::span<const ScoredText> texts, int threads)
    : texts_(texts), team_(threads > 0 ? threads : Team::processors()) {}

Result<std::unique_ptr<Judge>> Judge::make(const Model& teacher, Backend& backend, std::span<const ScoredText> texts,
                                           int threads) {
  std::unique_ptr<Judge> judge(new Judge(texts, threads));
  judge->options_ = scoring_options(texts, teacher.spec().vocab);
  TRY(judge->executor_, Executor::create(teacher, backend, judge->options_));
  const int64_t bytes = tokens_of(texts) * teacher.spec().vocab * static_cast<int64_t>(sizeof(float));
  if (bytes <= kMostKept) {
    TRY(std::byte * memory, backend.allocate(Purpose::workspace, bytes));
    judge->kept_ = reinterpret_cast<float*>(memory);
  }
  return judge;
}

Result<void> Judge::keep(const PassProgress& progress) {
  TextPass pass(*executor_, texts_);
  float* place = kept_;
  int64_t tokens = 0;
  while (!pass.done()) {
    const Tensor logits = pass.step();
    for (int64_t r = 0; r < static_cast<int64_t>(pass.rows().size()); ++r, place += logits.cols)
      std::memcpy(place, logits.row(r), static_cast<size_t>(logits.cols) * sizeof(float));
    tokens += static_cast<int64_t>(pass.rows().size());
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  filled_ = true;
  return {};
}

Result<Comparison> Judge::judge(const Model& student, Backend& backend, const PassProgress& progress, size_t texts) {
  if (student.spec().vocab != executor_->vocab()) {
    return error(Code::invalid, "vocabularies of {} and {} tokens cannot be compared; the models must share one",
                 executor_->vocab(), student.spec().vocab);
  }
  if (kept_ != nullptr && !filled_) TRY_VOID(keep(progress));
  TRY(auto executor, Executor::create(student, backend, options_));
  const bool all = texts == 0 || texts >= texts_.size();
  const auto chosen = all ? texts_ : texts_.first(texts);
  const auto vocab = static_cast<size_t>(executor->vocab());
  TextPass pass(*executor, chosen), teacher(*executor_, chosen);
  Comparison result;
  std::vector<RowResult> rows;
  int64_t done = 0;
  // Where the teacher's rows are kept they lie in the order of a pass over all texts, of which these are the first; a
  // pass over fewer has the same order until its last texts, so the teacher runs again then.
  const bool kept = kept_ != nullptr && all;
  while (!pass.done()) {
    const Tensor mine = kept ? Tensor{} : teacher.step();
    const Tensor logits = pass.step();
    rows.assign(pass.rows().size(), {});
    team_.each(static_cast<int64_t>(rows.size()), [&](int64_t r, int) {
      const TextPass::Row& row = pass.rows()[static_cast<size_t>(r)];
      const ScoredText& text = chosen[row.text];
      if (row.position + 1 < text.first) return;
      const float* base = kept ? kept_ + static_cast<size_t>(done + r) * vocab : mine.row(r);
      rows[static_cast<size_t>(r)] =
          compare_row(base, logits.row(r), vocab, text.tokens[static_cast<size_t>(row.position) + 1]);
    });
    for (size_t r = 0; r < rows.size(); ++r) {
      const TextPass::Row& row = pass.rows()[r];
      if (row.position + 1 < chosen[row.text].first) continue;
      TRY_VOID(add(rows[r], result));
    }
    done += static_cast<int64_t>(rows.size());
    if (progress && !progress(done)) return error(Code::cancelled, "stopped after {} tokens", done);
  }
  std::sort(result.kl.begin(), result.kl.end());
  return result;
}

}  // namespace millrace
