#include "server/service.h"

#include <malloc.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cmath>

#include "server/chosen_adapter.h"
#include "server/resume.h"
#include "server/shelf.h"

namespace millrace {
namespace {

// The name in a Host header, without the port; empty if it is none.
std::string_view host_name(std::string_view host) {
  if (!host.starts_with('[')) return host.substr(0, host.find(':'));
  const size_t end = host.find(']');
  return end == std::string_view::npos ? std::string_view() : host.substr(0, end + 1);
}

bool same_text(std::string_view a, std::string_view b) {
  auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return small(x) == small(y); });
}

// As it may stand in a line of a log: no control characters, no quotes, not too long.
std::string plain_word(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) out += c > ' ' && c < 0x7F && c != '"' ? c : '?';
  return out;
}

// A line of a log for programs. What clients wrote is in it only where it is short and plain.
std::string log_json(const HttpRequest& request, int status, double seconds, const Usage& usage,
                     std::string_view tenant) {
  JsonObject line = {{"method", plain_word(request.method)},
                     {"path", plain_word(request.path)},
                     {"status", status},
                     {"ms", std::round(seconds * 1e6) / 1e3},
                     {"request_id", request.trace.id}};
  if (!request.trace.trace.empty()) {
    line["trace_id"] = request.trace.trace;
    line["parent_id"] = request.trace.parent;
    line["sampled"] = request.trace.sampled;
  }
  if (!tenant.empty()) line["tenant"] = tenant;
  if (usage.completion > 0) {
    line["prompt_tokens"] = usage.prompt;
    line["completion_tokens"] = usage.completion;
    line["cached_tokens"] = usage.cached;
  }
  return to_text(line);
}

HttpAnswer file_answer(const StaticFile& file, const HttpRequest& request) {
  HttpAnswer answer{.content_type = std::string(file.content_type), .fixed = file.bytes};
  if (!file.encoding.empty()) answer.headers.emplace_back("Content-Encoding", file.encoding);
  if (!file.tag.empty()) {
    const std::string tag = fmt::format("\"{}\"", file.tag);
    answer.headers.emplace_back("ETag", tag);
    if (request.header("if-none-match") == tag) {
      answer.status = 304;
      answer.fixed = {};
    }
  }
  answer.headers.emplace_back("Cache-Control", "no-cache");
  answer.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
      "font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'");
  return answer;
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      wide_(options_.wide ? options_.wide : std::make_shared<ServerWide>()),
      stream_workers_(1, "stream-text"),
      compile_workers_(1, "compile-bounds"),
      prepare_workers_(options_.prepare_threads, "prepare-text") {
  if (!options_.stored) options_.stored = std::make_shared<StoredAnswers>();
  if (options_.secret) {
    secret_ = *options_.secret;
  } else {
    CHECK(RAND_bytes(secret_.data(), static_cast<int>(secret_.size())) == 1, "no random numbers");
  }
}

// Everything that is open ends first, so that no worker needs the engine any more; what the engine still says goes to
// workers that have stopped.
Service::~Service() {
  controls_.stop();
  fail_all("the server is shutting down");
  if (options_.shelf != nullptr) options_.shelf->close();
  prepare_workers_.stop();
  compile_workers_.stop();
  fail_all("the server is shutting down");
  stream_workers_.stop();
  for (const auto& model : models_) model->engine.reset();
  models_.clear();
}

double Service::now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Service::serve(ServedModel model) {
  auto fresh = std::make_shared<ServedModel>(std::move(model));
  if (!fresh->bounds) fresh->bounds = std::make_shared<Bounds>(*fresh->loaded);
  const auto before = this->model();
  const bool known = before != nullptr && before->engine == fresh->engine;
  if (fresh->engine && !known) fresh->engine->when_told([this] { mail_.send(); });
  {
    std::lock_guard lock(model_mutex_);
    models_.push_back(std::move(fresh));
  }
  clear_retired();
}

