#include "engine/engine.h"

#include <algorithm>

#include "model/adapter.h"

namespace millrace {
namespace {

constexpr size_t kMostRecords = 1 << 16;

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const Model& model, Backend& backend, const EngineOptions& options) {
  TRY(EngineParts parts, EngineParts::create(model, backend, options));
  std::unique_ptr<Engine> engine(new Engine(std::move(parts)));
  for (const AdapterAsk& ask : options.adapters) {
    TRY(const Adapter adapter, read_adapter(ask.path, model.spec()));
    TRY_VOID(engine->install(ask, adapter));
  }
  engine->note_progress();
  if (options.overlap) engine->runner_thread_ = std::thread([e = engine.get()] { e->runner_loop(); });
  engine->thread_ = std::thread([e = engine.get()] { e->loop(); });
  return engine;
}

Engine::Engine(EngineParts parts) : parts_(std::move(parts)), start_(std::chrono::steady_clock::now()) {
  if (parts_.options.tell_cached || parts_.options.tier)
    parts_.cache->tree().keep_chains(parts_.options.tell_cached ? &changes_ : nullptr);
  const Executor::Plan& plan = parts_.executor->planned();
  const double tokens = static_cast<double>(plan.options.pages) * plan.options.page_tokens;
  facts_ = {.limits = parts_.options.limits,
            .pages = plan.options.pages,
            .page_tokens = plan.options.page_tokens,
            .node_tokens = plan.layout.node_tokens,
            .vocab = parts_.executor->vocab(),
            .token_bytes = tokens > 0 ? static_cast<double>(plan.kv_bytes) / tokens : 0,
            .bytes = parts_.executor->model().weight_bytes() + plan.kv_bytes + plan.workspace_bytes +
                     plan.staging_bytes + (parts_.second ? parts_.second->bytes() : 0) + parts_.options.beside_bytes};
}

Engine::~Engine() {
  if (parts_.options.tier) parts_.options.tier->stop();
  writing_.stop();
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      inbox_.stopping = true;
    }
    arrived_.notify_one();
    thread_.join();
  }
  if (runner_thread_.joinable()) {
    {
      std::lock_guard lock(turn_mutex_);
      runner_stops_ = true;
    }
    turn_.notify_all();
    runner_thread_.join();
  }
}

double Engine::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

RequestId Engine::submit(Request request, Listener listener, bool tell_admission) {
  RequestId id = next_id_.fetch_add(1);
  {
    std::lock_guard lock(mutex_);
    inbox_.items.push_back({id, std::move(request), std::move(listener), now(), tell_admission});
  }
  arrived_.notify_one();
  return id;
}

void Engine::cancel(RequestId request, int choice) {
  {
    std::lock_guard lock(mutex_);
    inbox_.items.push_back({request, std::nullopt, nullptr, now(), false, choice});
  }
  arrived_.notify_one();
}

void Engine::loop() { parts_.options.overlap ? run_overlapped() : run_in_turn(); }

void Engine::run_in_turn() {
  Flight flight;
  while (take_inbox(parts_.scheduler->idle())) {
    parts_.plan(flight, ended_, now());
    if (flight.plan.empty()) {
      rest();
      continue;
    }
    run(flight);
    land(flight);
  }
}

void Engine::run_overlapped() {
  Flight flights[2];
  for (int64_t turn = 0; take_inbox(parts_.scheduler->idle() && before_ == nullptr); ++turn) {
    Flight* next = nullptr;
    if (before_ != nullptr && parts_.scheduler->had_better_wait()) {
      await(*before_);
      land(*std::exchange(before_, nullptr));
      if (parts_.scheduler->idle()) continue;
    }
    if (!parts_.scheduler->idle()) {
      parts_.plan(flights[turn % 2], ended_, now());
      if (!flights[turn % 2].plan.empty()) next = &flights[turn % 2];
    }
    if (next != nullptr) queue(*next);  // the runner goes on with it without waiting for this thread
    if (before_ == nullptr && next == nullptr) rest();
    if (before_ != nullptr) {
      await(*before_);
      land(*before_);
    }
    before_ = next;
  }
  if (before_ != nullptr) await(*before_);
}

