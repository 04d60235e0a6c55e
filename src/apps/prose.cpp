#include "apps/prose.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace millrace::apps {
namespace {

// The most frequent words of English, most frequent first.
constexpr std::string_view kCommon[] = {
    "the",    "of",    "and",     "to",    "a",      "in",      "that",  "is",    "was",   "he",      "for",     "it",
    "with",   "as",    "his",     "on",    "be",     "at",      "by",    "I",     "this",  "had",     "not",     "are",
    "but",    "from",  "or",      "have",  "an",     "they",    "which", "one",   "you",   "were",    "her",     "all",
    "she",    "there", "would",   "their", "we",     "him",     "been",  "has",   "when",  "who",     "will",    "more",
    "no",     "if",    "out",     "so",    "said",   "what",    "up",    "its",   "about", "into",    "than",    "them",
    "can",    "only",  "other",   "new",   "some",   "could",   "time",  "these", "two",   "may",     "then",    "do",
    "first",  "any",   "my",      "now",   "such",   "like",    "our",   "over",  "man",   "me",      "even",    "most",
    "made",   "after", "also",    "did",   "many",   "before",  "must",  "years", "back",  "through", "where",   "much",
    "your",   "way",   "well",    "down",  "should", "because", "each",  "just",  "those", "people",  "how",     "too",
    "little", "state", "good",    "very",  "make",   "world",   "still", "own",   "see",   "men",     "work",    "long",
    "get",    "here",  "between", "both",  "life",   "being",   "under", "never", "day",   "same",    "another", "know",
    "while",  "last",  "might",   "us",    "great",  "old",     "year",  "off",   "come",  "since",   "against", "go",
    "came",   "right", "used",    "take",  "three"};
constexpr std::string_view kOnsets[] = {"b", "c", "d", "f",  "g",  "h",  "l",  "m",  "n",  "p",  "r",  "s",
                                        "t", "v", "w", "st", "tr", "pr", "ch", "sh", "pl", "gr", "cl", "th"};
constexpr std::string_view kCores[] = {"a", "e", "i", "o", "u", "ea", "ou", "ai", "ee", "io"};
constexpr std::string_view kCodas[] = {"", "n", "r", "s", "t", "l", "m", "d", "nt", "st", "ck", "ng"};
constexpr std::string_view kEndings[] = {"",   "",     "",     "s",    "ed",   "ing", "er",
                                         "ly", "tion", "ment", "ness", "able", "al",  "ous"};
constexpr size_t kRare = 60000;

// Words by rank: the common ones, then made-up ones that grow longer as they grow rarer.
std::vector<std::string> vocabulary() {
  std::vector<std::string> words(std::begin(kCommon), std::end(kCommon));
  for (uint32_t index = 0; words.size() < kRare; ++index) {
    auto random = philox({0, 1}, {index, 0, 0, 0});
    auto more = philox({0, 2}, {index, 0, 0, 0});
    std::string word;
    size_t syllables = 1 + (index > 300 ? 1 : 0) + more[3] % 2;
    for (size_t i = 0; i < syllables; ++i) {
      word += kOnsets[(random[i] & 0xffff) % std::size(kOnsets)];
      word += kCores[(random[i] >> 16) % std::size(kCores)];
      word += kCodas[more[i % 3] % std::size(kCodas)];
    }
    word += kEndings[random[3] % std::size(kEndings)];
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

std::string generated_prose(size_t bytes) {
  const std::vector<std::string> words = vocabulary();
  std::string text;
  size_t in_sentence = 0, sentence = 8;
  for (uint32_t index = 0; text.size() < bytes; ++index) {
    // Zipf's law, by inverting its continuous form: rank r has probability about 1 / r.
    double rank = std::pow(static_cast<double>(words.size()), uniform({.seed = 1, .position = index})) - 1;
    auto random = philox({7, 7}, {index, 0, 0, 0});
    std::string word = words[std::min(static_cast<size_t>(rank), words.size() - 1)];
    if (in_sentence == 0) word[0] = static_cast<char>(word[0] >= 'a' && word[0] <= 'z' ? word[0] - 32 : word[0]);
    if (random[1] % 64 == 0) word = std::to_string(random[2] % 2000);
    text += word;
    if (++in_sentence == sentence) {
      text += random[0] % 12 == 0 ? ".\n\n" : (random[0] % 9 == 0 ? "? " : ". ");
      in_sentence = 0;
      sentence = 5 + random[3] % 18;
    } else {
      text += random[0] % 11 == 0 ? ", " : " ";
    }
  }
  text.resize(bytes);
  return text;
}

}  // namespace millrace::apps