std::shared_ptr<const ServedModel> Service::model() const {
  std::lock_guard lock(model_mutex_);
  return models_.empty() ? nullptr : models_.back();
}

int Service::retired() {
  clear_retired();
  std::lock_guard lock(model_mutex_);
  return std::max(0, static_cast<int>(models_.size()) - 1);
}

// Nobody gets a model that is not the last any more, so one that only this list has is gone for good. Not on a thread
// of an engine, which would wait for itself.
void Service::clear_retired() {
  std::vector<std::shared_ptr<ServedModel>> gone;
  std::lock_guard lock(model_mutex_);
  for (size_t i = 0; i + 1 < models_.size();) {
    if (models_[i].use_count() > 1) {
      ++i;
      continue;
    }
    gone.push_back(std::move(models_[i]));
    models_.erase(models_.begin() + static_cast<ptrdiff_t>(i));
  }
}

int Service::generations() {
  std::lock_guard lock(mutex_);
  return static_cast<int>(generations_.size());
}

void Service::fail_open(const ApiError& failure, const ServedModel* only) {
  std::set<std::shared_ptr<Generation>> open;
  {
    std::lock_guard lock(mutex_);
    open = generations_;
  }
  for (const auto& generation : open)
    if (only == nullptr || generation->model() == only) generation->fail(failure);
}

JsonArray Service::open_requests(const std::string* tenant) {
  constexpr size_t kMost = 100;
  JsonArray list;
  std::lock_guard lock(mutex_);
  for (const auto& [number, one] : requests_) {
    if (tenant != nullptr && one.tenant != *tenant) continue;
    if (list.size() == kMost) break;
    JsonObject json = {{"id", one.trace.id}, {"path", one.path}, {"seconds", now() - one.began}};
    if (!one.trace.trace.empty()) json["trace_id"] = one.trace.trace;
    if (tenant == nullptr && !one.tenant.empty()) json["tenant"] = one.tenant;
    list.push_back(std::move(json));
  }
  return list;
}

void Service::tidy() {
  prepare_workers_.post([] { ::malloc_trim(0); });
}

Metrics Service::metrics() const {
  const auto served = model();
  return served == nullptr || served->engine == nullptr ? Metrics() : served->engine->snapshot().metrics;
}

void Service::drain() {
  draining_.store(true);
  if (options_.shelf != nullptr) options_.shelf->drain();
}

int Service::open() const { return open_here() + (options_.shelf != nullptr ? options_.shelf->open() : 0); }

void Service::fail_all(std::string_view why) {
  draining_.store(true);
  controls_.stop();
  const ApiError ending{.status = 503, .message = std::string(why), .type = "server_error", .code = "shutting_down"};
  std::set<std::shared_ptr<Generation>> open;
  {
    std::lock_guard lock(mutex_);
    ending_ = ending;
    open = generations_;
  }
  for (const auto& generation : open) generation->fail(ending);
  if (options_.shelf != nullptr) options_.shelf->fail_all(why);
}

// A page of somebody else, open in a browser on this machine, must not reach us: neither under a name of its own that
// points here (the Host is checked) nor by posting across (the Origin is).
std::optional<ApiError> Service::check_origin(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  if (!options_.hosts.empty() && !request.local) {
    const std::string_view name = host_name(host);
    const bool known = std::any_of(options_.hosts.begin(), options_.hosts.end(),
                                   [&](const std::string& allowed) { return same_text(allowed, name); });
    if (!known)
      return ApiError{.status = 421,
                      .message = "this server does not answer to that host name; see --allowed-host",
                      .code = "unknown_host"};
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || request.method == "GET" || request.method == "HEAD") return {};
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || !same_text(origin.substr(scheme + 3), host))
    return ApiError{
        .status = 403, .message = "requests from pages of other origins are refused", .code = "cross_origin"};
  return {};
}

