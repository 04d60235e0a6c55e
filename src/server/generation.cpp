#include "server/generation.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "server/asked_bound.h"
#include "server/doorbell.h"
#include "session/calls.h"
#include "session/fill_prompt.h"
#include "session/forced_tokens.h"
#include "session/thought_limit.h"

namespace millrace {
namespace {

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The prompt is chosen token for token, of which the model says how likely each was; what follows is free.
void score_prompt(Request& request, int32_t vocab, int top) {
  std::vector<Token> rest(request.prompt.begin() + 1, request.prompt.end());
  request.prompt.resize(1);
  request.max_tokens += static_cast<int>(rest.size());
  if (request.min_tokens > 0) request.min_tokens += static_cast<int>(rest.size());
  request.logprobs = std::max(request.logprobs, top);
  request.constraint = forced_tokens(std::move(rest), vocab);
}

// What is open for long keeps no more than it must: the template has seen the tools, and where calls are JSON nothing
// is looked up in their schemas any more.
void slim_tools(const LoadedModel& model, RequestBody& asked) {
  asked.chat_options.tools = {};
#if MILLRACE_SESSION_TEXT
  if (!asked.tools || model.calls().style == CallFormat::Style::tags) return;
  auto slim = std::make_shared<ToolUse>();
  for (const Tool& tool : asked.tools->tools) slim->tools.push_back({.name = tool.name});
  asked.tools = std::move(slim);
#else
  static_cast<void>(model);
#endif
}

}  // namespace

ApiError prompt_error(const LoadedModel& model, const Error& failure) {
  ApiError told = from_error(failure);
  told.param = "messages";
  const std::string path = model.checkpoint().path().string() + ": ";
  if (told.message.starts_with(path)) told.message.erase(0, path.size());
  return told;
}

Generation::Generation(Setting setting, RequestBody asked)
    : setting_(std::move(setting)),
      asked_(std::move(asked)),
      writer_(*setting_.dialect, *setting_.model->loaded, std::move(setting_.ids)) {
  const bool named = writer_.gives_ids();
  stamp_ = {.chat = asked_.chat,
            .name = named ? fmt::format("{:02x}", fmt::join(writer_.ids().place.name, "")) : fresh_id(""),
            .id = {},
            .created = named ? writer_.ids().place.created : seconds_now(),
            .model = asked_.model.empty() ? setting_.model->name : asked_.model,
            .fingerprint = setting_.model->fingerprint,
            .include_usage = asked_.include_usage,
            .functions = asked_.functions,
            .previous = asked_.previous,
            .keep = std::move(setting_.keep)};
  setting_.dialect->begin(stamp_);
}

void Generation::begin() {
  guarded([this] {
    auto failure = prepare();
    if (failure) return fail(*failure);
    submit();
  });
}

// What is thrown (for want of memory, most likely) ends this request and no other.
void Generation::guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception&) {
    fail(unfinished());
  }
}

Result<std::vector<Token>> Generation::tokens_of_prompt(const Prompt& prompt) const {
  if (asked_.suffix) return fill_prompt(*setting_.model->loaded, std::get<std::string>(prompt), *asked_.suffix);
  if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) return *ids;
  return raw_prompt(*setting_.model->loaded, std::get<std::string>(prompt));
}

