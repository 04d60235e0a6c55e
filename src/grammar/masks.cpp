#include "grammar/masks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "grammar/broad_text.h"
#include "grammar/char_kinds.h"
#include "grammar/regex.h"

namespace millrace::grammar {

Masks::Masks(Machine& machine, const GrammarVocabulary& vocabulary)
    : machine_(machine),
      vocabulary_(vocabulary),
      character_(any_character(machine.exprs())),
      characters_(machine.exprs().repeat(character_, 0, Exprs::kMany)),
      text_end_(text_end(machine.exprs())),
      end_(machine.ended()) {}

void Masks::begin_work() {
  limit_ = machine_.work() + kMostWork;
  if (!machine_.over()) machine_.exprs().start_over(kMostWork);
}

// Whether everything below a node is taken in a state, by its kinds of characters. A small part is walked sooner.
bool Masks::takes_all(const TokenTrie& trie, size_t node, StateId state) {
  constexpr uint32_t kWorthALook = 24;
  const TokenTrie::Node& at = trie.nodes()[node];
  if (at.skip - node < kWorthALook || (at.below & kOdd) != 0) return false;
  return (at.below & ~machine_.open_kinds(state)) == 0;
}

void Masks::walk(const TokenTrie& trie, StateId from, TokenMask& out, std::vector<int32_t>& unsure) {
  if (from == Machine::kDead) return;
  std::array<StateId, 257> states;
  std::array<const ByteSet*, 257> open;
  states[0] = from;
  open[0] = &machine_.next_bytes(from);
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    if (!open[node.depth]->has(node.byte)) {
      i = node.skip;
      continue;
    }
    // A token seldom gets as far as a second text that must differ from the first, so none is captured on the way.
    const StateId next = machine_.forget(machine_.step(states[node.depth], node.byte));
    if (next == Machine::kDead) {
      if (spent()) return;  // whoever asked will see
      i = node.skip;
      continue;
    }
    if (machine_.muddled(next)) {
      for (size_t k = i; k < node.skip; ++k) {
        for (uint32_t j = 0; j < nodes[k].count; ++j) unsure.push_back(trie.ids()[nodes[k].first + j]);
      }
      i = node.skip;
      continue;
    }
    if (takes_all(trie, i, next)) {
      for (uint32_t k = trie.first_id(i); k < trie.last_id(i); ++k) out.add(trie.ids()[k]);
      i = node.skip;
      continue;
    }
    for (uint32_t k = 0; k < node.count; ++k) out.add(trie.ids()[node.first + k]);
    if (node.skip > ++i) {
      states[node.depth + 1u] = next;
      open[node.depth + 1u] = &machine_.next_bytes(next);
    }
  }
}

void Masks::walk_part(StateId from, TextPart& part) {
  const TokenTrie& trie = vocabulary_.all();
  std::map<std::string, std::vector<LeavingTokens::Entry>> leaving;
  std::array<StateId, 257> states;
  std::array<const ByteSet*, 257> open;
  states[0] = from;
  open[0] = &machine_.next_bytes(from);
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateId next =
        open[node.depth]->has(node.byte) ? machine_.step(states[node.depth], node.byte) : Machine::kDead;
    if (next == end_) {
      for (size_t k = i; k < node.skip; ++k) {
        for (uint32_t j = 0; j < nodes[k].count; ++j) {
          const Token token = trie.ids()[nodes[k].first + j];
          leaving[vocabulary_.bytes(token).substr(node.depth + 1u)].push_back({token, 0, 0});
        }
      }
    }
    if (next == end_ || next == Machine::kDead) {
      if (spent()) return;
      i = node.skip;
      continue;
    }
    if (takes_all(trie, i, next)) {
      for (uint32_t k = trie.first_id(i); k < trie.last_id(i); ++k) part.inside.add(trie.ids()[k]);
      i = node.skip;
      continue;
    }
    for (uint32_t k = 0; k < node.count; ++k) part.inside.add(trie.ids()[node.first + k]);
    if (node.skip > ++i) {
      states[node.depth + 1u] = next;
      open[node.depth + 1u] = &machine_.next_bytes(next);
    }
  }
  part.own = std::make_unique<LeavingTokens>();
  for (const auto& [rest, tokens] : leaving) part.own->add(rest, tokens);
  part.own->finish();
  part.leaving = part.own.get();
}

