#include "text/spm_unigram.h"

#include <algorithm>
#include <limits>

#include "text/unicode.h"
#include "text/unigram.h"

namespace millrace {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";

class SpmUnigram : public PieceModel {
 public:
  SpmUnigram(std::unique_ptr<Unigram> unigram, Trie own, SpmUnigramOptions options)
      : unigram_(std::move(unigram)), own_(std::move(own)), options_(std::move(options)) {}

  void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const override {
    std::string text = normalized(piece);
    if (!text.empty()) unigram_->encode(text, space, out);
  }

 private:
  std::string normalized(std::string_view piece) const {
    std::string out;
    out.reserve(piece.size() + piece.size() / 4 + 3);
    bool begun = false, inside = false;  // inside a word
    for (size_t at = 0; at < piece.size();) {
      size_t covered = 0;
      std::string_view part = replaced(piece.substr(at), &covered);
      at += covered;
      for (char byte : part) {
        if (byte == ' ') {
          inside = false;
          if (!options_.merge_spaces) out += kMark;
          continue;
        }
        if (!inside && ((options_.space_prefix && !begun) || options_.merge_spaces)) {
          out += kMark;
          begun = true;
        }
        inside = true;
        out.push_back(byte);
      }
    }
    return out;
  }

  // What the start of the text becomes and how much of it that is: user-defined tokens stay, rules replace.
  std::string_view replaced(std::string_view text, size_t* covered) const {
    size_t known = 0;
    uint32_t node = Trie::kRoot;
    while (known < text.size() && (node = own_.child(node, text[known])) != Trie::kNone) ++known;
    if (known > 0) return text.substr(0, *covered = known);
    std::string_view replacement = options_.charsmap.longest(text, covered);
    if (*covered > 0) return replacement;
    return text.substr(0, *covered = char_bytes(text[0]));
  }

  std::unique_ptr<Unigram> unigram_;
  Trie own_;  // user-defined tokens
  SpmUnigramOptions options_;
};

}  // namespace

Result<std::unique_ptr<PieceModel>> build_spm_unigram(std::shared_ptr<const Vocabulary> vocabulary,
                                                      const std::vector<float>& scores,
                                                      const std::vector<GgufTokenType>& types,
                                                      SpmUnigramOptions options) {
  std::vector<double> values(scores.begin(), scores.end());
  std::vector<bool> usable(types.size());
  float lowest = std::numeric_limits<float>::max();
  Trie own;
  for (size_t i = 0; i < types.size(); ++i) {
    const GgufTokenType type = types[i];
    usable[i] = type == GgufTokenType::normal || type == GgufTokenType::user_defined || type == GgufTokenType::unused;
    if (type == GgufTokenType::normal) lowest = std::min(lowest, scores[i]);
    if (type == GgufTokenType::user_defined) {
      values[i] = 0;
      own.add(vocabulary->text(static_cast<Token>(i)), static_cast<Token>(i));
    }
  }
  constexpr float kUnknownPenalty = 10;
  UnigramOptions inner;
  inner.unknown = options.unknown;
  TRY(auto unigram,
      Unigram::build(std::move(vocabulary), std::move(values), usable, double{lowest - kUnknownPenalty}, inner));
  return std::unique_ptr<PieceModel>(new SpmUnigram(std::move(unigram), std::move(own), std::move(options)));
}

}  // namespace millrace
