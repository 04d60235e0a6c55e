#include "session/bound.h"

#include <algorithm>

#include "grammar/vocabulary.h"
#include "session/calls.h"
#include "session/forced_tokens.h"
#include "session/mark_bytes.h"
#include "session/thought_limit.h"

namespace millrace {

namespace {

// States: those of the grammar; kFirst before the first token; below it until the reasoning has ended, by how many
// bytes of the mark that ends it there are.
class BoundConstraint : public Constraint {
 public:
  BoundConstraint(std::shared_ptr<Grammar> grammar, const std::vector<std::string>* first, std::string after,
                  std::string source)
      : grammar_(std::move(grammar)), first_(first), after_(std::move(after)), source_(std::move(source)) {}

  State start() const override { return after_.size() > 0 ? kBefore : begin(); }

  State next(State state, Token token) override {
    const GrammarVocabulary& vocabulary = grammar_->vocabulary();
    if (state <= kBefore) return after(state, vocabulary.bytes(token));
    if (state != kFirst) return grammar_->next(state, token);
    if (token < 0 || static_cast<size_t>(token) >= first_->size()) return Grammar::kRefused;
    if (vocabulary.is_end(token)) return grammar_->next(grammar_->start(), token);
    return grammar_->next_bytes(grammar_->start(), (*first_)[static_cast<size_t>(token)]);
  }

  Result<std::shared_ptr<const TokenMask>> allowed(State state) override {
    if (state > kFirst) return grammar_->allowed(state);
    std::lock_guard hold(lock_);
    std::shared_ptr<const TokenMask>& kept = masks_[state];
    if (kept) return kept;
    const GrammarVocabulary& vocabulary = grammar_->vocabulary();
    auto mask = std::make_shared<TokenMask>(vocabulary.size());
    for (Token token = 0; token < vocabulary.size(); ++token)
      if (state <= kBefore ? may_think(state, token) : may_begin(token)) mask->add(token);
    kept = std::move(mask);
    return kept;
  }

  bool ends(State state) override { return state > 0 && grammar_->accepts(state); }
  std::string source() const override { return source_; }

  Token forced(State state) override {
    if (state <= 0) return -1;
    const auto mask = grammar_->allowed(state);
    return mask.ok() ? grammar_->vocabulary().forced(**mask) : -1;
  }

 private:
  static constexpr State kFirst = -1, kBefore = -2;
  State begin() const { return first_ != nullptr ? kFirst : grammar_->start(); }

  // After more bytes of reasoning; what follows the mark is the grammar's.
  State after(State state, std::string_view bytes) const {
    auto matched = static_cast<size_t>(kBefore - state);
    for (size_t i = 0; i < bytes.size(); ++i) {
      matched = after_.next(matched, bytes[i]);
      if (matched == after_.size())
        return i + 1 == bytes.size() ? grammar_->start() : grammar_->next_bytes(grammar_->start(), bytes.substr(i + 1));
    }
    return kBefore - static_cast<State>(matched);
  }
  bool may_think(State state, Token token) const {
    const GrammarVocabulary& vocabulary = grammar_->vocabulary();
    return !vocabulary.is_end(token) && after(state, vocabulary.bytes(token)) != Grammar::kRefused;
  }
  bool may_begin(Token token) const {
    if (grammar_->vocabulary().is_end(token)) return grammar_->accepts(grammar_->start());
    const std::string& bytes = (*first_)[static_cast<size_t>(token)];
    return !bytes.empty() && grammar_->next_bytes(grammar_->start(), bytes) != Grammar::kRefused;
  }