std::optional<ApiError> Generation::prepare() {
  const LoadedModel& model = *setting_.model->loaded;
  if (auto failure = check_bytes()) return failure;
  if (auto failure = check_tools()) return failure;
  if (asked_.chat) {
    auto prompt = chat_prompt(model, asked_.messages, asked_.chat_options);
    if (!prompt.ok()) return prompt_error(model, prompt.error());
    parts_.push_back({.tokens = std::move(prompt->tokens), .thinking = prompt->thinking});
  }
  for (const Prompt& prompt : asked_.prompts) {
    auto tokens = tokens_of_prompt(prompt);
    if (!tokens.ok()) return from_error(tokens.error());
    parts_.push_back({.tokens = std::move(*tokens)});
  }
  if (auto failure = check_room()) return failure;

  Request& request = asked_.request;
  if (request.sampling.dry_multiplier > 0) request.sampling.dry_breakers = model.tokens_containing(asked_.dry_breakers);
  auto& ends = asked_.ignore_end ? request.sampling.banned : request.stop_tokens;
  ends.insert(ends.end(), model.end_tokens().begin(), model.end_tokens().end());
  for (Token token : request.stop_tokens)
    if (token >= model.vocab()) return bad_field("stop_token_ids", fmt::format("there is no token {}", token));
  if (auto checked = check_sampling(request.sampling, model.vocab()); !checked.ok()) return from_error(checked.error());
  if (auto failure = bind()) return failure;
  if (auto failure = limit_thinking()) return failure;
  if (auto failure = check_scored()) return failure;
  slim_tools(model, asked_);
  request.tenant = setting_.tenant;
  request.root = setting_.root;

#if MILLRACE_SESSION_TEXT
  asked_.return_ids |= model.tokenizer() == nullptr;
#else
  asked_.return_ids = true;
#endif
  std::shared_ptr<const PredictedText> predicted;
  if (auto failure = read_prediction(predicted)) return failure;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < parts_.size() * static_cast<size_t>(request.choices); ++i) {
    auto choice = Choice::create(model, asked_, parts_[i / static_cast<size_t>(request.choices)].thinking);
    if (!choice.ok()) return from_error(choice.error());
    if (predicted) choice->predict(predicted);
    if (asked_.prompt_logprobs >= 0) choice->score_prompt(parts_[i / static_cast<size_t>(request.choices)].tokens);
    choice->name_calls(fmt::format("{} {}", stamp_.name, i));
    choices_.push_back(std::move(*choice));
  }
  counted_.resize(choices_.size());
  return place_stream();
}

// What the answer follows from beside the weights. A replica with other defaults, another template or another day in it
// would go on with another answer.
std::optional<ApiError> Generation::place_stream() {
  Digest digest;
  auto add = [&](const std::vector<Token>& tokens) {
    digest.add_sized(fmt::format("{}", tokens.size()));
    digest.add(std::as_bytes(std::span(tokens)));
  };
  for (const PromptAnswers& part : parts_) add(part.tokens);
  add(asked_.request.stop_tokens);
  digest.add_sized(fmt::format("{} {}", asked_.request.max_tokens, asked_.request.choices));
  digest.add_sized(to_text(sampling_json(setting_.model->defaults)));
  digest.add_sized(setting_.adapter);
  if (writer_.came_to(mark_of(digest.finish())) && writer_.begin(choices_.size())) return {};
  return ApiError{.status = 409,
                  .message =
                      "this server answers the same body otherwise than the one the stream began at (other "
                      "defaults, context, adapter, template or date): ask anew without Last-Event-ID",
                  .code = "cannot_resume"};
}

// Guesses are made of no more of it than an answer can be.
std::optional<ApiError> Generation::read_prediction(std::shared_ptr<const PredictedText>& out) {
  if (asked_.prediction.empty()) return {};
#if MILLRACE_SESSION_TEXT
  const Tokenizer* tokenizer = setting_.model->loaded->tokenizer();
  if (tokenizer == nullptr) return bad_field("prediction", "no prediction can be read without a tokenizer");
  auto tokens = tokenizer->encode(asked_.prediction);
  if (!tokens.ok()) return bad_field("prediction", tokens.error().message);
  asked_.prediction.clear();
  const auto used = std::min(tokens->size(), static_cast<size_t>(setting_.model->engine->facts().limits.context));
  asked_.request.prediction.assign(tokens->begin(), tokens->begin() + static_cast<ptrdiff_t>(used));
  out = std::make_shared<const PredictedText>(std::move(*tokens));
  return {};
#else
  (void)out;
  return bad_field("prediction", "no prediction can be read without a tokenizer");
#endif
}

bool Generation::must_compile() const {
  if (!binds()) return false;
  const Thinking any[] = {Thinking::closed, Thinking::may, Thinking::open};
  return std::none_of(std::begin(any), std::end(any),
                      [&](Thinking thinking) { return setting_.model->bounds->knows(bound_source(thinking)); });
}

bool Generation::binds() const { return asked_.bound || (asked_.tools && asked_.tools->binds()); }

