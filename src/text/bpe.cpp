#include "text/bpe.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace millrace {
namespace {

std::array<Token, 256> find_fallback(const Vocabulary& named) {
  std::array<Token, 256> tokens{};
  for (unsigned byte = 0; byte < 256; ++byte) tokens[byte] = named.find(fmt::format("<0x{:02X}>", byte));
  return tokens;
}

// Long pieces are rare; give back what they took.
constexpr size_t kTrimAfter = 1 << 16;

}  // namespace

CharTokens::CharTokens(const Vocabulary& vocabulary) : tokens_(0x10000, kNoToken) {
  for (Token id = 0; id < vocabulary.size(); ++id) {
    std::string_view text = vocabulary.text(id);
    size_t bytes = 0;
    if (text.empty() || text.size() > 3 || text.size() != char_bytes(text[0])) continue;
    const uint32_t code = code_at(text.data(), &bytes);
    if (vocabulary.find(text) == id) tokens_[code] = id;
  }
}

Token CharTokens::find(std::string_view text, const Vocabulary& vocabulary) const {
  if (text.size() > 3) return vocabulary.find(text);
  size_t bytes = 0;
  return tokens_[code_at(text.data(), &bytes)];
}

void PairTable::reserve(size_t pairs) {
  while (entries_.size() * 2 < pairs * 3) {
    if (count_ == 0) {
      entries_.resize(entries_.size() * 2);
      mask_ = entries_.size() - 1;
    } else {
      grow();
    }
  }
}

void PairTable::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  mask_ = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.left == kNoToken) continue;
    size_t at = slot(entry.left, entry.right);
    while (entries_[at].left != kNoToken) at = (at + 1) & mask_;
    entries_[at] = entry;
  }
}

void PairTable::add(Token left, Token right, Merge merge, bool replace) {
  if (count_ * 3 >= entries_.size() * 2) grow();
  size_t at = slot(left, right);
  while (entries_[at].left != kNoToken && (entries_[at].left != left || entries_[at].right != right))
    at = (at + 1) & mask_;
  if (entries_[at].left != kNoToken) {
    if (replace) entries_[at].merge = merge;
    return;
  }
  entries_[at] = {left, right, merge};
  ++count_;
}

std::vector<PairTable::Entry> PairTable::in_order() const {
  std::vector<Entry> all;
  all.reserve(count_);
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(all),
               [](const Entry& entry) { return entry.left != kNoToken; });
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.merge.rank < b.merge.rank; });
  return all;
}

Result<std::unique_ptr<Bpe>> Bpe::build(std::shared_ptr<const Vocabulary> vocabulary,
                                        std::shared_ptr<const Vocabulary> named, PairTable pairs, uint32_t ranks,
                                        BpeOptions options) {
  auto bpe = std::unique_ptr<Bpe>(new Bpe());
  bpe->vocabulary_ = std::move(vocabulary);
  bpe->named_ = std::move(named);
  bpe->pairs_ = std::move(pairs);
  bpe->ranks_ = ranks;
  bpe->options_ = std::move(options);
  bpe->marked_ = !bpe->options_.prefix.empty() || !bpe->options_.suffix.empty();
  bpe->byte_tokens_.fill(kNoToken);
  for (unsigned byte = 0; byte < 256 && bpe->options_.byte_level; ++byte) {
    const char text = static_cast<char>(byte);
    bpe->byte_tokens_[byte] = bpe->vocabulary_->find({&text, 1});
  }
  if (!bpe->options_.byte_level) bpe->char_tokens_ = CharTokens(*bpe->vocabulary_);
  bpe->all_bytes_ = bpe->options_.byte_level && !bpe->marked_ &&
                    std::count(bpe->byte_tokens_.begin(), bpe->byte_tokens_.end(), kNoToken) == 0;
  bpe->fallback_ = find_fallback(*bpe->named_);
  return bpe;
}

bool Bpe::add_fallback(std::string_view symbol, uint32_t at, MergeSpace& space) const {
  if (!options_.byte_fallback) return false;
  // At byte level the symbol is the character that stands for the byte.
  std::string characters = options_.byte_level ? to_byte_level(symbol) : std::string(symbol);
  for (char byte : characters) {
    if (fallback_[static_cast<unsigned char>(byte)] == kNoToken) return false;
  }
  for (char byte : characters) space.add(fallback_[static_cast<unsigned char>(byte)], at);
  return true;
}

