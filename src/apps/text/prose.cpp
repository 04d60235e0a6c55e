#include "apps/text/prose.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace millrace::apps {
namespace {

// About as many different words as a long book has.
constexpr size_t kMostWords = 20000;

// The tokens that are a space and a word of small letters, in the order of their ids: vocabularies that were learned by
// merging list words by frequency.
std::vector<std::string> known_words(const Tokenizer& tokenizer) {
  std::vector<std::string> words;
  for (Token id = 0; id < tokenizer.size(); ++id) {
    std::string text = tokenizer.token_bytes(id);
    bool word = text.size() > 1 && text[0] == ' ';
    word = word && std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (word) words.push_back(text.substr(1));
    if (words.size() == kMostWords) break;
  }
  if (words.empty()) words = {"a", "text", "of", "a", "few", "words"};
  return words;
}

}  // namespace

std::string generated_prose(const Tokenizer& tokenizer, size_t bytes) {
  const std::vector<std::string> words = known_words(tokenizer);
  // Zipf's law, by inverting its continuous form: the word of rank r comes with a probability of about 1 / r.
  auto pick = [&](uint32_t index, uint32_t draw) -> const std::string& {
    double at = uniform({.seed = 1, .position = index, .draw = draw});
    double rank = std::pow(static_cast<double>(words.size() + 1), at) - 1;
    return words[std::min(static_cast<size_t>(rank), words.size() - 1)];
  };
  std::string text;
  uint32_t in_sentence = 0, sentence = 8;
  for (uint32_t index = 0; text.size() < bytes; ++index) {
    auto random = philox({7, 7}, {index, 0, 0, 0});
    std::string word = pick(index, 0);
    if (random[1] % 40 == 0) word += pick(index, 1);
    if (in_sentence == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    if (random[1] % 64 == 1) word = std::to_string(random[2] % 2000);
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