std::optional<ApiError> Service::check_key(const HttpRequest& request, Access access, Visitor& visitor) const {
  if (options_.keys.empty() || access == Access::anybody) return {};
  if (access == Access::metrics && options_.open_metrics) return {};
  const Keys::Entry* entry = options_.keys.find(request.header("authorization"));
  if (const std::string_view bare = request.header("x-api-key"); entry == nullptr && !bare.empty())
    entry = options_.keys.find(fmt::format("Bearer {}", bare));  // as Anthropic's clients give it
  if (entry == nullptr)
    return ApiError{.status = 401,
                    .message = "a valid key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
                    .type = "authentication_error",
                    .code = "invalid_api_key"};
  visitor = {entry->name, entry->limits, options_.keys.oversees(*entry)};
  return {};
}

std::optional<ApiError> Service::check_ready() const {
  if (draining_.load())
    return ApiError{.status = 503,
                    .message = "the server is shutting down",
                    .type = "server_error",
                    .code = "shutting_down",
                    .retry_after = 5};
  if (model() == nullptr)
    return ApiError{.status = 503,
                    .message = "the model is being loaded",
                    .type = "server_error",
                    .code = "model_loading",
                    .retry_after = 2};
  return {};
}

std::optional<ApiError> Service::check_engine() const {
  const auto served = model();
  const auto why = served && served->engine ? served->engine->failing() : std::nullopt;
  return why ? std::optional(engine_fails(*why)) : std::nullopt;
}

std::optional<ApiError> Service::check_writes() const {
  if (auto failure = check_ready()) return failure;
  const auto served = model();
  if (served->engine != nullptr) return {};
  return ApiError{.message = fmt::format("the model '{}' gives vectors or scores and writes no text; /v1/embeddings, "
                                         "/v1/rerank and /score are answered",
                                         served->name),
                  .code = "unsupported"};
}

// Those waiting, each as long as requests took of late, over the places there are.
double Service::wait_expected() const {
  const auto served = model();
  if (served == nullptr || served->engine == nullptr) return 1;
  const EngineSnapshot snapshot = served->engine->snapshot();
  const Metrics& m = snapshot.metrics;
  const double service = std::max(0.0, m.end_to_end.mean() - m.queue.mean());
  const int places = std::max(1, served->engine->facts().limits.max_sequences);
  return std::max(1.0, (m.waiting + 1) * service / places);
}

void Service::log_request(const HttpRequest& request, int status, double seconds, const Usage& usage,
                          std::string_view tenant) const {
  if (!options_.log) return;
  if (options_.json_log) return options_.log(log_json(request, status, seconds, usage, tenant));
  std::string line =
      fmt::format("{} {} {} {:.1f} ms", plain_word(request.method), plain_word(request.path), status, seconds * 1000);
  if (usage.completion > 0)
    line += fmt::format(", {} + {} tokens, {} cached", usage.prompt, usage.completion, usage.cached);
  options_.log(line);
}

ApiError Service::too_much() const {
  return come_again(
      {.status = 429, .message = "too many requests wait to be read", .type = "rate_limit_error", .code = "overloaded"},
      wait_expected());
}

void Service::prepare(std::function<HttpAnswer()> task, std::shared_ptr<Exchange> exchange) {
  work([task = std::move(task), exchange] { exchange->answer(task()); }, exchange);
}

void Service::work(std::function<void()> task, std::shared_ptr<Exchange> exchange) {
  if (prepare_workers_.waiting() >= options_.most_preparing) return exchange->answer(error_answer(too_much()));
  prepare_workers_.post([task = std::move(task), exchange = std::move(exchange)] {
    try {
      task();
    } catch (const std::exception&) {
      exchange->answer(error_answer(unfinished()));
    }
  });
}

