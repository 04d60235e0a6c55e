#include "server/controls.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "server/service.h"

namespace millrace {
namespace {

constexpr auto kLook = std::chrono::milliseconds(2);

ApiError aborted(std::string_view why) {
  return {.status = 503, .message = std::string(why), .type = "server_error", .code = "aborted", .retry_after = 1};
}

template <class Ask>
auto awaited(Ask ask) {
  using Value = typename Ask::Value;
  auto promise = std::make_shared<std::promise<Value>>();
  auto future = promise->get_future();
  ask.start([promise](Value value) { promise->set_value(std::move(value)); });
  return future.get();
}

struct LoadAdapter {
  using Value = Result<AdapterInfo>;
  EnginePort& engine;
  AdapterAsk ask;
  void start(std::function<void(Value)> done) { engine.load_adapter(std::move(ask), std::move(done)); }
};
struct UnloadAdapter {
  using Value = Result<void>;
  EnginePort& engine;
  std::string name;
  void start(std::function<void(Value)> done) { engine.unload_adapter(std::move(name), std::move(done)); }
};
struct ResetCache {
  using Value = Result<CacheFileSummary>;
  EnginePort& engine;
  void start(std::function<void(Value)> done) { engine.reset_cache(std::move(done)); }
};

// The new engine gets the adapters the old one has now, not those the server was started with.
Result<void> carry_adapters(const EnginePort& from, EnginePort& to) {
  auto same = [](const AdapterInfo& a, const AdapterInfo& b) { return a.name == b.name && a.content == b.content; };
  const std::vector<AdapterInfo> wanted = from.adapters(), there = to.adapters();
  for (const AdapterInfo& one : there) {
    if (std::ranges::any_of(wanted, [&](const AdapterInfo& other) { return same(one, other); })) continue;
    TRY_VOID(awaited(UnloadAdapter{to, one.name}));
  }
  for (const AdapterInfo& one : wanted) {
    if (std::ranges::any_of(there, [&](const AdapterInfo& other) { return same(one, other); })) continue;
    TRY(const AdapterInfo loaded, awaited(LoadAdapter{to, {one.name, one.path, one.strength, one.content}}));
    static_cast<void>(loaded);
  }
  return {};
}

}  // namespace

bool Controls::enter(std::function<void()> later) {
  std::lock_guard lock(mutex_);
  if ((paused_ || sleeping_ || changing_) && !stopping_) {
    parked_.push_back(std::move(later));
    return false;
  }
  entering_.fetch_add(1);
  return true;
}

void Controls::leave() { entering_.fetch_sub(1); }

void Controls::release() {
  std::deque<std::function<void()>> freed;
  {
    std::lock_guard lock(mutex_);
    if ((paused_ || sleeping_ || changing_) && !stopping_) return;
    freed.swap(parked_);
  }
  for (const auto& later : freed) later();
}

void Controls::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  release();
}

void Controls::post(std::function<Result<std::string>()> task, Done done) {
  worker_.post([task = std::move(task), done = std::move(done)] { done(task()); });
}

bool Controls::quiet() const { return entering_.load() == 0 && service_.generations() == 0; }

Result<void> Controls::wait_for(const std::function<bool()>& so) const {
  while (!so()) {
    if (stopping_) return error(Code::cancelled, "the server is shutting down");
    std::this_thread::sleep_for(kLook);
  }
  return {};
}

// Those that came before are in the list once nobody is on his way into it.
Result<void> Controls::settle(const ServedModel& model, OpenAnswers open) {
  TRY_VOID(wait_for([this] { return entering_.load() == 0; }));
  if (open == OpenAnswers::keep) return model.engine->pause();
  if (open == OpenAnswers::abort) service_.fail_open(aborted("an operator has ended this answer"), nullptr);
  return wait_for([this] { return quiet(); });
}

Result<std::string> Controls::rest(OpenAnswers open, bool clear) {
  const auto model = service_.model();
  if (sleeping_) return error(Code::invalid, "the model sleeps; /wake_up ends that");
  {
    std::lock_guard lock(mutex_);
    if (paused_) return std::string("paused");
    paused_ = true;
  }
  auto settled = settle(*model, open);
  if (settled.ok() && clear && open != OpenAnswers::keep)
    if (auto reset = awaited(ResetCache{*model->engine}); !reset.ok()) settled = reset.error();
  if (settled.ok()) return std::string("paused");
  model->engine->go_on();
  paused_ = false;
  release();
  return settled.error();
}