// What the answer must be: what the client said, or calls of its tools, or either.
GrammarSource Generation::bound_source(Thinking thinking) const {
#if MILLRACE_SESSION_TEXT
  if (asked_.tools) {
    const CallFormat& format = setting_.model->loaded->calls();
    return asked_.bound ? calls_source(format, *asked_.tools, thinking, asked_.bound->source)
                        : calls_source(format, *asked_.tools, thinking);
  }
#endif
  static_cast<void>(thinking);
  return asked_.bound->source;
}

std::optional<ApiError> Generation::bind() {
  if (!binds()) return {};
  const LoadedModel& model = *setting_.model->loaded;
  for (PromptAnswers& part : parts_) {
    BoundOptions options{.continues = asked_.continues()};
    if (!asked_.tools) options.after = open_reasoning(model, part.tokens, part.thinking);  // calls have their own
    const AskedBound asked{bound_source(part.thinking), asked_.tools ? "tools" : asked_.bound->field};
    auto bound = setting_.model->bounds->bind(asked.source, options, setting_.tenant);
    if (!bound.ok()) return bound_error(asked, bound.error());
    part.constraint = std::move(bound->constraint);
    for (const std::string& note : bound->notes) asked_.ignored.insert(fmt::format("{}:{}", asked.field, note));
  }
  if (asked_.bound) asked_.bound->source.text = {};  // compiled; what is open for long keeps no more than it must
  return {};
}

// Around what the answer must be, if it must be anything. A model that does not think keeps to every limit.
std::optional<ApiError> Generation::limit_thinking() {
#if MILLRACE_SESSION_TEXT
  const LoadedModel& model = *setting_.model->loaded;
  if (asked_.think_limit < 0) return {};
  if (!asked_.chat || !model.calls().thinks()) {
    asked_.ignored.insert(asked_.think_field);
    return {};
  }
  for (PromptAnswers& part : parts_) {
    if (part.thinking == Thinking::closed && model.calls().style != CallFormat::Style::channels) continue;  // none
    auto limit = thought_limit(model, part.thinking, asked_.think_limit);
    if (!limit.ok()) return bad_field(asked_.think_field, limit.error().message);
    part.constraint = limit_thoughts(model, std::move(*limit), std::move(part.constraint));
  }
#endif
  return {};
}

// The tokens of a prompt that is scored are chosen one after another, so none of them may end the answer.
std::optional<ApiError> Generation::check_scored() const {
  if (asked_.prompt_logprobs < 0) return {};
  for (const PromptAnswers& part : parts_) {
    if (!part.constraint) continue;
    const std::string_view field = asked_.think_limit >= 0 ? std::string_view(asked_.think_field) : "tools";
    return bad_field("prompt_logprobs",
                     fmt::format("log-probabilities of a prompt are not given together with '{}'", field));
  }
  const auto& ends = asked_.request.stop_tokens;
  for (const PromptAnswers& part : parts_) {
    for (size_t i = 1; i < part.tokens.size(); ++i) {
      if (std::find(ends.begin(), ends.end(), part.tokens[i]) == ends.end()) continue;
      return bad_field(
          asked_.chat ? "messages" : "prompt",
          fmt::format("token {} of the prompt is {}, which ends a text: no log-probabilities are given for "
                      "prompts that have one inside",
                      i, part.tokens[i]));
    }
  }
  return {};
}

// Tools need a template that shows them, and answers that are kept to calls one whose calls are understood.
std::optional<ApiError> Generation::check_tools() const {
#if MILLRACE_SESSION_TEXT
  const LoadedModel& model = *setting_.model->loaded;
  if (asked_.chat_options.tools.empty() || model.tokenizer() == nullptr || model.chat_template() == nullptr) return {};
  const auto abilities = model.chat_template()->abilities(true);
  const std::string_view field = asked_.functions ? "functions" : "tools";
  if (abilities.ok() && !abilities->tools)
    return not_built(field, fmt::format("the chat template of '{}' knows no tools: leave out '{}', or ask a model "
                                        "that has them",
                                        setting_.model->name, field));
  if (model.calls().known() || !asked_.tools || !binds()) return {};
  return bad_field(field,
                   fmt::format("how '{}' writes calls cannot be told from its chat template, so no answer can be "
                               "kept to them: ask with tool_choice auto and tools that are not strict",
                               setting_.model->name));
#else
  return {};
#endif
}

