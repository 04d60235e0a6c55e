#include "server/shelf.h"

#include <algorithm>
#include <future>
#include <thread>

#include "base/human.h"
#include "server/route.h"

namespace millrace {
namespace {

constexpr auto kLook = std::chrono::milliseconds(10);

double since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

ApiError shutting_down(std::string_view why) {
  return {.status = 503, .message = std::string(why), .type = "server_error", .code = "shutting_down"};
}

// What an engine has taken, or about what a model's file comes to.
int64_t bytes_of(const ServedModel& served, int64_t file) {
  return served.engine != nullptr ? served.engine->facts().bytes : file + file / 4;
}

// Controls have a thread of their own; ours waits.
template <class Ask>
Result<void> awaited(Ask ask) {
  auto promise = std::make_shared<std::promise<Result<std::string>>>();
  auto future = promise->get_future();
  ask([promise](Result<std::string> said) { promise->set_value(std::move(said)); });
  TRY_VOID(future.get());
  return {};
}

// "owner/name:latest" is "owner/name", as Ollama's clients write it.
std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return name;
}

}  // namespace

std::string_view state_name(ModelState state) {
  switch (state) {
    case ModelState::cold:
      return "unloaded";
    case ModelState::loading:
      return "loading";
    case ModelState::awake:
      return "loaded";
    case ModelState::asleep:
      return "sleeping";
  }
  return "";
}

Shelf::Shelf(ShelfOptions options) : options_(std::move(options)) {
  auto add = [&](const ShelfModel& model) {
    items_.push_back(std::make_unique<Item>());
    items_.back()->model = model;
  };
  add(options_.first);
  for (const ShelfModel& model : options_.others) add(model);
  items_.front()->state = ModelState::loading;
  items_.front()->begun = Clock::now();
}

Shelf::~Shelf() { close(); }

void Shelf::set_first(Service& first) {
  std::lock_guard lock(mutex_);
  items_.front()->service = &first;
}

void Shelf::first_loaded() {
  std::lock_guard lock(mutex_);
  Item& item = *items_.front();
  item.awake_bytes = bytes_of(*item.service->model(), item.model.bytes);
  item.state = ModelState::awake;
  item.used = Clock::now();
}

// The one that is named, or whose adapter is; null: the first.
Shelf::Item* Shelf::find(const HttpRequest& request) {
  const std::string typed = named_model(request);
  const std::string_view name = without_latest(typed);
  if (name.empty()) return nullptr;
  for (const auto& item : items_)
    if (item->model.name == name || item->model.name == typed) return item.get();
  for (const auto& item : items_) {
    const auto served = item->service != nullptr ? item->service->model() : nullptr;
    if (served == nullptr || served->engine == nullptr) continue;
    for (const AdapterInfo& adapter : served->engine->adapters())
      if (adapter.name == typed) return item.get();
  }
  return nullptr;
}

// Seconds until it answers.
double Shelf::expected(const Item& item) const {
  const double whole = item.seconds > 0 ? item.seconds : 0.2 + static_cast<double>(item.model.bytes) / rate_;
  const bool begun = item.state == ModelState::loading;
  return std::max(1.0, begun ? whole - since(item.begun) : whole);
}

void Shelf::answer(const HttpRequest& request, Exchange& exchange, const ApiError& failure) const {
  const FoundRoute found = find_route(request.method, request.path);
  exchange.answer(found.route != nullptr ? found.route->refuse(failure) : error_answer(failure));
}

std::optional<Shelf::Pass> Shelf::pass(HttpRequest& request, std::shared_ptr<Exchange>& exchange) {
  std::unique_lock lock(mutex_);
  Item* found = find(request);
  Item& item = found != nullptr ? *found : *items_.front();
  const bool first = &item == items_.front().get();
  // What is asked about the server, and the first model until it is there, is the first service's own business.
  if (first && (request.method != "POST" || item.state == ModelState::awake || item.awake_bytes == 0)) {
    if (request.method == "POST") item.used = Clock::now();
    return Pass(&item.coming);
  }
  if (item.state == ModelState::awake) {
    item.used = Clock::now();
    const Pass held(&item.coming);
    lock.unlock();
    item.service->handle_here(std::move(request), std::move(exchange));
    return {};
  }
  std::optional<ApiError> failure;
  if (stopping_) {
    failure = shutting_down("the server is shutting down");
  } else {
    if (item.state != ModelState::loading) begin(item);
    const double seconds = expected(item);
    if (seconds > options_.patience || item.waiting.size() >= options_.most_waiting)
      failure = come_again({.status = 503,
                            .message = fmt::format("the model '{}' is being loaded", item.model.name),
                            .type = "server_error",
                            .code = "model_loading"},
                           seconds);
  }
  if (!failure) {
    item.waiting.push_back({std::move(request), std::move(exchange)});
    return {};
  }
  lock.unlock();
  answer(request, *exchange, *failure);
  return {};
}

