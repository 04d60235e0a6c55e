#include "eval/overlap.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "eval/words.h"

namespace millrace {
namespace {

using Counts = std::unordered_map<std::string, int64_t>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }

// Signs that always stand alone.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Where `first` and then `second` hold of neighbours, both are written by `write` and left behind.
template <class First, class Second, class Write>
std::string rewrite_pairs(const std::string& text, First first, Second second, Write write) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && first(text[i]) && second(text[i + 1])) {
      write(out, text[i], text[i + 1]);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string joined_words(const std::vector<std::string>& words, size_t first, size_t count) {
  std::string out;
  for (size_t i = first; i < first + count; ++i) out += (i > first ? " " : "") + words[i];
  return out;
}

Counts word_grams(const std::vector<std::string>& words, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= words.size(); ++i) ++counts[joined_words(words, i, n)];
  return counts;
}

template <class Map>
int64_t matching(const Map& a, const Map& b) {
  int64_t sum = 0;
  for (const auto& [gram, count] : a) {
    if (const auto other = b.find(gram); other != b.end()) sum += std::min(count, other->second);
  }
  return sum;
}

template <class Map>
int64_t size_of(const Map& counts) {
  int64_t sum = 0;
  for (const auto& [gram, count] : counts) sum += count;
  return sum;
}

}  // namespace

std::string tokenize_13a(std::string_view line) {
  std::string text(line);
  text = replaced(std::move(text), "<skipped>", "");
  text = replaced(std::move(text), "-\n", "");
  text = replaced(std::move(text), "\n", " ");
  if (text.find('&') != std::string::npos) {
    text = replaced(std::move(text), "&quot;", "\"");
    text = replaced(std::move(text), "&amp;", "&");
    text = replaced(std::move(text), "&lt;", "<");
    text = replaced(std::move(text), "&gt;", ">");
  }
  std::string apart = " ";
  for (char c : text + " ") {
    if (stands_alone(c)) {
      apart += ' ', apart += c, apart += ' ';
    } else {
      apart += c;
    }
  }
  auto no_digit = [](char c) { return !is_digit(c); };
  auto spread = [](std::string& out, char a, char b) { out += a, out += ' ', out += b, out += ' '; };
  apart = rewrite_pairs(apart, no_digit, is_point, spread);
  apart = rewrite_pairs(apart, is_point, no_digit,
                        [](std::string& out, char a, char b) { out += ' ', out += a, out += ' ', out += b; });
  apart = rewrite_pairs(
      apart, is_digit, [](char c) { return c == '-'; }, spread);
  const std::vector<std::string> words = split_words(apart);
  return joined_words(words, 0, words.size());
}

BleuStatistics& BleuStatistics::operator+=(const BleuStatistics& other) {
  length += other.length;
  reference_length += other.reference_length;
  for (size_t n = 0; n < kBleuOrder; ++n) correct[n] += other.correct[n], total[n] += other.total[n];
  return *this;
}

BleuStatistics BleuStatistics::times(int64_t count) const {
  BleuStatistics product = *this;
  product.length *= count, product.reference_length *= count;
  for (size_t n = 0; n < kBleuOrder; ++n) product.correct[n] *= count, product.total[n] *= count;
  return product;
}

BleuStatistics bleu_statistics(std::string_view hypothesis, std::span<const std::string> references) {
  const auto words = split_words(tokenize_13a(without_trailing_space(hypothesis)));
  BleuStatistics statistics = {.length = static_cast<int64_t>(words.size())};
  std::array<Counts, kBleuOrder> seen;  // the most any reference has of each
  int64_t nearest = -1;
  for (const std::string& reference : references) {
    const auto other = split_words(tokenize_13a(without_trailing_space(reference)));
    const auto length = static_cast<int64_t>(other.size());
    const int64_t off = std::abs(statistics.length - length), best = std::abs(statistics.length - nearest);
    if (nearest < 0 || off < best || (off == best && length < nearest)) nearest = length;
    for (size_t n = 0; n < kBleuOrder; ++n) {
      for (const auto& [gram, count] : word_grams(other, n + 1)) seen[n][gram] = std::max(seen[n][gram], count);
    }
  }
  statistics.reference_length = std::max<int64_t>(0, nearest);
  for (size_t n = 0; n < kBleuOrder; ++n) {
    const Counts grams = word_grams(words, n + 1);
    statistics.total[n] = size_of(grams);
    statistics.correct[n] = matching(grams, seen[n]);
  }
  return statistics;
}