// Texts that cannot fit by far are refused before anybody spends time on cutting them into tokens.
std::optional<ApiError> Generation::check_bytes() const {
  constexpr size_t kTokenBytes = 128;  // longer than tokens are
  const auto most = static_cast<size_t>(setting_.model->engine->facts().limits.context) * kTokenBytes;
  size_t longest = 0;
  for (const Message& message : asked_.messages) longest += message.content.size() + message.reasoning.size();
  for (const Prompt& prompt : asked_.prompts)
    if (const auto* text = std::get_if<std::string>(&prompt)) longest = std::max(longest, text->size());
  const bool predicted = asked_.prediction.size() > most;
  if (longest <= most && !predicted) return {};
  if (predicted) longest = asked_.prediction.size();
  ApiError failure = bad_field(predicted ? "prediction" : asked_.chat ? "messages" : "prompt", "");
  failure.code = "context_length_exceeded";
  failure.message = fmt::format("a text of {} bytes does not fit a context of {} tokens: shorten it", longest,
                                setting_.model->engine->facts().limits.context);
  return failure;
}

// Every prompt with its answer fits the context; an answer without a length gets all that is left.
std::optional<ApiError> Generation::check_room() {
  const int context = setting_.model->engine->facts().limits.context;
  size_t longest = 0;
  for (const PromptAnswers& part : parts_) {
    if (part.tokens.empty())
      return bad_field(asked_.chat ? "messages" : "prompt", "the prompt has no tokens; it needs at least one");
    for (Token token : part.tokens) {
      if (token < setting_.model->loaded->vocab()) continue;
      return bad_field("prompt", fmt::format("the prompt has token {}, but the model knows 0 to {}", token,
                                             setting_.model->loaded->vocab() - 1));
    }
    longest = std::max(longest, part.tokens.size());
  }
  const int64_t room = context - static_cast<int64_t>(longest);
  if (asked_.up_to && room > 0) asked_.max_tokens = static_cast<int>(std::min<int64_t>(asked_.max_tokens, room));
  if (room < std::max(asked_.max_tokens, 1)) {
    ApiError failure = bad_field(asked_.chat ? "messages" : "prompt", "");
    failure.code = "context_length_exceeded";
    failure.message = fmt::format("the context has {} tokens, but the prompt has {}", context, longest);
    if (asked_.max_tokens > 0 && room > 0)
      failure.message += fmt::format(" and {} are to be generated: ask for at most {}", asked_.max_tokens, room);
    else
      failure.message += ", which leaves no room for an answer: shorten it";
    return failure;
  }
  const bool fills = setting_.model->engine->facts().limits.fills;
  const int64_t usual = fills ? std::min<int64_t>(room, kUsualFill) : room;
  asked_.request.max_tokens = asked_.max_tokens > 0 ? asked_.max_tokens : static_cast<int>(usual);
  asked_.request.min_tokens = std::min(asked_.request.min_tokens, asked_.request.max_tokens);
  return {};
}

void Generation::submit() {
#if MILLRACE_SESSION_TEXT
  const Tokenizer* tokenizer = setting_.model->loaded->tokenizer();
  for (size_t i = 0; asked_.echo && tokenizer != nullptr && i < choices_.size(); ++i) {
    const size_t part = i / static_cast<size_t>(asked_.request.choices);
    const auto* text = std::get_if<std::string>(&asked_.prompts[part]);
    choices_[i].put_in_front(text != nullptr ? *text : tokenizer->decode(parts_[part].tokens));
  }
#endif
  std::unique_lock lock(mutex_);
  if (ended_) return;
  if (gone_) return finish(lock, 499, true);
  auto self = shared_from_this();
  for (size_t i = 0; i < parts_.size(); ++i) {
    Request request = asked_.request;
    request.prompt = parts_[i].tokens;
    request.constraint = parts_[i].constraint;
    if (asked_.prompt_logprobs >= 0) score_prompt(request, setting_.model->loaded->vocab(), asked_.prompt_logprobs);
    parts_[i].id = setting_.model->engine->submit(
        std::move(request), [self, i](std::span<const Event> events) { self->hear(i, events); }, true);
  }
  submitted_ = true;
}