// Locked.
void Shelf::begin(Item& item) {
  item.state = ModelState::loading;
  item.begun = Clock::now();
  worker_.post([this, &item] { bring(item); });
}

int64_t Shelf::room_beside(const Item& item) const {
  int64_t room = options_.memory;
  for (const auto& other : items_)
    if (other.get() != &item && other->state == ModelState::awake) room -= other->awake_bytes;
  return room;
}

int64_t Shelf::need_of(const Item& item) const {
  return item.awake_bytes > 0 ? item.awake_bytes : item.model.bytes + item.model.bytes / 4;
}

int Shelf::awake_beside(const Item& item) const {
  return static_cast<int>(std::ranges::count_if(
      items_, [&](const auto& other) { return other.get() != &item && other->state == ModelState::awake; }));
}

// The one longest unused of those that nobody waits for and that can sleep. Locked.
Shelf::Item* Shelf::idle_one(const Item& except) {
  Item* oldest = nullptr;
  for (const auto& item : items_) {
    if (item.get() == &except || item->state != ModelState::awake || item->coming > 0) continue;
    const auto served = item->service->model();
    if (item->service->open_here() > 0 || served == nullptr || served->engine == nullptr) continue;
    if (oldest == nullptr || item->used < oldest->used) oldest = item.get();
  }
  return oldest;
}

Result<void> Shelf::put_to_sleep(Item& item) {
  auto slept =
      awaited([&](Controls::Done done) { item.service->controls().sleep(OpenAnswers::wait, std::move(done)); });
  if (slept.ok() && options_.log) options_.log(fmt::format("model   {} sleeps", item.model.name));
  return slept;
}

// Others go to sleep until there is memory for this one. While all are in use, it waits.
Result<void> Shelf::make_room(Item& item) {
  const Clock::time_point began = Clock::now();
  for (;;) {
    if (stopping_) return error(Code::cancelled, "the server is shutting down");
    Item* idle = nullptr;
    {
      std::lock_guard lock(mutex_);
      const int64_t room = room_beside(item);
      const bool few = options_.most_awake == 0 || awake_beside(item) < options_.most_awake;
      if (few && room >= need_of(item)) return {};
      idle = idle_one(item);
      if (idle != nullptr)
        idle->state = ModelState::asleep;
      else if (few && awake_beside(item) == 0)
        return error(Code::no_memory, "{} are needed and {} are there",
                     brief_bytes(static_cast<uint64_t>(need_of(item))), brief_bytes(static_cast<uint64_t>(room)));
    }
    if (idle == nullptr) {
      if (since(began) > options_.patience) return error(Code::overloaded, "all models that are loaded are in use");
      std::this_thread::sleep_for(kLook);
      continue;
    }
    auto slept = put_to_sleep(*idle);
    std::lock_guard lock(mutex_);
    if (!slept.ok()) {
      idle->state = ModelState::awake;
      return slept;
    }
    if (!idle->waiting.empty()) begin(*idle);  // somebody came while it lay down
  }
}

Result<void> Shelf::load(Item& item, int64_t room) {
  TRY(ServedModel served, options_.load(item.model.name, room));
  auto own = std::make_unique<Service>(options_.service());
  own->serve(std::move(served));
  std::lock_guard lock(mutex_);
  item.own = std::move(own);
  item.service = item.own.get();
  return {};
}