const StaticFile* Service::find_file(const HttpRequest& request) const {
  if (request.method != "GET" && request.method != "HEAD") return nullptr;
  const std::string_view path = request.path == "/" ? "/index.html" : std::string_view(request.path);
  for (const StaticFile& file : options_.files)
    if (file.path == path) return &file;
  return nullptr;
}

Service::Admitted Service::admit(const HttpRequest& request) const {
  Admitted admitted;
  admitted.refused = check_origin(request);
  if (admitted.refused || find_file(request) != nullptr) return admitted;
  FoundRoute& found = admitted.found;
  found = find_route(request.method, request.path);
  admitted.refused = check_key(request, found.route != nullptr ? found.route->access : Access::key, admitted.visitor);
  if (admitted.refused || found.route != nullptr) return admitted;
  admitted.refused = ApiError{.status = found.other_method ? 405 : 404, .code = "not_found"};
  admitted.refused->message = found.other_method ? "this path does not take that method" : "there is no such path";
  return admitted;
}

std::optional<HttpAnswer> Service::deny(const HttpRequest& head) { return denial(head, admit(head)); }

std::optional<HttpAnswer> Service::denial(const HttpRequest& head, const Admitted& admitted) {
  if (!admitted.refused) return {};
  wide_->counters.requests.fetch_add(1);
  log_request(head, admitted.refused->status, 0, {});
  return admitted.found.route != nullptr ? admitted.found.route->refuse(*admitted.refused)
                                         : error_answer(*admitted.refused);
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (options_.shelf == nullptr) return handle_here(std::move(request), std::move(exchange));
  if (auto denied = deny(request)) return exchange->answer(std::move(*denied));
  if (const auto pass = options_.shelf->pass(request, exchange)) handle_here(std::move(request), std::move(exchange));
}

void Service::handle_here(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  Admitted admitted = admit(request);
  if (auto denied = denial(request, admitted)) return exchange->answer(std::move(*denied));
  wide_->counters.requests.fetch_add(1);
  if (const StaticFile* file = find_file(request)) return exchange->answer(file_answer(*file, request));
  admitted.found.route->handler(*this, {.request = std::move(request),
                                        .exchange = std::move(exchange),
                                        .visitor = std::move(admitted.visitor),
                                        .argument = std::move(admitted.found.argument)});
}

ApiError Service::no_such_model(std::string_view name) {
  return {.status = 404,
          .message = fmt::format("there is no model '{}'; /v1/models lists what there is", shortened(name)),
          .param = "model",
          .code = "model_not_found"};
}

std::shared_ptr<Share> Service::share_of(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  auto& share = shares_[tenant];
  if (share == nullptr) share = std::make_shared<Share>();
  return share;
}

std::optional<ApiError> Service::enter(Call& call, std::shared_ptr<HttpRequest>& request, std::shared_ptr<Share>& share,
                                       AtEnd& at_end) {
  const double began = now();
  const Visitor& visitor = call.visitor;
  share = options_.keys.empty() ? nullptr : share_of(visitor.tenant);
  auto failure = prepare_workers_.waiting() >= options_.most_preparing
                     ? std::optional(too_much())
                     : wide_->limiter.enter(visitor.tenant, visitor.limits, began);
  if (failure) {
    if (share) share->refused();
    return failure;
  }
  open_.fetch_add(1);
  if (share) share->opened();
  request = std::make_shared<HttpRequest>(std::move(call.request));
  int64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = next_request_++;
    requests_[number] = {request->trace, visitor.tenant, request->path, began};
  }
  at_end = [this, visitor, request, share, began, number](const Ended& ended) {
    {
      std::lock_guard lock(mutex_);
      requests_.erase(number);
    }
    const double seconds = now() - began;
    wide_->limiter.leave(visitor.tenant, visitor.limits, ended.usage.prompt + ended.usage.completion, now());
    if (share)
      share->ended({.begun = ended.begun,
                    .cancelled = ended.cancelled,
                    .failed = ended.status >= 400,
                    .seconds = seconds,
                    .prompt = ended.usage.prompt,
                    .completion = ended.usage.completion,
                    .cached = ended.usage.cached});
    if (ended.cancelled) wide_->counters.disconnects.fetch_add(1);
    log_request(*request, ended.status, seconds, ended.usage, visitor.tenant);
    open_.fetch_sub(1);
  };
  return {};
}

