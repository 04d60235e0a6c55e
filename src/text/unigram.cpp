#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/unicode.h"

namespace millrace {

Trie::Trie() : tokens_(1, kNoToken), edges_(1024) {}

size_t Trie::slot(uint64_t key) const {
  uint64_t hash = key * 0x9E3779B97F4A7C15;
  size_t mask = edges_.size() - 1, at = (hash ^ hash >> 29) >> 20 & mask;
  while (edges_[at].key != key && edges_[at].key != UINT64_MAX) at = (at + 1) & mask;
  return at;
}

void Trie::grow() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.key != UINT64_MAX) edges_[slot(edge.key)] = edge;
  }
}

void Trie::add(std::string_view text, Token token) {
  uint32_t node = kRoot;
  for (char byte : text) {
    if (tokens_.size() * 2 >= edges_.size()) grow();
    Edge& edge = edges_[slot(uint64_t{node} << 8 | static_cast<unsigned char>(byte))];
    if (edge.key == UINT64_MAX) {
      edge = {uint64_t{node} << 8 | static_cast<unsigned char>(byte), static_cast<uint32_t>(tokens_.size())};
      tokens_.push_back(kNoToken);
    }
    node = edge.child;
  }
  tokens_[node] = token;
}

uint32_t Trie::child(uint32_t node, char byte) const {
  const Edge& edge = edges_[slot(uint64_t{node} << 8 | static_cast<unsigned char>(byte))];
  return edge.key == UINT64_MAX ? kNone : edge.child;
}

Result<std::unique_ptr<Unigram>> Unigram::build(std::shared_ptr<const Vocabulary> vocabulary,
                                                std::vector<double> scores, const std::vector<bool>& usable,
                                                double unknown_score, UnigramOptions options) {
  constexpr size_t kMostNodes = 1 << 26;
  auto model = std::unique_ptr<Unigram>(new Unigram());
  for (Token id = 0; id < vocabulary->size(); ++id) {
    const auto index = static_cast<size_t>(id);
    if (!vocabulary->has(id) || !usable[index]) continue;
    if (!std::isfinite(scores[index])) return error(Code::corrupt, "the score of token {} is not a number", id);
    // Of two tokens with one text the vocabulary knows which counts.
    if (vocabulary->find(vocabulary->text(id)) == id) model->trie_.add(vocabulary->text(id), id);
    if (model->trie_.nodes() > kMostNodes) return error(Code::invalid, "the vocabulary has too much text");
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    model->fallback_[byte] = vocabulary->find(fmt::format("<0x{:02X}>", byte));
  model->vocabulary_ = std::move(vocabulary);
  model->scores_ = std::move(scores);
  model->unknown_score_ = unknown_score;
  model->options_ = options;
  return model;
}

void Unigram::encode(std::string_view piece, MergeSpace&, std::vector<Token>& out) const {
  struct Node {
    double score = 0;
    uint32_t start = UINT32_MAX;  // of the last token on the best way here; UINT32_MAX: no way yet
    Token token = kNoToken;
  };
  std::vector<Node> best(piece.size() + 1);
  for (size_t start = 0; start < piece.size();) {
    const size_t character = char_bytes(piece[start]);
    bool whole_character = false;
    auto offer = [&](size_t end, double score, Token token) {
      Node& node = best[end];
      const double sum = score + best[start].score;
      if (node.start == UINT32_MAX || sum > node.score) node = {sum, static_cast<uint32_t>(start), token};
    };
    uint32_t node = Trie::kRoot;
    for (size_t at = start; at < piece.size(); ++at) {
      node = trie_.child(node, piece[at]);
      if (node == Trie::kNone) break;
      const Token token = trie_.token(node);
      if (token == kNoToken) continue;
      offer(at + 1, scores_[static_cast<size_t>(token)], token);
      whole_character |= at + 1 - start == character;
    }
    if (!whole_character) offer(start + character, unknown_score_, options_.unknown);
    start += character;
  }
  // Backwards from the end; neighbouring unknowns are one.
  std::vector<std::pair<uint32_t, Token>> way;  // where each token starts
  for (size_t end = piece.size(); end > 0; end = best[end].start) {
    const Node& node = best[end];
    const bool unknown = node.token == options_.unknown;
    if (unknown && !way.empty() && way.back().second == options_.unknown) {
      way.back().first = node.start;
    } else {
      way.emplace_back(node.start, node.token);
    }
  }
  for (size_t i = way.size(); i-- > 0;) {
    const size_t end = i > 0 ? way[i - 1].first : piece.size();
    emit(piece.substr(way[i].first, end - way[i].first), way[i].second, out);
  }
}

void Unigram::emit(std::string_view text, Token token, std::vector<Token>& out) const {
  if (token != options_.unknown) {
    out.push_back(token);
    return;
  }
  if (options_.byte_fallback) {
    if (Token whole = vocabulary_->find(text); whole != kNoToken) {
      out.push_back(whole);
      return;
    }
    const bool all = std::all_of(text.begin(), text.end(),
                                 [this](char byte) { return fallback_[static_cast<unsigned char>(byte)] != kNoToken; });
    if (all) {
      for (char byte : text) out.push_back(fallback_[static_cast<unsigned char>(byte)]);
      return;
    }
  }
  if (token != kNoToken) out.push_back(token);
}

}  // namespace millrace
