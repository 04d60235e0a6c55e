#include "grammar/masks.h"

#include <algorithm>
#include <array>

#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr int kLongestToken = 256;  // characters; no token of the trie is longer

}  // namespace

Masks::Masks(Machine& machine, const GrammarVocabulary& vocabulary)
    : machine_(machine), vocabulary_(vocabulary), character_(any_character(machine.exprs())), end_(machine.ended()) {}

void Masks::begin_work() {
  limit_ = machine_.work() + kMostWork;
  if (!machine_.over()) machine_.exprs().start_over(kMostWork);
}

// False: a state was met that what was forgotten matters for.
bool Masks::walk(const TokenTrie& trie, StateId from, TokenMask& out) {
  std::array<StateId, 257> states;
  states[0] = from;
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = machine_.step(states[node.depth], node.byte);
    if (next == Machine::kDead) {
      if (spent()) return true;  // whoever asked will see
      i = node.skip;
      continue;
    }
    if (machine_.muddled(next)) return false;
    states[node.depth + 1u] = next;
    for (uint32_t k = 0; k < node.count; ++k) out.add(trie.ids()[node.first + k]);
    ++i;
  }
  return true;
}

void Masks::find_part(const TokenTrie& trie, StateId from, TextPart& part) {
  std::map<std::string, std::vector<Token>> leaving;
  std::array<StateId, 257> states;
  states[0] = from;
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next = machine_.step(states[node.depth], node.byte);
    if (next == end_) {
      for (size_t k = i; k < node.skip; ++k) {
        for (uint32_t j = 0; j < nodes[k].count; ++j) {
          const Token token = trie.ids()[nodes[k].first + j];
          leaving[vocabulary_.bytes(token).substr(node.depth + 1u)].push_back(token);
        }
      }
    }
    if (next == end_ || next == Machine::kDead) {
      if (spent()) return;
      i = node.skip;
      continue;
    }
    states[node.depth + 1u] = next;
    for (uint32_t k = 0; k < node.count; ++k) part.inside.add(trie.ids()[node.first + k]);
    ++i;
  }
  if (spent()) return;
  std::vector<std::pair<std::string, int32_t>> texts;
  for (auto& [text, tokens] : leaving) {
    texts.push_back({text, static_cast<int32_t>(part.groups.size())});
    part.groups.push_back(std::move(tokens));
  }
  part.leaving = TokenTrie(std::move(texts));
}

Frame Masks::canonical(const Frame& frame) const {
  Frame same{Frame::text, frame.a, frame.b, 0};
  int least = 0, most = 0;
  if (frame.b != 0 || !machine_.exprs().is_window(frame.a, character_, least, most)) return same;
  if (least <= kLongestToken && most <= kLongestToken) return same;
  const int cut = most == Exprs::kMany || most > kLongestToken ? Exprs::kMany : most;
  same.a = text_of_length(machine_.exprs(), std::min(least, kLongestToken), cut);
  return same;
}

bool Masks::plain_stays(ExprId expr) const {
  int least = 0, most = 0;
  if (machine_.exprs().is_window(expr, character_, least, most)) {
    return most == Exprs::kMany || most >= vocabulary_.longest_plain();
  }
  return machine_.exprs().is_nearly_all(expr, character_);
}

const Masks::TextPart* Masks::text_part(const Frame& frame) {
  const Frame same = canonical(frame);
  std::unique_ptr<TextPart>& kept = parts_[{same.a, same.b}];
  if (kept) return kept.get();
  auto part = std::make_unique<TextPart>();
  part->inside = TokenMask(vocabulary_.size());
  const bool plain = same.b == 0 && plain_stays(same.a);
  if (plain) part->inside.add(vocabulary_.plain());
  find_part(plain ? vocabulary_.rest() : vocabulary_.all(), machine_.alone(same), *part);
  if (spent()) {  // half a part is kept by nobody
    parts_.erase({same.a, same.b});
    return nullptr;
  }
  bytes_ += static_cast<int64_t>(part->inside.words.size() * 8 + part->leaving.nodes().size() * 20 + 64);
  kept = std::move(part);
  return kept.get();
}

bool Masks::add_leaving(const TextPart& part, StateId after, TokenMask& out) {
  if (after == Machine::kDead) return true;
  TokenMask groups(static_cast<int32_t>(part.groups.size()));
  const bool sure = walk(part.leaving, after, groups) && !machine_.muddled(after);
  for (int32_t id : part.leaving.empty()) groups.add(id);
  for (size_t i = 0; i < part.groups.size(); ++i) {
    if (!groups.has(static_cast<Token>(i))) continue;
    for (Token token : part.groups[i]) out.add(token);
  }
  return sure;
}

std::shared_ptr<const TokenMask> Masks::of(StateId asked) {
  const StateId state = machine_.forget(asked);
  if (auto found = masks_.find(state); found != masks_.end()) return found->second;
  if (auto found = masks_.find(asked); found != masks_.end()) return found->second;
  begin_work();
  auto mask = std::make_shared<TokenMask>(vocabulary_.size());
  bool sure = true;
  StateId key = state;
  for (const Machine::Top& top : machine_.tops(state)) {
    if (top.frame.kind != Frame::text || !sure) continue;
    const TextPart* part = text_part(top.frame);
    if (part == nullptr) return nullptr;
    mask->add(part->inside);
    sure = add_leaving(*part, machine_.after(top.below, top.frame.c), *mask);
  }
  if (sure) sure = walk(vocabulary_.all(), machine_.without_texts(state), *mask);
  if (!sure) {  // what is being captured matters: everything from the state as it is
    key = asked;
    *mask = TokenMask(vocabulary_.size());
    walk(vocabulary_.all(), asked, *mask);
  }
  if (spent()) return nullptr;
  if (machine_.accepts(state)) {
    for (Token end : vocabulary_.ends()) {
      if (end >= 0 && end < vocabulary_.size()) mask->add(end);
    }
  }
  bytes_ += static_cast<int64_t>(mask->words.size() * 8 + 64);
  masks_.emplace(key, mask);
  return mask;
}

}  // namespace millrace::grammar