  std::shared_ptr<Grammar> grammar_;
  const std::vector<std::string>* first_;
  const SoughtMark after_;
  std::string source_;
  std::mutex lock_;
  std::map<State, std::shared_ptr<const TokenMask>> masks_;  // before the grammar holds
};

std::string key_of(const GrammarSource& source) {
  return fmt::format("{}{}{}{} {}", static_cast<int>(source.kind), source.compact ? 1 : 0, source.in_order ? 1 : 0,
                     source.assert_formats ? 1 : 0, source.text);
}

}  // namespace

Bounds::Bounds(const LoadedModel& model, int64_t bytes) : model_(model), most_bytes_(bytes) {}

Result<std::shared_ptr<const GrammarVocabulary>> Bounds::vocabulary() {
  std::lock_guard hold(lock_);
  if (vocabulary_) return vocabulary_;
#if MILLRACE_SESSION_TEXT
  const Tokenizer* tokenizer = model_.tokenizer();
  if (tokenizer == nullptr) {
    return error(Code::unsupported, "an answer cannot be bound to a grammar without a tokenizer: {}",
                 model_.tokenizer_error());
  }
  std::vector<std::string> bytes(static_cast<size_t>(model_.vocab()));
  std::vector<std::string> first = bytes;
  bool differs = false;
  for (Token token = 0; token < std::min(model_.vocab(), tokenizer->size()); ++token) {
    if (tokenizer->is_end(token)) continue;
    const size_t place = static_cast<size_t>(token);
    bytes[place] = first[place] = call_bytes(*tokenizer, token);
    if (tokenizer->is_special(token)) continue;  // only grammars of calls allow it
    if (bytes[place].find('\xFE') != std::string::npos) bytes[place] = first[place] = "";  // no text has it
    // A space in front of the first token is left out by some.
    if (!bytes[place].starts_with(' ')) continue;
    first[place] = tokenizer->decode(std::span(&token, 1), {.skip_special = true, .continues = false});
    differs |= first[place] != bytes[place];
  }
  if (differs) first_bytes_ = std::move(first);
  std::vector<Token> ends(model_.end_tokens().begin(), model_.end_tokens().end());
  vocabulary_ = std::make_shared<GrammarVocabulary>(std::move(bytes), std::move(ends));
  return vocabulary_;
#else
  static_cast<void>(model_);
  return error(Code::unsupported, "an answer cannot be bound to a grammar: this build has no text");
#endif
}

// Least recently used first, of the tenant that has most.
void Bounds::evict(const std::string& tenant) {
  while (bytes_ > most_bytes_ && entries_.size() > 1) {
    const auto largest = std::max_element(by_tenant_.begin(), by_tenant_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string& whose = largest == by_tenant_.end() ? tenant : largest->first;
    auto victim = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.tenant == whose; });
    if (victim == entries_.rend()) return;
    bytes_ -= victim->bytes;
    auto paid = by_tenant_.find(victim->tenant);
    paid->second -= victim->bytes;
    if (paid->second <= 0) by_tenant_.erase(paid);
    by_key_.erase(victim->key);
    entries_.erase(std::next(victim).base());
  }
}

bool Bounds::knows(const GrammarSource& source) {
  std::lock_guard hold(lock_);
  return by_key_.contains(key_of(source));
}