Result<void> Shelf::load_or_wake(Item& item) {
  for (;;) {
    TRY_VOID(make_room(item));
    if (item.service != nullptr)
      return awaited([&](Controls::Done done) { item.service->controls().wake_up(std::move(done)); });
    int64_t room = 0;
    {
      std::lock_guard lock(mutex_);
      room = room_beside(item);
    }
    auto loaded = load(item, room);
    if (loaded.ok() || loaded.error().code != Code::no_memory) return loaded;
    // It needs more than its file told.
    std::lock_guard lock(mutex_);
    if (awake_beside(item) == 0) return loaded;
    item.awake_bytes = room + 1;
  }
}

void Shelf::bring(Item& item) {
  const Clock::time_point began = Clock::now();
  Result<void> brought;
  try {
    brought = load_or_wake(item);
  } catch (const std::exception& thrown) {
    brought = error(Code::internal, "{}", thrown.what());
  }
  {
    std::lock_guard lock(mutex_);
    if (brought.ok()) {
      item.seconds = since(began);
      if (item.model.bytes > 0) rate_ = static_cast<double>(item.model.bytes) / std::max(item.seconds, 1e-3);
      item.awake_bytes = bytes_of(*item.service->model(), item.model.bytes);
      item.used = Clock::now();
    } else if (item.service == nullptr) {
      item.awake_bytes = 0;
    }
  }
  if (options_.log)
    options_.log(brought.ok() ? fmt::format("model   {} is loaded, {:.2f} s", item.model.name, since(began))
                              : fmt::format("model   {}: {}", item.model.name, brought.error().message));
  release(item, brought);
}

// Those who waited get their model, or hear why there is none.
void Shelf::release(Item& item, const Result<void>& brought) {
  ApiError failure;
  if (!brought.ok()) {
    const bool memory = brought.error().code == Code::no_memory;
    failure = {.status = 503,
               .message = fmt::format("the model '{}' cannot be loaded now: {}", item.model.name,
                                      memory ? "there is not enough memory for it" : "see the server's log"),
               .type = "server_error",
               .code = "model_unavailable",
               .retry_after = 10};
  }
  for (;;) {
    std::unique_lock lock(mutex_);
    if (item.waiting.empty()) {
      item.state = brought.ok() ? ModelState::awake : item.service != nullptr ? ModelState::asleep : ModelState::cold;
      return;
    }
    Waiting one = std::move(item.waiting.front());
    item.waiting.pop_front();
    lock.unlock();
    if (brought.ok())
      item.service->handle_here(std::move(one.request), std::move(one.exchange));
    else
      answer(one.request, *one.exchange, failure);
  }
}

std::vector<Shelf::Listed> Shelf::list() {
  std::vector<Listed> all;
  std::lock_guard lock(mutex_);
  for (const auto& item : items_) {
    all.push_back(
        {.name = item->model.name, .state = item->state, .bytes = item->model.bytes, .service = item->service});
    if (item->service != nullptr) all.back().served = item->service->model();
  }
  return all;
}

std::vector<Shelf::Listed> models_of(Service& service) {
  if (service.options().shelf != nullptr) return service.options().shelf->list();
  const auto served = service.model();
  return {{.name = served != nullptr ? served->name : "",
           .state = served != nullptr ? ModelState::awake : ModelState::loading,
           .served = served,
           .service = &service}};
}

int Shelf::open() {
  std::lock_guard lock(mutex_);
  int open = 0;
  for (const auto& item : items_) {
    open += static_cast<int>(item->waiting.size());
    if (item->own != nullptr) open += item->own->open_here();
  }
  return open;
}

void Shelf::drain() {
  std::lock_guard lock(mutex_);
  for (const auto& item : items_)
    if (item->own != nullptr) item->own->drain();
}

void Shelf::fail_all(std::string_view why) {
  stopping_ = true;
  std::vector<Service*> services;
  std::deque<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    for (const auto& item : items_) {
      if (item->own != nullptr) services.push_back(item->own.get());
      std::ranges::move(item->waiting, std::back_inserter(waiting));
      item->waiting.clear();
    }
  }
  for (Service* each : services) each->fail_all(why);
  for (const Waiting& one : waiting) answer(one.request, *one.exchange, shutting_down(why));
}

void Shelf::close() {
  fail_all("the server is shutting down");
  worker_.stop();
  fail_all("the server is shutting down");
  for (const auto& item : items_) item->own.reset();
}

}  // namespace millrace