void Service::generate(const Dialect& dialect, Call call) {
  std::shared_ptr<HttpRequest> request;
  std::shared_ptr<Share> share;
  AtEnd at_end;
  auto failure = check_writes();
  if (!failure) failure = check_engine();
  if (!failure) failure = enter(call, request, share, at_end);
  if (failure) return call.exchange->answer(dialect.refuse(*failure));
  prepare_workers_.post([this, opening = Opening{&dialect, request, call.exchange, call.visitor, share, at_end}] {
    open_generation(opening);
  });
}

void Service::embed(ReadEmbedWork read, Call call, HttpAnswer (*refuse)(const ApiError&)) {
  std::shared_ptr<HttpRequest> request;
  std::shared_ptr<Share> share;
  AtEnd at_end;
  auto failure = check_ready();
  if (const auto served = model(); !failure && served->embeds == nullptr) {
    failure = ApiError{.message = fmt::format("the model '{}' writes text; for vectors and scores serve an embedding "
                                              "model or a reranker",
                                              served->name),
                       .code = "unsupported"};
  }
  if (!failure) failure = enter(call, request, share, at_end);
  if (failure) return call.exchange->answer(refuse(*failure));
  prepare_workers_.post([this, read, refuse, request, exchange = call.exchange, at_end] {
    std::optional<ApiError> wrong;
    try {
      wrong = start_work(read, *request, exchange, at_end, refuse);
    } catch (const std::exception&) {
      wrong = unfinished();
    }
    if (!wrong) return;
    at_end({.status = wrong->status});
    exchange->answer(refuse(*wrong));
  });
}

// On a worker. Only if nothing is wrong is it the queue that says when it ends.
std::optional<ApiError> Service::start_work(ReadEmbedWork read, const HttpRequest& request,
                                            const std::shared_ptr<Exchange>& exchange, const AtEnd& at_end,
                                            HttpAnswer (*refuse)(const ApiError&)) {
  const auto there = model();
  const ServedModel& served = *there;
  EmbedWork work;
  const EmbedSetting setting = {&served.embeds->embedder(), served.name, options_.body};
  if (auto failure = read(setting, request, work)) return failure;
  if (!work.model.empty() && work.model != served.name) return no_such_model(work.model);
  auto done = [exchange, at_end, refuse, tokens = work.tokens, headers = std::move(work.headers),
               answer = std::move(work.answer)](EmbedQueue::Rows rows) {
    HttpAnswer given;
    if (rows.ok()) {
      given.body = answer(std::move(*rows));
      given.headers = headers;
    } else {
      given = refuse(from_error(rows.error()));
    }
    Ended ended = {.status = given.status, .begun = rows.ok()};
    ended.usage.prompt = static_cast<int>(tokens);
    at_end(ended);
    exchange->answer(std::move(given));
  };
  if (!served.embeds->post({std::move(work.inputs), std::move(done)})) return too_much();
  return {};
}

// On a worker.
void Service::open_generation(const Opening& opening) {
  // Whoever comes while the server stands still waits.
  if (!controls_.enter([this, opening] { prepare_workers_.post([this, opening] { open_generation(opening); }); }))
    return;
  open_one(opening);
  controls_.leave();
}

