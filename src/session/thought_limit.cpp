#include "session/thought_limit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "session/calls.h"
#include "session/mark_bytes.h"

namespace millrace {
namespace {

#if MILLRACE_SESSION_TEXT

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

class LimitedThoughts : public Constraint {
 public:
  LimitedThoughts(const LoadedModel& model, ThoughtLimit limit, std::shared_ptr<Constraint> inner)
      : model_(model), limit_(std::move(limit)), inner_(std::move(inner)), begin_(limit_.begin), end_(limit_.end) {
    auto any = std::make_shared<TokenMask>(model.vocab());
    for (Token token = 0; token < model.vocab(); ++token) any->add(token);
    any_ = std::move(any);
    Place first{.matched = limit_.begun, .inner = inner_ ? inner_->start() : 0};
    if (limit_.open) enter(first);
    if (!limit_.open && limit_.tokens == 0 && limit_.repeats) first.phase = Phase::done;
    start_ = id(first);
  }

  State start() const override { return start_; }

  State next(State state, Token token) override {
    Place at = place(state);
    if (inner_) at.inner = inner_->next(at.inner, token);
    advance(at, token);
    return id(at);
  }

  Result<std::shared_ptr<const TokenMask>> allowed(State state) override {
    const Place at = place(state);
    std::shared_ptr<const TokenMask> mask = any_;
    if (inner_) {
      TRY(mask, inner_->allowed(at.inner));
    }
    if (at.phase == Phase::closing) return only(limit_.close[at.matched], std::move(mask));
    return at.phase == Phase::done && limit_.repeats ? without_thoughts(at.matched, std::move(mask)) : mask;
  }

  bool ends(State state) override {
    const Place at = place(state);
    return at.phase != Phase::closing && (!inner_ || inner_->ends(at.inner));
  }
  Token forced(State state) override {
    const Place at = place(state);
    if (at.phase == Phase::closing) return limit_.close[at.matched];
    return inner_ ? inner_->forced(at.inner) : -1;
  }
  std::string source() const override {
    return fmt::format("{}{} {}{} {} {} {} {} {} {}", kThoughtSource, limit_.tokens, limit_.open ? 1 : 0,
                       limit_.repeats ? 1 : 0, hex(limit_.begin), hex(limit_.end), limit_.begun, limit_.certain,
                       fmt::join(limit_.close, ","), inner_ ? inner_->source() : "");
  }

 private:
  // head: reasoning may begin. closing: its end is written. done: there is no more of it.
  enum class Phase : uint8_t { head, thinking, closing, done };
  struct Place {
    Phase phase = Phase::head;
    int count = 0;       // tokens thought
    size_t matched = 0;  // bytes of the mark that is looked for; of closing, tokens written
    State inner = 0;
    auto operator<=>(const Place&) const = default;
  };

  Place place(State state) {
    std::lock_guard hold(lock_);
    return places_[static_cast<size_t>(state)];
  }
  State id(const Place& at) {
    std::lock_guard hold(lock_);
    const auto [found, fresh] = ids_.try_emplace(at, static_cast<State>(places_.size()));
    if (fresh) places_.push_back(at);
    return found->second;
  }

  void enter(Place& at) const {
    at.phase = at.count >= limit_.tokens ? Phase::closing : Phase::thinking;
    at.matched = 0;
  }

  void advance(Place& at, Token token) const {
    if (at.phase == Phase::closing) {
      const bool written = limit_.close[at.matched] == token;  // else what it is around has no reasoning
      if (written && ++at.matched < limit_.close.size()) return;
      at.phase = Phase::done;
      at.matched = 0;
      return;
    }
    if (at.phase == Phase::done && !limit_.repeats) return;
    const bool thinking = at.phase == Phase::thinking;
    if (thinking) ++at.count;
    for (char c : call_bytes(*model_.tokenizer(), token)) read(at, c);
    if (thinking && at.phase == Phase::thinking && at.count >= limit_.tokens) enter(at);
  }

  void read(Place& at, char c) const {
    switch (at.phase) {
      case Phase::head:
      case Phase::done:
        if (limit_.repeats) {
          at.matched = begin_.next(at.matched, c);
        } else if (at.phase == Phase::done || (at.matched == 0 && is_space(c))) {
          return;
        } else if (begin_.size() > 0 && begin_.at(at.matched) == c) {
          ++at.matched;
        } else {
          at.phase = Phase::done;
          at.matched = 0;
          return;
        }
        if (at.matched == begin_.size() && at.matched > 0) enter(at);
        return;
      case Phase::thinking:
        at.matched = end_.next(at.matched, c);
        if (at.matched < end_.size()) return;
        at.phase = limit_.repeats && at.count < limit_.tokens ? Phase::head : Phase::done;
        at.matched = 0;
        return;
      case Phase::closing:
        return;
    }
  }

  std::shared_ptr<const TokenMask> only(Token token, std::shared_ptr<const TokenMask> mask) const {
    if (!mask->has(token)) return mask;
    auto one = std::make_shared<TokenMask>(model_.vocab());
    one->add(token);
    return one;
  }