void Engine::queue(Flight& flight) {
  std::unique_lock lock(turn_mutex_);
  turn_.wait(lock, [&] { return queued_ == nullptr; });
  flight.done = false;
  queued_ = &flight;
  turn_.notify_all();
}

void Engine::await(Flight& flight) {
  std::unique_lock lock(turn_mutex_);
  turn_.wait(lock, [&] { return flight.done; });
}

void Engine::runner_loop() {
  std::unique_lock lock(turn_mutex_);
  for (;;) {
    turn_.wait(lock, [&] { return queued_ != nullptr || runner_stops_; });
    if (queued_ == nullptr) return;
    Flight* flight = std::exchange(queued_, nullptr);
    lock.unlock();
    run(*flight);
    lock.lock();
    flight->done = true;
    turn_.notify_all();
  }
}

void Engine::run(Flight& flight) {
  EngineWatch* const watch = parts_.options.watch;
  if (watch != nullptr) watch->step_begins(flight.launch);
  parts_.run(flight);
  if (watch != nullptr) watch->step_ended(parts_.executor->counters().failed);
}

// Nothing could be planned though somebody waits: the clock or a new arrival must change that, not this thread.
void Engine::rest() {
  std::unique_lock lock(mutex_);
  if (inbox_.items.empty() && !inbox_.stopping) arrived_.wait_for(lock, std::chrono::milliseconds(1));
}

bool Engine::take_inbox(bool wait) {
  EngineWatch* const watch = parts_.options.watch;
  if (watch != nullptr) watch->awake();
  std::vector<Inbox::Item> items;
  {
    std::unique_lock lock(mutex_);
    if (wait && inbox_.items.empty() && !inbox_.stopping) {
      busy_seconds_ += busy_since_ > 0 ? now() - busy_since_ : 0;
      busy_since_ = 0;
      // Waking now and then shows that the engine is alive though nobody wants anything.
      while (inbox_.items.empty() && !inbox_.stopping) {
        shown_.last_progress = now();
        if (parts_.options.tier) shown_.tier = parts_.options.tier->counters();  // it goes on between requests
        if (watch != nullptr) {
          watch->awake();
          watch->shown(shown_);
        }
        if (pages_wanted_.exchange(false)) pages_shown_ = page_states(*parts_.cache);
        arrived_.wait_for(lock, std::chrono::milliseconds(500));
      }
    }
    if (inbox_.stopping) return false;
    items.swap(inbox_.items);
  }
  if (busy_since_ == 0) busy_since_ = now();
  for (Inbox::Item& item : items) {
    if (!item.change) {
      admit(item);
      continue;
    }
    settle();
    if (watch != nullptr) watch->change_begins();
    item.change();
    if (watch != nullptr) watch->change_ended();
  }
  clear_places();
  tell_changes();
  if (told_ && !items.empty()) told_();
  return true;
}

void Engine::drop(const Inbox::Item& item) {
  if (held_.erase(item.id) > 0) return;
  auto found = ids_.find(item.id);
  if (found == ids_.end()) return;
  RequestId inside = found->second;
  const bool any = parts_.scheduler->cancel(inside, now(), item.choice);
  {
    std::lock_guard lock(mutex_);  // perhaps no step comes that would show it
    shown_.metrics = parts_.scheduler->metrics();
    if (parts_.options.watch != nullptr) parts_.options.watch->shown(shown_);
  }
  if (item.choice >= 0 && (!any || --open_[inside].unfinished > 0)) return;
  leave(open_[inside].adapter);
  open_.erase(inside);
  ids_.erase(found);
  ended_.push_back(inside);
}