bool Masks::window(ExprId expr, int& least, int& most) const {
  if (expr == text_end_) return least = most = 0, true;
  return machine_.exprs().is_window(expr, character_, least, most);
}

Frame Masks::canonical(const Frame& frame) {
  Frame same{Frame::text, frame.a, frame.b, 0};
  const int longest = vocabulary_.texts().longest();
  int least = 0, most = 0;
  if (frame.b != 0) return same;
  if (window(frame.a, least, most)) {
    if (least <= longest + 1 && most <= longest) return same;
    const int cut = most == Exprs::kMany || most > longest ? Exprs::kMany : most;
    same.a = text_of_length(machine_.exprs(), std::min(least, longest + 1), cut);
    return same;
  }
  // Whatever a token says, an end is near enough to come before the bound.
  ExprId unbounded = Exprs::kNothing;
  if (!machine_.exprs().is_bounded(frame.a, character_, unbounded, least, most) || most <= longest) return same;
  const int far = machine_.exprs().farthest_end(unbounded);
  if (far >= 0 && far + longest <= most) same.a = unbounded;
  return same;
}

bool Masks::count_part(const Frame& frame, TextPart& part) const {
  if (frame.b != 0 || !window(frame.a, part.least, part.most)) return false;
  part.inside = vocabulary_.texts().staying(part.most);
  part.leaving = &vocabulary_.texts().leaving();
  return true;
}

// Tokens of so many characters that the bound on the length may be too near for an end after them.
void Masks::add_short(const Frame& frame, int sure, TextPart& part) {
  const TokenMask may = vocabulary_.texts().staying(part.most);
  const StateId from = machine_.alone(frame);
  for (size_t word = 0; word < may.words.size() && !spent(); ++word) {
    uint64_t unsure = may.words[word];
    if (sure >= 0) unsure &= ~part.inside.words[word];
    for (; unsure != 0; unsure &= unsure - 1) {
      const auto token = static_cast<Token>(word * 64 + static_cast<size_t>(std::countr_zero(unsure)));
      if (machine_.run(from, vocabulary_.bytes(token)) != Machine::kDead) part.inside.add(token);
    }
  }
}

bool Masks::open_part(const Frame& frame, TextPart& part) {
  Exprs& exprs = machine_.exprs();
  if (frame.b != 0) return false;
  ExprId language = frame.a, unbounded = Exprs::kNothing;
  const bool bounded = exprs.is_bounded(frame.a, character_, unbounded, part.least, part.most);
  if (bounded) language = unbounded;
  if (!exprs.is_nearly_all(language, character_) && !exprs.always_goes_on(language, characters_)) return false;
  const TextTable& texts = vocabulary_.texts();
  part.leaving = &texts.leaving();
  if (bounded) {
    const int far = exprs.farthest_end(language), sure = far < 0 ? -1 : part.most - far;
    part.inside = sure >= 0 ? texts.staying(sure) : TokenMask(vocabulary_.size());
    add_short(frame, sure, part);
  } else {
    part.inside = texts.staying();
  }
  part.refused.assign(texts.befores(), false);
  const auto ends = [&](ExprId expr) { return exprs.nullable(exprs.derive(expr, kTextEnd)); };
  for (int32_t id : texts.before().empty()) part.refused[static_cast<size_t>(id)] = !ends(language);
  std::array<ExprId, 257> at;
  at[0] = language;
  const std::vector<TokenTrie::Node>& nodes = texts.before().nodes();
  for (size_t i = 0; i < nodes.size() && !spent();) {
    const TokenTrie::Node& node = nodes[i];
    const ExprId next = exprs.derive(at[node.depth], node.byte);
    int least = 0, most = 0;
    if (window(next, least, most) && least == 0 && most == Exprs::kMany) {  // nothing is refused from here on
      i = node.skip;
      continue;
    }
    for (uint32_t k = 0; k < node.count; ++k) {
      part.refused[static_cast<size_t>(texts.before().ids()[node.first + k])] = !ends(next);
    }
    at[node.depth + 1u] = next;
    ++i;
  }
  return true;
}