BleuScore bleu_score(const BleuStatistics& s, bool effective_order) {
  BleuScore result;
  if (s.length < s.reference_length) {
    result.brevity =
        s.length > 0 ? std::exp(1 - static_cast<double>(s.reference_length) / static_cast<double>(s.length)) : 0;
  }
  if (std::all_of(s.correct.begin(), s.correct.end(), [](int64_t count) { return count == 0; })) return result;
  double smoothing = 1, logs = 0;
  size_t order = kBleuOrder;
  for (size_t n = 0; n < kBleuOrder && s.total[n] > 0; ++n) {
    if (effective_order) order = n + 1;
    const double total = static_cast<double>(s.total[n]);
    if (s.correct[n] == 0) smoothing *= 2;
    result.precisions[n] =
        s.correct[n] == 0 ? 100 / (smoothing * total) : 100 * static_cast<double>(s.correct[n]) / total;
  }
  for (size_t n = 0; n < order; ++n) {
    if (result.precisions[n] <= 0) return result;  // an order without any n-gram
    logs += std::log(result.precisions[n]);
  }
  result.score = result.brevity * std::exp(logs / static_cast<double>(order));
  return result;
}

namespace {

using CharCounts = std::unordered_map<std::u32string, int64_t>;

struct ChrfGrams {
  std::vector<CharCounts> characters;
  std::vector<Counts> words;
};

// A sign at the end, or else at the start, is a word of its own.
std::vector<std::string> chrf_words(std::string_view text) {
  constexpr std::string_view kSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  std::vector<std::string> words;
  for (std::string& word : split_words(text)) {
    const bool single = code_points(word).size() == 1;
    if (!single && kSigns.find(word.back()) != std::string_view::npos) {
      words.push_back(word.substr(0, word.size() - 1));
      words.push_back(word.substr(word.size() - 1));
    } else if (!single && kSigns.find(word.front()) != std::string_view::npos) {
      words.push_back(word.substr(0, 1));
      words.push_back(word.substr(1));
    } else {
      words.push_back(std::move(word));
    }
  }
  return words;
}

ChrfGrams chrf_grams(std::string_view text, const ChrfOptions& options) {
  std::u32string characters;
  for (char32_t point : code_points(text)) {
    if (!is_space(point)) characters += point;
  }
  ChrfGrams grams;
  for (size_t n = 1; n <= static_cast<size_t>(options.order); ++n) {
    CharCounts& counts = grams.characters.emplace_back();
    for (size_t i = 0; i + n <= characters.size(); ++i) ++counts[characters.substr(i, n)];
  }
  if (options.word_order == 0) return grams;
  const auto words = chrf_words(text);
  for (size_t n = 1; n <= static_cast<size_t>(options.word_order); ++n) grams.words.push_back(word_grams(words, n));
  return grams;
}

}  // namespace

ChrfStatistics chrf_statistics(std::string_view hypothesis, std::span<const std::string> references,
                               const ChrfOptions& options) {
  const ChrfGrams mine = chrf_grams(hypothesis, options);
  ChrfStatistics best;
  double best_score = -1;
  for (const std::string& reference : references) {
    const ChrfGrams other = chrf_grams(reference, options);
    ChrfStatistics statistics;
    auto add = [&](const auto& a, const auto& b) {
      statistics.push_back({b.empty() ? 0 : size_of(a), size_of(b), matching(a, b)});
    };
    for (size_t n = 0; n < mine.characters.size(); ++n) add(mine.characters[n], other.characters[n]);
    for (size_t n = 0; n < mine.words.size(); ++n) add(mine.words[n], other.words[n]);
    const double score = chrf_score(statistics, options);
    if (score > best_score) best_score = score, best = std::move(statistics);
  }
  return best;
}

double chrf_score(const ChrfStatistics& statistics, const ChrfOptions& options) {
  double precision = 0, recall = 0, orders = 0;
  for (const auto& [mine, other, same] : statistics) {
    if (mine == 0 || other == 0) continue;
    precision += static_cast<double>(same) / static_cast<double>(mine);
    recall += static_cast<double>(same) / static_cast<double>(other);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders, recall /= orders;
  const double factor = options.beta * options.beta;
  return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

}  // namespace millrace