Result<BoundAnswer> Bounds::bind(const GrammarSource& source, const BoundOptions& options, const std::string& tenant) {
  TRY(auto vocabulary, this->vocabulary());
  constexpr int64_t kWornOut = int64_t{48} << 20;  // a grammar that has grown so far is begun anew
  const std::string key = key_of(source);
  std::shared_ptr<Grammar> grammar;
  std::unique_lock hold(lock_);
  done_.wait(hold, [&] { return !compiling_.contains(key); });
  if (auto found = by_key_.find(key); found != by_key_.end()) {
    Entry& entry = *found->second;
    const int64_t now = entry.grammar->bytes();
    bytes_ += now - entry.bytes;
    by_tenant_[entry.tenant] += now - entry.bytes;
    entry.bytes = now;
    if (now < kWornOut && !entry.grammar->over()) {
      grammar = entry.grammar;
      entries_.splice(entries_.begin(), entries_, found->second);
      ++counters_.reused;
    } else {
      bytes_ -= entry.bytes;
      by_tenant_[entry.tenant] -= entry.bytes;
      entries_.erase(found->second);
      by_key_.erase(found);
    }
  }
  if (!grammar) {
    compiling_[key] = true;
    hold.unlock();
    auto compiled = Grammar::compile(source, vocabulary);
    hold.lock();
    compiling_.erase(key);
    done_.notify_all();
    if (!compiled.ok()) return compiled.error();
    grammar = *compiled;
    ++counters_.compiled;
    entries_.push_front({key, tenant, grammar, grammar->bytes() + static_cast<int64_t>(key.size()) * 2});
    by_key_[key] = entries_.begin();
    bytes_ += entries_.front().bytes;
    by_tenant_[tenant] += entries_.front().bytes;
    evict(tenant);
  }
  const bool strips = !options.continues && options.after.empty() && !first_bytes_.empty();
  BoundAnswer bound{.constraint = nullptr, .notes = grammar->notes()};
  bound.constraint =
      std::make_shared<BoundConstraint>(std::move(grammar), strips ? &first_bytes_ : nullptr, options.after,
                                        fmt::format("{} {} {}", options.continues ? 1 : 0, hex(options.after), key));
  return bound;
}

Result<std::shared_ptr<Constraint>> Bounds::constraint(const std::string& source, const std::string& tenant) {
  if (source.starts_with(kForcedSource)) return forced_tokens_of(source, model_.vocab());
  if (source.starts_with(kThoughtSource)) {
    std::string around;
    TRY(ThoughtLimit limit, thought_limit_of(source, model_.vocab(), around));
    std::shared_ptr<Constraint> inner;
    if (!around.empty()) {
      if (around[0] == kThoughtSource) return error(Code::corrupt, "what an answer was bound to cannot be read");
      TRY(inner, constraint(around, tenant));
    }
    return limit_thoughts(model_, std::move(limit), std::move(inner));
  }
  // "CONTINUES AFTER KIND COMPACT IN_ORDER FORMATS TEXT", the four in the middle a digit each without spaces.
  BoundOptions options;
  auto malformed = [] { return error(Code::corrupt, "what an answer was bound to cannot be read"); };
  if (source.size() < 4 || source[1] != ' ') return malformed();
  options.continues = source[0] == '1';
  const size_t space = source.find(' ', 2);
  if (space == std::string::npos || source.size() < space + 6 || source[space + 5] != ' ') return malformed();
  TRY(options.after, from_hex(std::string_view(source).substr(2, space - 2)));
  const std::string_view rest = std::string_view(source).substr(space);
  const int kind = rest[1] - '0';
  if (kind < 0 || kind > static_cast<int>(GrammarKind::calls)) return malformed();
  TRY(BoundAnswer bound, bind({.kind = static_cast<GrammarKind>(kind),
                               .text = std::string(rest.substr(6)),
                               .compact = rest[2] == '1',
                               .in_order = rest[3] == '1',
                               .assert_formats = rest[4] == '1'},
                              options, tenant));
  return std::move(bound.constraint);
}

Bounds::Counters Bounds::counters() {
  std::lock_guard hold(lock_);
  Counters now = counters_;
  now.bytes = bytes_;
  now.grammars = entries_.size();
  return now;
}

std::string open_reasoning(const LoadedModel& model, std::span<const Token> prompt, Thinking thinking) {
#if MILLRACE_SESSION_TEXT
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return {};
  if (thinking == Thinking::open && model.calls().style != CallFormat::Style::channels) return model.calls().think_end;
  for (auto [open, close] :
       {std::pair{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}}) {
    const auto begin = tokenizer->token_to_id(open), end = tokenizer->token_to_id(close);
    if (!begin || !end) continue;
    for (size_t i = prompt.size(); i-- > 0;) {
      if (prompt[i] == *end) break;
      if (prompt[i] == *begin) return call_bytes(*tokenizer, *end);
    }
  }
#endif
  static_cast<void>(model);
  static_cast<void>(prompt);
  static_cast<void>(thinking);
  return {};
}

}  // namespace millrace