void Engine::admit(Inbox::Item& item) {
  if (!item.request) return drop(item);
  if (ask_tier(item)) return;
  int choices = item.request->choices, adapter = -1;
  for (const Resumed& before : item.request->resumed) choices -= before.finished;
  auto vocab = parts_.executor->vocab();
  auto outside = std::find_if(item.request->prompt.begin(), item.request->prompt.end(),
                              [&](Token token) { return token < 0 || token >= vocab; });
  Result<RequestId> submitted = RequestId{0};
  std::shared_ptr<const Request> offers;
  if (outside != item.request->prompt.end()) {
    submitted = error(Code::invalid, "the prompt has token {}, but the model knows 0 to {}", *outside, vocab - 1);
  } else if (auto checked = check_sampling(item.request->sampling, vocab); !checked.ok()) {
    submitted = checked.error();
  } else if (auto chosen = choose_adapter(*item.request); !chosen.ok()) {
    submitted = chosen.error();
  } else {
    adapter = item.request->adapter_place;
    if (parts_.options.tier) {
      auto prompt = std::make_shared<Request>();
      prompt->prompt = item.request->prompt;
      prompt->root = item.request->root;
      offers = std::move(prompt);
    }
    submitted = parts_.scheduler->submit(std::move(*item.request), item.arrived);
  }
  if (!submitted.ok()) {
    Event refusal = {.request = item.id, .finish = Finish::failed, .error = submitted.error()};
    item.listener({&refusal, 1});
    return;
  }
  if (item.tell_admission) item.listener({});
  open_[*submitted] = {item.id, std::move(item.listener), choices, adapter, std::move(offers)};
  if (adapter >= 0) ++users_[adapter];
  ids_[item.id] = *submitted;
}

void Engine::land(Flight& flight) {
  running_seconds_ += flight.sampled.seconds;
  std::vector<Event> events = parts_.land(flight, now());
  note_progress();  // first, so that whoever hears of an end finds it counted
  tell_changes();   // before whoever is answered can ask what is cached now
  tell(events);
  if (told_) told_();
}

// Each request hears of its events in one call.
void Engine::tell(std::span<const Event> events) {
  std::map<RequestId, std::vector<Event>> by_request;
  for (const Event& event : events) by_request[event.request].push_back(event);
  for (auto& [inside, list] : by_request) {
    auto found = open_.find(inside);
    if (found == open_.end()) continue;
    Open& open = found->second;
    for (Event& event : list) {
      event.request = open.id;
      if (event.finish != Finish::none) --open.unfinished;
    }
    if (open.unfinished > 0) {
      open.listener(list);
      continue;
    }
    Listener listener = std::move(open.listener);
    if (open.offers) offer(*open.offers);
    leave(open.adapter);
    ids_.erase(open.id);
    open_.erase(found);
    ended_.push_back(inside);
    listener(list);
  }
}

void Engine::note_progress() {
  std::vector<RequestRecord> ended = parts_.scheduler->take_records();
  double time = now();
  std::vector<PageState> pages;
  if (pages_wanted_.exchange(false)) pages = page_states(*parts_.cache);
  std::lock_guard lock(mutex_);
  if (!pages.empty()) pages_shown_ = std::move(pages);
  shown_.metrics = parts_.scheduler->metrics();
  if (parts_.options.tier) shown_.tier = parts_.options.tier->counters();
  shown_.last_progress = time;
  shown_.outside_seconds = busy_seconds_ + (busy_since_ > 0 ? time - busy_since_ : 0) - running_seconds_;
  shown_.pages = parts_.options.executor.pages;
  shown_.swap_bytes = parts_.second ? parts_.second->bytes() : 0;
  if (parts_.options.watch != nullptr) parts_.options.watch->shown(shown_);
  // Whoever wants records fetches them in time; nobody may make them grow without end.
  if (records_.size() > kMostRecords) records_.erase(records_.begin(), records_.begin() + kMostRecords / 2);
  records_.insert(records_.end(), ended.begin(), ended.end());
}

Engine::Snapshot Engine::snapshot() const {
  std::lock_guard lock(mutex_);
  Snapshot copy = shown_;
  copy.now = now();
  return copy;
}

std::vector<PageState> Engine::watch_pages() {
  pages_wanted_.store(true);
  std::lock_guard lock(mutex_);
  return pages_shown_;
}

std::vector<RequestRecord> Engine::take_records() {
  std::lock_guard lock(mutex_);
  return std::exchange(records_, {});
}

}  // namespace millrace
