#include "session/generator.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace millrace {
namespace {

bool contains(std::span<const Token> tokens, Token token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

// Guesses are of what follows a token: where the whole context is a few tokens, fewer of them fit a step, or none.
DraftOptions fitting(DraftOptions draft, const ModelSpec& spec, const ExecutorOptions& executor) {
  const int32_t context = executor.context > 0 ? executor.context : spec.context;
  draft.most = std::min(draft.most, std::min(executor.rows, context) - 1);
  if (draft.most < 1) draft.make = {};
  return draft;
}

// A token the caller wants to stop at may well be an end token that is otherwise ignored.
Request request_of(std::span<const Token> prompt, const GenerateOptions& options, int32_t most, const Identity& root) {
  Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = most;
  request.min_tokens = options.min_tokens;
  request.sampling = options.sampling;
  request.logprobs = options.logprobs;
  request.constraint = options.constraint;
  request.fill = options.fill;
  request.root = root;
  request.stop_tokens = options.stop_tokens;
  for (const Token token : options.end_tokens) {
    if (contains(options.stop_tokens, token)) continue;
    (options.ignore_end ? request.sampling.banned : request.stop_tokens).push_back(token);
  }
  return request;
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
  following_tokens += other.following_tokens;
  passes += other.passes;
  windows += other.windows;
  drafted_tokens += other.drafted_tokens;
  accepted_tokens += other.accepted_tokens;
  return *this;
}

Result<std::unique_ptr<Generator>> Generator::create(const Model& model, Backend& backend,
                                                     const ExecutorOptions& executor, const DraftOptions& draft) {
  EngineOptions options;
  options.executor = executor;
  options.limits.step_tokens = executor.rows;
  options.limits.max_sequences = options.limits.max_waiting = options.limits.max_choices = 1;
  options.draft = fitting(draft, model.spec(), executor);
  TRY(EngineParts parts, EngineParts::create(model, backend, options));
  return std::unique_ptr<Generator>(new Generator(std::move(parts)));
}

Generator::Generator(EngineParts parts) : parts_(std::move(parts)), start_(std::chrono::steady_clock::now()) {}

void Generator::forget() {
  for (uint8_t& byte : root_.bytes) {  // the next number
    if (++byte != 0) break;
  }
}

std::vector<Event> Generator::step() {
  parts_.plan(flight_, ended_, now());
  CHECK(!flight_.plan.empty(), "one request alone always goes on");
  parts_.run(flight_);
  return parts_.land(flight_, now());
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
    if (token < 0 || token >= parts_.executor->vocab()) {
      return error(Code::invalid, "token {} is not one of the model's {}", token, parts_.executor->vocab());
    }
  }
  return {};
}

Result<Generated> Generator::generate(std::span<const Token> prompt, const GenerateOptions& options,
                                      const Listener& listener, const std::function<bool()>& interrupted) {
  TRY_VOID(check(prompt));
  TRY_VOID(check_sampling(options.sampling, parts_.executor->vocab()));
  Scheduler& scheduler = *parts_.scheduler;
  const int32_t room = context() - static_cast<int32_t>(prompt.size());
  const bool fills = scheduler.limits().fills;
  const int32_t usual = fills ? std::min(room, kUsualFill) : room;
  const int32_t most = options.max_tokens < 0 ? usual : std::min(room, options.max_tokens);
  Generated result;
  result.times.prompt_tokens = static_cast<int32_t>(prompt.size());
  result.ending = most == options.max_tokens || most < room ? Ending::length : Ending::context;
  if (most == 0) return result;
  const Metrics before = scheduler.metrics();
  TRY(const RequestId id, scheduler.submit(request_of(prompt, options, most, root_), now()));
  const Result<void> answered = answer(id, options, listener, interrupted, result);
  ended_.push_back(id);
  (void)scheduler.take_records();
  if (!answered.ok()) return answered.error();
  const Metrics& after = scheduler.metrics();
  result.times.passes = after.fill_passes - before.fill_passes;
  result.times.windows = after.draft_windows - before.draft_windows;
  result.times.drafted_tokens = after.drafted_tokens - before.drafted_tokens;
  result.times.accepted_tokens = after.accepted_drafts - before.accepted_drafts;
  return result;
}

Result<void> Generator::answer(RequestId id, const GenerateOptions& options, const Listener& listener,
                               const std::function<bool()>& interrupted, Generated& result) {
  const double begin = now();
  double first = begin;
  std::optional<Error> failed;
  while (!parts_.scheduler->idle()) {
    if (result.times.answer_tokens == 0 && interrupted && interrupted()) {
      failed = error(Code::cancelled, "stopped while reading the prompt");
      parts_.scheduler->cancel(id, now());
      break;
    }
    for (const Event& event : step()) {
      if (event.error) failed = event.error;
      if (!event.token) continue;
      if (result.times.answer_tokens == 0) first = now();
      result.times.reused_tokens = event.cached;
      if (take(event, options, listener, result)) continue;
      if (event.finish == Finish::none) parts_.scheduler->cancel(id, now(), 0);
      break;  // tokens guessed right beyond a stop string are no part of the answer
    }
  }
  if (failed) return *failed;
  result.times.prompt_seconds = first - begin;
  result.times.answer_seconds = now() - first;
  result.times.following_tokens = std::max(0, result.times.answer_tokens - 1);
  return {};
}

// Tells the listener; false if it wants no more.
bool Generator::take(const Event& event, const GenerateOptions& options, const Listener& listener, Generated& result) {
  GeneratedToken token{.id = *event.token, .index = result.times.answer_tokens++};
  if (event.logprobs) token.logprobs = &*event.logprobs;
  token.last = event.finish == Finish::stop;
  const Reply reply = listener(token);
  if (token.last) {
    result.ending = contains(options.stop_tokens, token.id) ? Ending::stop_token : Ending::end_token;
    result.ended_by = token.id;
    return true;
  }
  result.tokens.push_back(token.id);
  if (reply != Reply::more) result.ending = reply == Reply::stop_string ? Ending::stop_string : Ending::stopped;
  return reply == Reply::more;
}

}  // namespace millrace
