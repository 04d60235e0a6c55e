#include "session/generator.h"

#include <algorithm>
#include <chrono>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool contains(std::span<const Token> tokens, Token token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// Tokens that may not be chosen as the answer's token number `index`.
void find_banned(const GenerateOptions& options, int32_t index, std::vector<Token>& banned) {
  banned.clear();
  const bool early = index < options.min_tokens;
  if (options.ignore_end || early) banned.insert(banned.end(), options.end_tokens.begin(), options.end_tokens.end());
  if (early) banned.insert(banned.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  // A token the caller wants to stop at may well be an end token that is otherwise ignored.
  if (!early) std::erase_if(banned, [&](Token token) { return contains(options.stop_tokens, token); });
}

}  // namespace

std::string_view ending_name(Ending ending) {
  switch (ending) {
    case Ending::end_token:
    case Ending::stop_token:
    case Ending::stop_string:
      return "stop";
    case Ending::length:
      return "length";
    case Ending::context:
      return "length (context)";
    case Ending::stopped:
      return "stopped";
  }
  return "";
}

GenerateTimes& GenerateTimes::operator+=(const GenerateTimes& other) {
  prompt_seconds += other.prompt_seconds;
  answer_seconds += other.answer_seconds;
  prompt_tokens += other.prompt_tokens;
  reused_tokens += other.reused_tokens;
  answer_tokens += other.answer_tokens;
  return *this;
}

Generator::Generator(Executor& executor)
    : executor_(executor),
      cache_(executor.layout(), executor.options().pages, 0),
      pages_(cache_.open(0, {})),
      scratch_(executor.vocab()) {
  kept_.reserve(static_cast<size_t>(context()));
}

void Generator::forget() {
  cache_.release(pages_);
  pages_ = cache_.open(0, {});
  kept_.clear();
}

// Whether computing can go on after the first `tokens` of what is kept: pages that left a window are gone, and a
// recurrent state stands at the end only.
bool Generator::can_resume(int32_t tokens) const {
  for (size_t i = 0; i < pages_.tables.size(); ++i) {
    const CacheGroup& group = cache_.layout().groups[i];
    if (group.recurrent() && tokens != kept()) return false;
    if (!group.recurrent() && pages_.tables[i].first() > group.first_needed(tokens)) return false;
  }
  return true;
}

// Goes back to the longest beginning of the prompt that is computed already; its last token is computed anew, for its
// logits.
int32_t Generator::reuse(std::span<const Token> prompt) {
  const auto most = kept_.begin() + static_cast<ptrdiff_t>(std::min(kept_.size(), prompt.size() - 1));
  const auto common = static_cast<int32_t>(std::mismatch(kept_.begin(), most, prompt.begin()).first - kept_.begin());
  if (common == 0 || !can_resume(common)) {
    forget();
    return 0;
  }
  const int32_t from = cache_.rollback(pages_, common);
  kept_.resize(static_cast<size_t>(from));
  return from;
}

Tensor Generator::run(std::span<const Token> tokens, int32_t wanted) {
  const int32_t begin = kept(), count = static_cast<int32_t>(tokens.size());
  CHECK(cache_.reserve(pages_, begin, begin + count), "the executor has pages for its whole context");
  executor_.carry_out(cache_);
  const Chunk chunk{.tokens = tokens, .begin = begin, .tables = pages_.tables, .wanted = wanted};
  Tensor logits = executor_.run({&chunk, 1});
  kept_.insert(kept_.end(), tokens.begin(), tokens.end());
  return logits;
}

// All of a prompt that is not computed yet, in steps; the logits of its last token.
Result<Tensor> Generator::compute(std::span<const Token> tokens, const std::function<bool()>& interrupted) {
  Tensor logits;
  while (!tokens.empty()) {
    if (interrupted && interrupted()) return error(Code::cancelled, "stopped while reading the prompt");
    const size_t count = std::min(tokens.size(), static_cast<size_t>(executor_.options().rows));
    logits = run(tokens.first(count), count == tokens.size() ? 1 : 0);
    tokens = tokens.subspan(count);
  }
  return logits;
}

Result<void> Generator::check(std::span<const Token> prompt) const {
  if (prompt.empty())
    return error(Code::invalid, "the prompt is empty, and the model has no begin token to start from");
  if (static_cast<int64_t>(prompt.size()) >= context()) {
    return error(
        Code::invalid,
        "the prompt has {} tokens and the context room for {}: nothing is left for an answer; shorten the prompt or "
        "ask for a longer context (-c)",
        prompt.size(), context());
  }
  for (Token token : prompt) {
    if (token < 0 || token >= executor_.vocab()) {
      return error(Code::invalid, "token {} is not one of the model's {}", token, executor_.vocab());
    }
  }
  return {};
}

Result<Generated> Generator::generate(std::span<const Token> prompt, const GenerateOptions& options,
                                      const Listener& listener, const std::function<bool()>& interrupted) {
  TRY_VOID(check(prompt));
  TRY(Sampler sampler, Sampler::create(options.sampling, executor_.vocab(), options.choice));
  const Clock::time_point start = Clock::now();
  Generated result;
  result.times.prompt_tokens = static_cast<int32_t>(prompt.size());
  result.times.reused_tokens = reuse(prompt);
  TRY(Tensor logits, compute(prompt.subspan(static_cast<size_t>(result.times.reused_tokens)), interrupted));

  std::vector<Token> known(prompt.begin(), prompt.end());
  known.reserve(static_cast<size_t>(context()));
  const int32_t room = context() - static_cast<int32_t>(prompt.size());
  const int32_t most = options.max_tokens < 0 ? room : std::min(room, options.max_tokens);
  result.ending = most == options.max_tokens ? Ending::length : Ending::context;
  Clock::time_point first = Clock::now();
  for (int32_t index = 0; index < most; ++index) {
    TRY(GeneratedToken token, choose(logits, known, index, options, sampler));
    if (index == 0) first = Clock::now();
    ++result.times.answer_tokens;
    const Reply reply = listener(token);
    if (token.last) {
      result.ending = contains(options.stop_tokens, token.id) ? Ending::stop_token : Ending::end_token;
      result.ended_by = token.id;
      break;
    }
    result.tokens.push_back(token.id);
    known.push_back(token.id);
    if (reply != Reply::more) {
      result.ending = reply == Reply::stop_string ? Ending::stop_string : Ending::stopped;
      break;
    }
    if (index + 1 < most) logits = run(std::span(known).last(1), 1);
  }
  result.times.answer_seconds = seconds_since(first);
  result.times.prompt_seconds = std::chrono::duration<double>(first - start).count();
  return result;
}

Result<GeneratedToken> Generator::choose(Tensor logits, std::span<const Token> known, int32_t index,
                                         const GenerateOptions& options, Sampler& sampler) {
  const std::span<const float> row(logits.row(0), static_cast<size_t>(logits.cols));
  find_banned(options, index, banned_);
  std::shared_ptr<const TokenMask> mask;
  if (options.constraint) {
    if (index == 0) states_ = {};
    TRY(mask, states_.mask(*options.constraint, known.last(static_cast<size_t>(index))));
  }
  TRY(Token token, sampler.sample(row, known, scratch_, banned_, mask.get()));
  GeneratedToken chosen{.id = token, .index = index};
  if (options.logprobs >= 0) {
    TRY_VOID(logprobs(row, token, static_cast<size_t>(options.logprobs), scratch_, report_));
    chosen.logprobs = &report_;
  }
  chosen.last = contains(options.stop_tokens, token) || contains(options.end_tokens, token);
  return chosen;
}

}  // namespace millrace
