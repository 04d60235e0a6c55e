#include "text/word_piece.h"

#include "text/unicode.h"

namespace millrace {

void WordPiece::encode(std::string_view piece, MergeSpace&, std::vector<Token>& out) const {
  const size_t before = out.size();
  size_t characters = 0;
  for (const char byte : piece) characters += is_char_start(byte);
  bool whole = characters <= most_;
  for (size_t at = 0; whole && at < piece.size();) {
    const Trie& trie = at == 0 ? starts_ : inside_;
    Token best = kNoToken;
    size_t end = at;
    uint32_t node = Trie::kRoot;
    for (size_t i = at; i < piece.size(); ++i) {
      node = trie.child(node, piece[i]);
      if (node == Trie::kNone) break;
      if (trie.token(node) != kNoToken) best = trie.token(node), end = i + 1;
    }
    whole = best != kNoToken;
    if (whole) out.push_back(best);
    at = end;
  }
  if (whole) return;
  out.resize(before);
  if (unknown_ != kNoToken) out.push_back(unknown_);
}

Result<Json> tokenizer_of_words(std::string_view vocab_txt, const Json& config) {
  JsonObject vocab;
  int64_t id = 0;
  for (size_t at = 0; at < vocab_txt.size(); ++id) {
    const size_t end = std::min(vocab_txt.find('\n', at), vocab_txt.size());
    std::string_view line = vocab_txt.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (id >= kMostTokens) return error(Code::invalid, "a vocab.txt of more than {} lines", kMostTokens);
    if (!is_valid_utf8(line)) return error(Code::invalid, "line {} of vocab.txt is not UTF-8", id + 1);
    vocab[line] = id;
    at = end + 1;
  }
  TRY(const bool lower, get_bool(config, "do_lower_case", true));
  TRY(const bool chinese, get_bool(config, "tokenize_chinese_chars", true));
  TRY(const bool accents, get_bool(config, "strip_accents", lower));
  JsonArray added;
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const Json* found = find(vocab, name);
    if (found == nullptr) return error(Code::invalid, "vocab.txt has no {}, so it is not BERT's", name);
    added.push_back(JsonObject{{"content", name}, {"id", *found}, {"special", true}, {"normalized", false}});
  }
  return Json(
      JsonObject{{"added_tokens", std::move(added)},
                 {"normalizer", JsonObject{{"type", "BertNormalizer"},
                                           {"lowercase", lower},
                                           {"strip_accents", accents},
                                           {"handle_chinese_chars", chinese}}},
                 {"pre_tokenizer", JsonObject{{"type", "BertPreTokenizer"}}},
                 {"post_processor",
                  JsonObject{{"type", "BertProcessing"}, {"cls", JsonArray{"[CLS]"}}, {"sep", JsonArray{"[SEP]"}}}},
                 {"decoder", JsonObject{{"type", "WordPiece"}}},
                 {"model", JsonObject{{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", std::move(vocab)}}}});
}

}  // namespace millrace