void Service::open_one(const Opening& opening) {
  std::shared_ptr<Generation> generation;
  std::optional<ApiError> failure;
  try {
    failure = make_generation(opening, generation);
  } catch (const std::exception&) {
    failure = unfinished();
  }
  if (failure) {
    opening.at_end({.status = failure->status});
    return opening.exchange->answer(opening.dialect->refuse(*failure));
  }
  if (generation == nullptr) return;  // it is answered
  opening.exchange->attach(generation);
  if (!generation->must_compile()) return begin(generation);
  if (compile_workers_.waiting() >= options_.most_preparing) return generation->fail(too_much());
  compile_workers_.post([this, generation] { begin(generation); });
}

void Service::begin(const std::shared_ptr<Generation>& generation) {
  if (auto ending = told_to_end()) return generation->fail(*ending);
  generation->begin();
}

// Reads the body and makes what answers it, if anything is asked for. Only then is it the generation that says when it
// ends.
std::optional<ApiError> Service::make_generation(const Opening& opening, std::shared_ptr<Generation>& generation) {
  const auto served = model();
  HttpRequest& request = *opening.request;
  RequestBody asked;
  if (auto failure = opening.dialect->read(request, options_.body, served->defaults, asked)) return failure;
  if (auto failure = stored().go_on(opening.visitor.tenant, asked)) return failure;
  std::optional<StreamWriter::Ids> ids;
  std::optional<std::span<const uint8_t, 32>> shared;
  if (options_.secret) shared = *options_.secret;
  const SealKey seal = seal_key(shared, opening.visitor.tenant);
  if (auto failure = read_resume(request, *opening.dialect, *served, seal, asked, ids)) return failure;
  request.body = {};  // read; what is open for long keeps no more than it must
  request.charge.reset();
  std::string adapter;
  if (auto failure = choose_adapter(*served, asked, adapter)) return failure;
  if (auto answer = opening.dialect->at_once(asked, served->name)) {
    add_ignored(asked.ignored, *answer);
    opening.at_end({});
    opening.exchange->answer(std::move(*answer));
    return {};
  }
  Generation::Setting setting{.model = served,
                              .dialect = opening.dialect,
                              .mail = &mail_,
                              .exchange = opening.exchange,
                              .share = opening.share};
  // Without keys people are told apart by what they say; with keys, nobody gets more by using more names.
  setting.tenant = options_.keys.empty() ? asked.user : opening.visitor.tenant;
  const std::string rule = served->loaded != nullptr ? served->loaded->model().spec().keep.name() : std::string();
  setting.root = root_key(secret_, {.model = served->identity,
                                    .tenant = opening.visitor.tenant,
                                    .salt = asked.salt,
                                    .adapter = adapter,
                                    .rule = rule});
  setting.adapter = adapter;
  if (ids && ids->resumed) wide_->counters.resumed.fetch_add(1);
  setting.ids = std::move(ids);
  setting.wait_expected = [this] { return wait_expected(); };
  if (asked.keep && stored().keeps()) setting.keep = keeper(asked, opening.visitor.tenant);
  auto holder = std::make_shared<std::weak_ptr<Generation>>();
  setting.at_end = [this, at_end = opening.at_end, holder](const Ended& ended) {
    {
      std::lock_guard lock(mutex_);
      generations_.erase(holder->lock());
    }
    at_end(ended);
  };
  generation = std::make_shared<Generation>(std::move(setting), std::move(asked));
  *holder = generation;
  std::lock_guard lock(mutex_);
  generations_.insert(generation);
  return {};
}

// What keeps the answer with the conversation it is to.
std::function<void(const std::string&, std::string, Message)> Service::keeper(const RequestBody& asked,
                                                                              const std::string& tenant) {
  return
      [this, tenant, before = StoredAnswers::kept_of(asked)](const std::string& id, std::string body, Message answer) {
        std::vector<Message> all = before;
        all.push_back(std::move(answer));
        stored().put(tenant, id, {std::move(all), std::move(body)});
      };
}

std::optional<ApiError> Service::told_to_end() {
  std::lock_guard lock(mutex_);
  return ending_;
}

}  // namespace millrace