void Bpe::add_symbols(std::string_view piece, MergeSpace& space) const {
  if (all_bytes_) {
    space.symbols.resize(piece.size());
    for (size_t at = 0; at < piece.size(); ++at) {
      space.symbols[at].token = byte_tokens_[static_cast<unsigned char>(piece[at])];
      space.symbols[at].begin = static_cast<uint32_t>(at);
    }
    return;
  }
  bool pending = false;  // an unknown token that may still grow
  uint32_t pending_at = 0;
  std::string marked;
  for (size_t at = 0, bytes = 0; at < piece.size(); at += bytes) {
    bytes = options_.byte_level ? 1 : char_bytes(piece[at]);
    std::string_view symbol = piece.substr(at, bytes);
    Token token;
    if (marked_) {
      marked.assign(at > 0 ? options_.prefix : std::string()).append(symbol);
      if (at + bytes == piece.size()) marked += options_.suffix;
      symbol = marked;
      token = vocabulary_->find(symbol);
    } else {
      token = options_.byte_level ? byte_tokens_[static_cast<unsigned char>(piece[at])]
                                  : char_tokens_.find(symbol, *vocabulary_);
    }
    const auto place = static_cast<uint32_t>(at);
    if (token != kNoToken) {
      if (pending) space.add(options_.unknown, pending_at);
      pending = false;
      space.add(token, place);
    } else if (!add_fallback(symbol, place, space) && options_.unknown != kNoToken) {
      if (pending && options_.fuse_unknown) continue;
      if (pending) space.add(options_.unknown, pending_at);
      pending = true;
      pending_at = place;
    }
  }
  if (pending) space.add(options_.unknown, pending_at);
}

void Bpe::encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const {
  if (options_.ignore_merges || (options_.newlines_whole && piece.find_first_not_of('\n') == piece.npos)) {
    if (Token token = vocabulary_->find(piece); token != kNoToken) {
      out.push_back(token);
      return;
    }
  }
  space.clear();
  space.end = static_cast<uint32_t>(piece.size());
  add_symbols(piece, space);
  merge(space, ranks_,
        [this](const Symbol& left, const Symbol& right) { return pairs_.find(left.token, right.token); });
  for (const MergeSymbol& symbol : space.symbols) out.push_back(symbol.token);
  if (piece.size() > kTrimAfter) space.trim();
}

Result<std::unique_ptr<ScoreBpe>> ScoreBpe::build(std::shared_ptr<const Vocabulary> vocabulary,
                                                  const std::vector<float>& scores, Token unknown) {
  auto bpe = std::unique_ptr<ScoreBpe>(new ScoreBpe());
  std::vector<float> order(scores);
  for (float score : order) {
    if (score != score) return error(Code::corrupt, "a token's score is not a number");
  }
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  bpe->ranks_.reserve(scores.size());
  for (float score : scores) {
    bpe->ranks_.push_back(
        static_cast<uint32_t>(std::lower_bound(order.begin(), order.end(), score, std::greater<>()) - order.begin()));
  }
  bpe->rank_count_ = static_cast<uint32_t>(order.size());
  bpe->fallback_ = find_fallback(*vocabulary);
  bpe->char_tokens_ = CharTokens(*vocabulary);
  bpe->vocabulary_ = std::move(vocabulary);
  bpe->unknown_ = unknown;
  return bpe;
}

void ScoreBpe::encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const {
  space.clear();
  space.end = static_cast<uint32_t>(piece.size());
  for (size_t at = 0, bytes = 0; at < piece.size(); at += bytes) {
    bytes = char_bytes(piece[at]);
    space.add(char_tokens_.find(piece.substr(at, bytes), *vocabulary_), static_cast<uint32_t>(at));
  }
  merge(space, rank_count_, [&](const Symbol& left, const Symbol& right) {
    const size_t size = right.end - left.begin;
    if (size > vocabulary_->longest()) return Merge{};
    Token token = vocabulary_->find(piece.substr(left.begin, size));
    if (token == kNoToken) return Merge{};
    return Merge{ranks_[static_cast<size_t>(token)], token};
  });
  for (size_t i = 0; i < space.symbols.size(); ++i) {
    const MergeSymbol& symbol = space.symbols[i];
    if (symbol.token != kNoToken) {
      out.push_back(symbol.token);
      continue;
    }
    const size_t end = i + 1 < space.symbols.size() ? space.symbols[i + 1].begin : piece.size();
    for (size_t at = symbol.begin; at < end; ++at) {
      Token token = fallback_[static_cast<unsigned char>(piece[at])];
      if (token == kNoToken) token = vocabulary_->find(piece.substr(at, 1));
      if (token == kNoToken) token = unknown_;
      if (token != kNoToken) out.push_back(token);
    }
  }
  if (piece.size() > kTrimAfter) space.trim();
}

WordCutter::WordCutter(const Vocabulary& vocabulary, std::string mark) {
  constexpr size_t kMostJoined = 16;
  if (vocabulary.find(mark) == kNoToken) return;
  joined_.push_back(mark);
  for (Token id = 0; id < vocabulary.size(); ++id) {
    std::string_view text = vocabulary.text(id);
    for (size_t at = text.find(mark, 1); at != text.npos; at = text.find(mark, at + 1)) {
      size_t start = at - 1;
      while (start > 0 && !is_char_start(text[start])) --start;
      std::string before(text.substr(start, at - start));
      if (std::find(joined_.begin(), joined_.end(), before) == joined_.end()) joined_.push_back(before);
      if (joined_.size() > kMostJoined) return;  // marks stand anywhere in tokens: no use
    }
  }
  mark_ = std::move(mark);
}

bool WordCutter::cuts_after(std::string_view before) const {
  return std::none_of(joined_.begin(), joined_.end(), [&](const std::string& text) {
    return before.size() >= text.size() && before.substr(before.size() - text.size()) == text;
  });
}

}  // namespace millrace
