#include "eval/ranks_check.h"

#include <algorithm>

#include "cache/bulk_digest.h"
#include "cache/kv_cache.h"

namespace millrace {
namespace {

constexpr int32_t kCrowd = 3, kMostRows = 256;

// Sequences that go through an executor together.
class Sequences {
 public:
  Sequences(Executor& executor, std::vector<std::vector<Token>> texts)
      : executor_(executor), cache_(executor.layout(), executor.options().pages, 0), texts_(std::move(texts)) {
    for (size_t i = 0; i < texts_.size(); ++i) pages_.push_back(cache_.open(static_cast<int64_t>(i), {}));
    done_.resize(texts_.size(), 0);
  }

  // Each sequence as far as it goes, `step` tokens at a time; the first begins alone.
  void run(int32_t step, RanksWay& way) {
    for (bool first = true; more(); first = false) {
      std::vector<Chunk> chunks;
      for (size_t i = 0; i < (first ? 1 : texts_.size()); ++i) {
        const auto left = static_cast<int32_t>(texts_[i].size()) - done_[i];
        const int32_t count = std::min(left, step);
        if (count < 1) continue;
        CHECK(cache_.reserve(pages_[i], done_[i], done_[i] + count), "the executor has pages for all sequences");
        chunks.push_back(
            {.tokens = std::span(texts_[i]).subspan(static_cast<size_t>(done_[i]), static_cast<size_t>(count)),
             .begin = done_[i],
             .tables = pages_[i].tables,
             .wanted = count});
        done_[i] += count;
      }
      executor_.carry_out(cache_);
      const Tensor logits = executor_.run(chunks);
      for (int64_t r = 0; r < logits.rows; ++r) {
        const std::span<const float> row(logits.row(r), static_cast<size_t>(logits.cols));
        way.rows.push_back(bulk_digest(std::as_bytes(row)));
      }
    }
  }

 private:
  bool more() const {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (done_[i] < static_cast<int32_t>(texts_[i].size())) return true;
    }
    return false;
  }

  Executor& executor_;
  KvCache cache_;
  std::vector<std::vector<Token>> texts_;
  std::vector<SequencePages> pages_;
  std::vector<int32_t> done_;
};

}  // namespace

Result<std::vector<RanksWay>> run_ranks_ways(const Model& model, Backend& backend, std::span<const Token> tokens,
                                             const KvForm& kv) {
  ExecutorOptions options;
  options.context = static_cast<int32_t>(tokens.size());
  options.sequences = kCrowd;
  options.rows = options.wanted = std::min(kMostRows, options.context);
  options.kv = kv;
  options.sees_ahead = true;  // logits are compared, whatever they are good for
  TRY(auto executor, Executor::create(model, backend, options));
  const std::vector<Token> text(tokens.begin(), tokens.end());
  std::vector<Token> turned = text, begun = text;
  std::reverse(turned.begin(), turned.end());
  begun.resize((begun.size() + 1) / 2);
  std::vector<RanksWay> ways;
  auto run = [&](std::string name, std::vector<std::vector<Token>> texts, int32_t step) {
    Sequences sequences(*executor, std::move(texts));
    sequences.run(step, ways.emplace_back(RanksWay{std::move(name), {}}));
  };
  const int32_t rows = executor->options().rows, sequences = executor->options().sequences;
  run("whole", {text}, rows);
  run("by 7", {text}, std::min(7, rows));
  run("one by one", {text}, 1);
  if (sequences >= kCrowd && rows >= kCrowd) run("in a crowd", {text, turned, begun}, std::min(5, rows / kCrowd));
  return ways;
}

std::string first_difference(std::span<const RanksWay> expected, std::span<const RanksWay> found) {
  if (expected.size() != found.size()) return fmt::format("{} ways instead of {}", found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].rows.size() != found[i].rows.size())
      return fmt::format("{}: {} rows instead of {}", expected[i].name, found[i].rows.size(), expected[i].rows.size());
    for (size_t row = 0; row < expected[i].rows.size(); ++row) {
      if (expected[i].rows[row] != found[i].rows[row]) return fmt::format("{}: row {}", expected[i].name, row);
    }
  }
  return {};
}

}  // namespace millrace