const Masks::TextPart* Masks::text_part(const Frame& frame) {
  const Frame same = canonical(frame);
  std::unique_ptr<TextPart>& kept = parts_[{same.a, same.b}];
  if (kept) return kept.get();
  auto part = std::make_unique<TextPart>();
  if (!count_part(same, *part) && !open_part(same, *part)) {
    part->inside = TokenMask(vocabulary_.size());
    walk_part(machine_.alone(same), *part);
  }
  if (spent()) {  // half a part is kept by nobody
    parts_.erase({same.a, same.b});
    return nullptr;
  }
  bytes_ += static_cast<int64_t>(part->inside.words.size() * 8 + part->refused.size() / 8 + 128);
  if (part->own) bytes_ += part->own->bytes();
  kept = std::move(part);
  return kept.get();
}

void Masks::add_leaving(const TextPart& part, StateId after, Shared& out) {
  if (after == Machine::kDead) return;
  const LeavingTokens& leaving = *part.leaving;
  TokenMask rests(static_cast<int32_t>(leaving.first.size()));
  std::vector<int32_t> unsure;
  walk(leaving.rests, after, rests, unsure);
  for (int32_t id : leaving.rests.empty()) rests.add(id);
  const auto each = [&](size_t rest, auto&& found) {
    for (uint32_t i = leaving.first[rest]; i < leaving.first[rest + 1]; ++i) {
      if (part.takes(leaving.entries[i])) found(leaving.entries[i].token);
    }
  };
  for (size_t word = 0; word < rests.words.size(); ++word) {
    for (uint64_t left = rests.words[word]; left != 0; left &= left - 1) {
      each(word * 64 + static_cast<size_t>(std::countr_zero(left)), [&](Token token) { out.mask->add(token); });
    }
  }
  for (int32_t id : unsure) each(static_cast<size_t>(id), [&](Token token) { out.unsure.push_back(token); });
}

std::shared_ptr<const Masks::Shared> Masks::shared(StateId state) {
  if (auto found = shared_.find(state); found != shared_.end()) return found->second;
  auto made = std::make_shared<Shared>();
  made->mask = std::make_shared<TokenMask>(vocabulary_.size());
  for (const Machine::Top& top : machine_.tops(state)) {
    if (!is_broad(machine_.exprs(), top.frame)) continue;
    const TextPart* part = text_part(top.frame);
    if (part == nullptr) return nullptr;
    made->mask->add(part->inside);
    if (!part->leaving->entries.empty()) add_leaving(*part, machine_.after(top.below, top.frame.c), *made);
  }
  walk(vocabulary_.all(), machine_.without_texts(state), *made->mask, made->unsure);
  if (spent()) return nullptr;
  if (machine_.accepts(state)) {
    for (Token end : vocabulary_.ends()) {
      if (end >= 0 && end < vocabulary_.size()) made->mask->add(end);
    }
  }
  bytes_ += static_cast<int64_t>(made->mask->words.size() * 8 + made->unsure.size() * 4 + 96);
  shared_.emplace(state, made);
  return made;
}

std::shared_ptr<const TokenMask> Masks::of(StateId asked) {
  if (auto found = masks_.find(asked); found != masks_.end()) return found->second;
  begin_work();
  const auto common = shared(machine_.forget(asked));
  if (!common) return nullptr;
  if (common->unsure.empty()) return common->mask;
  auto mask = std::make_shared<TokenMask>(*common->mask);
  for (Token token : common->unsure) {
    if (!mask->has(token) && machine_.run(asked, vocabulary_.bytes(token)) != Machine::kDead) mask->add(token);
  }
  if (spent()) return nullptr;
  bytes_ += static_cast<int64_t>(mask->words.size() * 8 + 64);
  masks_.emplace(asked, mask);
  return mask;
}

}  // namespace millrace::grammar