  // Less the tokens with which reasoning would begin once more.
  std::shared_ptr<const TokenMask> without_thoughts(size_t matched, std::shared_ptr<const TokenMask> mask) {
    std::lock_guard hold(lock_);
    auto [found, fresh] = thoughts_.try_emplace(matched);
    for (Token token = 0; fresh && token < model_.vocab(); ++token) {
      size_t at = matched;
      bool begins = false;
      for (char c : call_bytes(*model_.tokenizer(), token)) begins |= (at = begin_.next(at, c)) >= limit_.certain;
      if (begins) found->second.push_back(token);
    }
    const bool none = std::none_of(found->second.begin(), found->second.end(), [&](Token t) { return mask->has(t); });
    if (none) return mask;
    auto rest = std::make_shared<TokenMask>(*mask);
    for (Token token : found->second) rest->words[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
    return rest->count() > 0 ? std::shared_ptr<const TokenMask>(std::move(rest)) : mask;
  }

  const LoadedModel& model_;
  const ThoughtLimit limit_;
  const std::shared_ptr<Constraint> inner_;
  const SoughtMark begin_, end_;
  std::shared_ptr<const TokenMask> any_;
  State start_ = 0;
  std::mutex lock_;
  std::vector<Place> places_;
  std::map<Place, State> ids_;
  std::map<size_t, std::vector<Token>> thoughts_;
};

// Tokens whose bytes are the mark's: control tokens as they are, the rest as the tokenizer writes it.
Result<std::vector<Token>> tokens_of_mark(const Tokenizer& tokenizer, std::string_view mark) {
  constexpr size_t kControl = 5;  // bytes of control_bytes()
  std::vector<Token> tokens;
  while (!mark.empty()) {
    if (mark[0] == '\xFE' && mark.size() >= kControl) {
      Token token = 0;
      for (size_t i = 1; i < kControl; ++i) token = token << 6 | (static_cast<unsigned char>(mark[i]) & 0x3F);
      tokens.push_back(token);
      mark.remove_prefix(kControl);
      continue;
    }
    const size_t text = std::min(mark.find('\xFE'), mark.size());
    TRY(const std::vector<Token> more, tokenizer.encode(mark.substr(0, text)));
    tokens.insert(tokens.end(), more.begin(), more.end());
    mark.remove_prefix(text);
  }
  return tokens;
}

#endif

}  // namespace

#if MILLRACE_SESSION_TEXT

Result<ThoughtLimit> thought_limit(const LoadedModel& model, Thinking thinking, int tokens) {
  const CallFormat& format = model.calls();
  ThoughtLimit limit{.tokens = tokens, .open = thinking == Thinking::open};
  limit.repeats = format.style == CallFormat::Style::channels || !format.lead.empty();
  limit.begun = limit.open ? 0 : format.lead.size();
  limit.begin = format.think_begin;
  limit.end = format.think_end;
  // What tells reasoning from what is said: all but the mark that ends its head.
  const size_t control = limit.begin.rfind('\xFE'),
               mark = control != std::string::npos ? control : limit.begin.rfind('<');
  limit.certain = limit.repeats && mark != std::string::npos && mark > 0 ? mark : limit.begin.size();
  TRY(limit.close, tokens_of_mark(*model.tokenizer(), limit.end));
  const SoughtMark end(limit.end);
  size_t matched = 0;
  for (Token token : limit.close)
    for (char c : call_bytes(*model.tokenizer(), token)) matched = end.next(matched, c);
  if (limit.close.empty() || matched != end.size())
    return error(Code::unsupported, "this model's reasoning cannot be ended: its tokens do not write the mark for it");
  return limit;
}

std::shared_ptr<Constraint> limit_thoughts(const LoadedModel& model, ThoughtLimit limit,
                                           std::shared_ptr<Constraint> inner) {
  return std::make_shared<LimitedThoughts>(model, std::move(limit), std::move(inner));
}

#else

Result<ThoughtLimit> thought_limit(const LoadedModel& model, Thinking, int) {
  return error(Code::unsupported, "no reasoning without text: {}", model.tokenizer_error());
}

std::shared_ptr<Constraint> limit_thoughts(const LoadedModel&, ThoughtLimit, std::shared_ptr<Constraint> inner) {
  return inner;
}

#endif

Result<ThoughtLimit> thought_limit_of(std::string_view source, int32_t vocab, std::string& inner) {
  auto malformed = [] { return error(Code::corrupt, "what an answer was bound to cannot be read"); };
  std::string_view fields[7];
  if (source.empty() || source[0] != kThoughtSource) return malformed();
  source.remove_prefix(1);
  for (std::string_view& field : fields) {
    const size_t space = source.find(' ');
    if (space == std::string_view::npos) return malformed();
    field = source.substr(0, space);
    source.remove_prefix(space + 1);
  }
  auto number = [](std::string_view text, auto& out) {
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
    return failure == std::errc() && rest == text.data() + text.size();
  };
  ThoughtLimit limit;
  if (!number(fields[0], limit.tokens) || !number(fields[4], limit.begun) || !number(fields[5], limit.certain) ||
      fields[1].size() != 2)
    return malformed();
  limit.open = fields[1][0] == '1';
  limit.repeats = fields[1][1] == '1';
  TRY(limit.begin, from_hex(fields[2]));
  TRY(limit.end, from_hex(fields[3]));
  for (std::string_view left = fields[6]; !left.empty();) {
    Token token = -1;
    const std::string_view one = left.substr(0, left.find(','));
    if (!number(one, token) || token < 0 || token >= vocab) return malformed();
    limit.close.push_back(token);
    left.remove_prefix(std::min(one.size() + 1, left.size()));
  }
  if (limit.tokens < 0 || limit.close.empty() || limit.end.empty() || limit.certain > limit.begin.size() ||
      (limit.begun > 0 && limit.begun >= limit.begin.size()))
    return malformed();
  inner = source;
  return limit;
}

}  // namespace millrace
