// Metrics of overlap between a text and what it should have been: BLEU and chrF as sacreBLEU defines them (13a
// tokenisation, exponential smoothing, mixed case; character n-grams up to 6, beta 2), ROUGE as Google's rouge-score
// does (lower-cased words of letters and digits, no stemming), F1 and exact match as SQuAD does. Scores of BLEU and
// chrF are percent, of the others shares. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

std::string tokenize_13a(std::string_view line);  // words and punctuation, one space between

inline constexpr size_t kBleuOrder = 4;
struct BleuStatistics {
  int64_t length = 0, reference_length = 0;  // in words; of several references the one nearest in length
  std::array<int64_t, kBleuOrder> correct{}, total{};

  BleuStatistics& operator+=(const BleuStatistics& other);
  BleuStatistics times(int64_t count) const;
};
BleuStatistics bleu_statistics(std::string_view hypothesis, std::span<const std::string> references);

struct BleuScore {
  double score = 0, brevity = 1;
  std::array<double, kBleuOrder> precisions{};  // percent
};
// Effective order, for single sentences: orders the hypothesis is too short for are left out.
BleuScore bleu_score(const BleuStatistics& statistics, bool effective_order = false);

struct ChrfOptions {
  int order = 6, word_order = 0;  // word_order 2: chrF++
  double beta = 2;
};
// Hypothesis, reference and matching n-grams of each order; of several references the best.
using ChrfStatistics = std::vector<std::array<int64_t, 3>>;
ChrfStatistics chrf_statistics(std::string_view hypothesis, std::span<const std::string> references,
                               const ChrfOptions& options = {});
double chrf_score(const ChrfStatistics& statistics, const ChrfOptions& options = {});

struct Overlap {
  double precision = 0, recall = 0, f = 0;
};
struct Rouge {
  Overlap one, two, longest, summary;  // ROUGE-1, -2, -L, -Lsum (sentences are lines)
};
std::vector<std::string> rouge_words(std::string_view text);
Rouge rouge(std::string_view hypothesis, std::string_view reference);
Rouge best_rouge(std::string_view hypothesis, std::span<const std::string> references);  // per kind, by F

// Lower case, without punctuation and a, an, the.
std::string normal_answer(std::string_view text);
double answer_f1(std::string_view hypothesis, std::span<const std::string> references);     // best of them
bool answer_matches(std::string_view hypothesis, std::span<const std::string> references);  // any of them

}  // namespace millrace
