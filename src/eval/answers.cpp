// ROUGE, F1 and exact match.
#include <algorithm>
#include <unordered_map>

#include "eval/overlap.h"
#include "eval/words.h"

namespace millrace {
namespace {

using Counts = std::unordered_map<std::string, int64_t>;

Overlap overlap(double same, double mine, double other) {
  if (mine <= 0 || other <= 0) return {};
  const double precision = same / mine, recall = same / other;
  return {precision, recall, precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0};
}

Counts grams(const std::vector<std::string>& words, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    std::string gram;
    for (size_t j = i; j < i + n; ++j) gram += words[j] + ' ';
    ++counts[gram];
  }
  return counts;
}

Overlap gram_overlap(const std::vector<std::string>& mine, const std::vector<std::string>& other, size_t n) {
  const Counts a = grams(mine, n), b = grams(other, n);
  double same = 0;
  for (const auto& [gram, count] : a) {
    if (const auto found = b.find(gram); found != b.end()) same += static_cast<double>(std::min(count, found->second));
  }
  auto size = [&](const auto& words) { return static_cast<double>(words.size() >= n ? words.size() - n + 1 : 0); };
  return overlap(same, size(mine), size(other));
}

// Lengths of the longest common subsequence of all beginnings.
std::vector<std::vector<int32_t>> common_table(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::vector<int32_t>> table(a.size() + 1, std::vector<int32_t>(b.size() + 1, 0));
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table;
}

int64_t common_length(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<int64_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    int64_t corner = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t above = row[j];
      row[j] = word == b[j - 1] ? corner + 1 : std::max(above, row[j - 1]);
      corner = above;
    }
  }
  return row.back();
}

// Marks the words of `reference` that are in one longest common subsequence with `sentence`.
void mark_common(const std::vector<std::string>& reference, const std::vector<std::string>& sentence,
                 std::vector<bool>& marked) {
  const auto table = common_table(reference, sentence);
  for (size_t i = reference.size(), j = sentence.size(); i > 0 && j > 0;) {
    if (reference[i - 1] == sentence[j - 1]) {
      marked[i - 1] = true;
      --i, --j;
    } else if (table[i][j - 1] > table[i - 1][j]) {
      --j;
    } else {
      --i;
    }
  }
}

std::vector<std::vector<std::string>> sentences(std::string_view text) {
  std::vector<std::vector<std::string>> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) all.push_back(rouge_words(text.substr(at, end - at)));
    at = end + 1;
  }
  return all;
}

// Every sentence of the reference against all of the text together; no word counts twice.
Overlap summary_overlap(std::string_view hypothesis, std::string_view reference) {
  const auto mine = sentences(hypothesis), other = sentences(reference);
  Counts mine_left, other_left;
  double mine_words = 0, other_words = 0, hits = 0;
  for (const auto& sentence : mine) {
    mine_words += static_cast<double>(sentence.size());
    for (const std::string& word : sentence) ++mine_left[word];
  }
  for (const auto& sentence : other) {
    other_words += static_cast<double>(sentence.size());
    for (const std::string& word : sentence) ++other_left[word];
  }
  for (const auto& sentence : other) {
    std::vector<bool> marked(sentence.size(), false);
    for (const auto& candidate : mine) mark_common(sentence, candidate, marked);
    for (size_t i = 0; i < sentence.size(); ++i) {
      if (!marked[i] || mine_left[sentence[i]] <= 0 || other_left[sentence[i]] <= 0) continue;
      ++hits, --mine_left[sentence[i]], --other_left[sentence[i]];
    }
  }
  return overlap(hits, mine_words, other_words);
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : lower_case(text) + " ") {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

Rouge rouge(std::string_view hypothesis, std::string_view reference) {
  const auto mine = rouge_words(hypothesis), other = rouge_words(reference);
  return {.one = gram_overlap(mine, other, 1),
          .two = gram_overlap(mine, other, 2),
          .longest = overlap(static_cast<double>(common_length(mine, other)), static_cast<double>(mine.size()),
                             static_cast<double>(other.size())),
          .summary = summary_overlap(hypothesis, reference)};
}

Rouge best_rouge(std::string_view hypothesis, std::span<const std::string> references) {
  Rouge best;
  auto take = [](const Overlap& other, Overlap& kept) {
    if (other.f > kept.f) kept = other;
  };
  for (const std::string& reference : references) {
    const Rouge one = rouge(hypothesis, reference);
    take(one.one, best.one);
    take(one.two, best.two);
    take(one.longest, best.longest);
    take(one.summary, best.summary);
  }
  return best;
}

std::string normal_answer(std::string_view text) {
  constexpr std::string_view kSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  std::string plain;
  for (char c : lower_case(text)) {
    if (kSigns.find(c) == std::string_view::npos) plain += c;
  }
  std::string out;
  for (const std::string& word : split_words(plain)) {
    if (word == "a" || word == "an" || word == "the") continue;
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

double answer_f1(std::string_view hypothesis, std::span<const std::string> references) {
  const auto mine = split_words(normal_answer(hypothesis));
  double best = 0;
  for (const std::string& reference : references) {
    const auto other = split_words(normal_answer(reference));
    // Without any word on one side, only silence on both agrees.
    const double f = mine.empty() || other.empty() ? static_cast<double>(mine.empty() && other.empty())
                                                   : gram_overlap(mine, other, 1).f;
    best = std::max(best, f);
  }
  return best;
}

bool answer_matches(std::string_view hypothesis, std::span<const std::string> references) {
  const std::string mine = normal_answer(hypothesis);
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& r) { return normal_answer(r) == mine; });
}

}  // namespace millrace