// Engine thread. No event at all: the request is in the queue.
void Generation::hear(size_t part, std::span<const Event> events) {
  std::lock_guard lock(inbox_mutex_);
  if (events.empty()) heard_.push_back({part, Event{.choice = -1}});
  for (const Event& event : events) heard_.push_back({part, event});
  if (!std::exchange(scheduled_, true)) setting_.mail->add(shared_from_this());
}

void StepMail::add(std::shared_ptr<Generation> generation) {
  std::lock_guard lock(mutex_);
  heard_.push_back(std::move(generation));
}

void StepMail::send() {
  std::lock_guard lock(mutex_);
  if (heard_.empty()) return;
  workers_.post([heard = std::exchange(heard_, {})]() mutable {
    std::erase_if(heard, [](const std::shared_ptr<Generation>& one) { return !one->work(); });
    const Doorbell::Together once;
    for (const auto& one : heard) one->exchange().ready();
  });
}

bool Generation::work() {
  bool ready = false;
  guarded([&] { ready = read_heard(); });
  return ready;
}

void Generation::take(const Heard& heard) {
  if (heard.event.choice < 0) return;
  const auto index = heard.part * static_cast<size_t>(asked_.request.choices) + static_cast<size_t>(heard.event.choice);
  Choice& choice = choices_[index];
  const bool first = heard.event.token && !first_token_;
  if (first) first_token_ = std::chrono::steady_clock::now();
  const bool open = !choice.done();  // how many events come after a stop string depends on time
  if (choice.take(heard.event)) setting_.model->engine->cancel(parts_[heard.part].id, heard.event.choice);
  if (first) know_prompt();
  if (asked_.stream) writer_.took(stamp_, choices_, index, open);
  if (!choice.error() || failure_) return;
  failure_ = from_error(*choice.error());
  if (const auto why = setting_.model->engine->failing(); why && why->message == choice.error()->message)
    failure_ = engine_fails(*why);
  if (failure_->status == 429) failure_ = come_again(*std::move(failure_), setting_.wait_expected());
}

void Generation::know_prompt() {
  const Usage so_far = usage();
  stamp_.prompt = so_far.prompt;
  stamp_.cached = so_far.cached;
  writer_.found_cached(so_far.cached);
}

bool Generation::read_heard() {
  std::vector<Heard> heard;
  {
    std::lock_guard inbox(inbox_mutex_);
    scheduled_ = false;
    heard.swap(heard_);
  }
  std::unique_lock lock(mutex_);
  if (ended_ || gone_) return false;
  if (writer_.resumed() && !streaming_)
    for (size_t i = 0; i < choices_.size(); ++i) writer_.took(stamp_, choices_, i, false);
  for (const Heard& one : heard) take(one);
  count_tokens();
  if (failure_ && !streaming_) {
    ApiError failure = *failure_;
    lock.unlock();
    fail(failure);
    return false;
  }
  if (asked_.stream) {
    const bool first = !std::exchange(streaming_, true);
    lock.unlock();
    if (first) {
      HttpAnswer head = setting_.dialect->head();
      add_ignored(asked_.ignored, head);
      // Readers that keep the last id take the blank line after a comment for an event.
      if (writer_.gives_ids()) head.idle = ": ping\n";
      setting_.exchange->stream(std::move(head));
    }
    return true;
  }
  if (std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.done(); }))
    answer_whole(lock);
  return false;
}

Usage Generation::usage() const {
  if (total_) return *total_;
  Usage sum;
  if (!submitted_) return sum;
  auto seconds = [this](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(then - made_).count();
  };
  sum.seconds = seconds(std::chrono::steady_clock::now());
  sum.first_seconds = first_token_ ? seconds(*first_token_) : sum.seconds;
  for (const PromptAnswers& part : parts_) sum.prompt += static_cast<int64_t>(part.tokens.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    sum.completion += choices_[i].tokens();
    sum.reasoning += choices_[i].reasoning_tokens();
    if (i % static_cast<size_t>(asked_.request.choices) == 0) sum.cached += choices_[i].cached();
    if (!choices_[i].prediction()) continue;
    sum.accepted += choices_[i].prediction()->accepted();
    sum.rejected += choices_[i].prediction()->rejected();
  }
  if (writer_.resumed()) sum.cached = writer_.ids().place.cached;
  return sum;
}