void Controls::pause(OpenAnswers open, bool clear, Done done) {
  post([this, open, clear] { return rest(open, clear); }, std::move(done));
}

void Controls::resume(Done done) {
  post(
      [this]() -> Result<std::string> {
        if (sleeping_) return error(Code::invalid, "the model sleeps; /wake_up ends that");
        service_.model()->engine->go_on();
        paused_ = false;
        release();
        return std::string("resumed");
      },
      std::move(done));
}

Result<std::string> Controls::lie_down(OpenAnswers open) {
  const auto model = service_.model();
  {
    std::lock_guard lock(mutex_);
    sleeping_ = true;
  }
  auto asleep = settle(*model, open);
  if (asleep.ok()) asleep = model->engine->sleep();
  if (asleep.ok()) return std::string("asleep");
  if (!paused_) model->engine->go_on();
  sleeping_ = false;
  release();
  return asleep.error();
}

void Controls::sleep(OpenAnswers open, Done done) {
  post([this, open] { return lie_down(open); }, std::move(done));
}

void Controls::wake_up(Done done) {
  post(
      [this]() -> Result<std::string> {
        const auto model = service_.model();
        if (!sleeping_) return std::string("awake");
        model->engine->go_on();
        std::optional<Error> failing;
        TRY_VOID(wait_for([&] {
          failing = model->engine->failing();
          return failing || model->engine->snapshot().present;
        }));
        if (paused_ && !failing) TRY_VOID(model->engine->pause());
        sleeping_ = false;
        release();
        if (failing) return *failing;  // requests are refused with it
        return std::string("awake");
      },
      std::move(done));
}

Result<void> Controls::load_beside(const ServedModel& old, const std::string& path, ServedModel& fresh) const {
  TRY(fresh, service_.options().load(path, old));
  fresh.name = old.name;
  return carry_adapters(*old.engine, *fresh.engine);
}

// Both are there, or the old one sleeps.
Result<std::string> Controls::take_over(const std::shared_ptr<const ServedModel>& old, ServedModel fresh,
                                        OpenAnswers open) {
  std::string said = fmt::format("the weights are {} now", fresh.fingerprint);
  if (open == OpenAnswers::keep) {
    TRY_VOID(old->engine->become(fresh.engine));
    fresh.engine = old->engine;
    service_.serve(std::move(fresh));
    if (!paused_) old->engine->go_on();
    return said;
  }
  service_.serve(std::move(fresh));
  if (open == OpenAnswers::abort) service_.fail_open(aborted("the weights have changed"), old.get());
  return said;
}

Result<std::string> Controls::change(const std::string& path, const std::string& version, OpenAnswers open) {
  const auto old = service_.model();
  if (sleeping_) return error(Code::invalid, "the model sleeps; /wake_up first");
  if (paused_) open = OpenAnswers::keep;  // whoever stands still goes on with the new weights
  const bool beside = service_.options().fits_beside(*old);
  if (!beside) {
    {
      std::lock_guard lock(mutex_);
      changing_ = true;
    }
    auto settled = settle(*old, open);
    if (settled.ok()) settled = old->engine->sleep();
    if (!settled.ok()) {
      if (!paused_) old->engine->go_on();
      changing_ = false;
      release();
      return settled.error();
    }
  }
  ServedModel fresh;
  Result<std::string> done = std::string();
  if (auto loaded = load_beside(*old, path, fresh); loaded.ok()) {
    fresh.version = version;
    done = take_over(old, std::move(fresh), open);
  } else {
    done = loaded.error();
  }
  if (!done.ok() && !beside) {
    old->engine->go_on();
    if (paused_) static_cast<void>(old->engine->pause());
  }
  changing_ = false;
  release();
  return done;
}

void Controls::update(std::string path, std::string version, OpenAnswers open, Done done) {
  post(
      [this, path = std::move(path), version = std::move(version), open]() -> Result<std::string> {
        TRY(std::string said, change(path, version, open));
        if (open == OpenAnswers::keep || paused_) return said;
        // Only when the last answer of the old weights has ended is their memory free for another change.
        TRY_VOID(wait_for([this] { return service_.retired() == 0; }));
        return said;
      },
      std::move(done));
}

}  // namespace millrace