// Of the answers to each prompt the likeliest, token for token, go to the front; says how many those are.
size_t Generation::keep_likeliest() {
  const auto made = static_cast<size_t>(asked_.request.choices), given = static_cast<size_t>(asked_.given);
  if (given == 0 || given >= made) return choices_.size();
  std::vector<Choice> kept;
  for (size_t first = 0; first < choices_.size(); first += made) {
    auto begin = choices_.begin() + static_cast<ptrdiff_t>(first);
    std::stable_sort(begin, begin + static_cast<ptrdiff_t>(made),
                     [](const Choice& a, const Choice& b) { return a.mean_logprob() > b.mean_logprob(); });
    std::move(begin, begin + static_cast<ptrdiff_t>(given), std::back_inserter(kept));
  }
  std::move(kept.begin(), kept.end(), choices_.begin());
  return kept.size();
}

void Generation::answer_whole(std::unique_lock<std::mutex>& lock) {
  total_ = usage();
  stamp_.prompt = total_->prompt;
  stamp_.cached = total_->cached;
  const size_t given = keep_likeliest();
  HttpAnswer answer =
      setting_.dialect->whole(stamp_, *setting_.model->loaded, std::span(choices_).first(given), *total_);
  add_ignored(asked_.ignored, answer);
  finish(lock, 200, false);
  setting_.exchange->answer(std::move(answer));
}

// What came to the answers since the last time, for the tenant's share.
void Generation::count_tokens() {
  if (!setting_.share) return;
  const auto now = std::chrono::steady_clock::now();
  auto since = [&](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  for (size_t i = 0; i < choices_.size(); ++i) {
    const int count = choices_[i].tokens() - counted_[i];
    const bool first = counted_[i] == 0;
    counted_[i] += count;
    if (count > 0 && !std::exchange(any_token_, true)) {
      const Usage so_far = usage();
      setting_.share->began(std::max<int64_t>(0, so_far.prompt - so_far.cached));
    }
    setting_.share->tokens(count, first, since(first ? made_ : last_count_));
  }
  last_count_ = now;
}

void Generation::fail(const ApiError& failure) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  cancel_parts();
  if (streaming_) {  // the status is sent: the stream ends with the error
    failure_ = failure;
    lock.unlock();
    setting_.exchange->ready();
    return;
  }
  finish(lock, failure.status, false);
  setting_.exchange->answer(setting_.dialect->refuse(failure));
}

Job::Pull Generation::pull(std::string& out) {
  std::unique_lock lock(mutex_);
  if (ended_) return Pull::end;
  if (failure_) {
    setting_.dialect->append_error(out, stamp_, *failure_);
    cancel_parts();
    finish(lock, failure_->status, false);
    return Pull::end;
  }
  if (!writer_.write(out, stamp_, choices_)) return Pull::more;
  writer_.end(out, stamp_, usage());
  finish(lock, 200, false);
  return Pull::end;
}

void Generation::cancel_parts() {
  if (!submitted_) return;
  for (const PromptAnswers& part : parts_) setting_.model->engine->cancel(part.id);
}

void Generation::gone() {
  std::unique_lock lock(mutex_);
  if (ended_ || gone_) return;
  gone_ = true;
  cancel_parts();
  if (submitted_) finish(lock, 499, true);  // else submit() will
}

// Told once, without the lock.
void Generation::finish(std::unique_lock<std::mutex>& lock, int status, bool cancelled) {
  ended_ = true;
  const Ended ended{.status = status, .cancelled = cancelled, .begun = any_token_, .usage = usage()};
  auto tell = std::exchange(setting_.at_end, nullptr);
  lock.unlock();
  if (tell) tell(ended);
}

}  // namespace millrace
