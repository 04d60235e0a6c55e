#include "process/engine_child.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "engine/runner.h"
#include "process/passed_files.h"
#include "process/spare.h"

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLeastAllowed = 17 * kSecond / 10;  // so that a hang is found within two seconds
// Before steps were measured: of those that compute nothing, and of any.
constexpr int64_t kUntriedLeast = 15 * kSecond, kUntriedMost = 120 * kSecond;
constexpr double kTimesExpected = 20;

#ifdef MILLRACE_PLANTED_CRASH
// A mistake that tests of the server need: a step that computes a certain token of a prompt ends the process.
void crash_if_planted(const Launch& launch) {
  const char* const token = std::getenv("MILLRACE_PLANTED_TOKEN");
  if (token == nullptr) return;
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    const std::vector<Token>& prompt = item.asked->prompt;
    for (int at = item.begin; at < std::min<int>(item.begin + item.count, static_cast<int>(prompt.size())); ++at)
      if (prompt[static_cast<size_t>(at)] == std::atoi(token)) ::raise(SIGSEGV);
  }
}
#else
void crash_if_planted(const Launch& /*launch*/) {}
#endif

// Signs of life into the shared page.
class PageWatch : public EngineWatch {
 public:
  explicit PageWatch(SharedPage& page) : page_(page) {}
  void awake() override { page_.awake.store(shared_now()); }
  void step_begins(const Launch& launch) override {
    const size_t count = std::min(launch.used, SharedPage::kMostIds);
    for (size_t i = 0; i < count; ++i) page_.ids[i].store(launch.items[i].asked->outer, std::memory_order_relaxed);
    page_.ids_count.store(static_cast<int64_t>(count));
    const auto expected = static_cast<int64_t>(launch.expected * kTimesExpected * static_cast<double>(kSecond));
    int64_t tokens = 0;
    for (size_t i = 0; i < launch.used; ++i) tokens += launch.items[i].count;
    page_.step_allowed.store(expected > 0 ? std::max(kLeastAllowed, expected)
                                          : allowed_untried(parameters_.load(), tokens));
    page_.step_began.store(shared_now());
    crash_if_planted(launch);
  }
  // A machine apart that has failed once does not recover within a process.
  void step_ended(int64_t failed) override {
    if (failed > 0) ::_exit(1);
    awake();
    page_.step_began.store(0);
  }
  // A step of nobody, as far as the server sees.
  void change_begins() override {
    page_.ids_count.store(0);
    page_.step_allowed.store(kUntriedMost);
    page_.step_began.store(shared_now());
  }
  void change_ended() override {
    awake();
    page_.step_began.store(0);
  }
  void shown(const EngineSnapshot& snapshot) override { page_.show(snapshot); }
  void know(int64_t parameters) { parameters_ = parameters; }

 private:
  SharedPage& page_;
  std::atomic<int64_t> parameters_{0};
};

class Child {
 public:
  explicit Child(int socket) : socket_(socket) {}
  ~Child() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    to_bind_.notify_all();
    if (binder_.joinable()) binder_.join();
  }

  void send(const Frame& frame) {
    std::lock_guard lock(sending_);
    out_.clear();
    append_frame(frame, out_);
    for (std::string_view left = out_; !left.empty();) {
      const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return;  // the server is gone; reading notices
      left.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // Until the server is gone.
  Result<void> serve(EngineOfProcess& made) {
    made_ = &made;
    made.engine->when_told([this] { tell(); });
    made.engine->when_cached([this](std::vector<CacheChange> changes) { send(ChangesFrame{std::move(changes)}); });
    FrameBuffer arrived;
    std::array<char, 1 << 16> room;
    for (;;) {
      const ssize_t count = ::recv(socket_, room.data(), room.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return {};
      arrived.add({room.data(), static_cast<size_t>(count)});
      for (;;) {
        TRY(auto bytes, arrived.next());
        if (!bytes) break;
        TRY(Frame frame, read_frame(*bytes));
        TRY_VOID(take(std::move(frame)));
      }
    }
  }

 private:
  Result<void> take(Frame frame) {
    if (auto* submit = std::get_if<SubmitFrame>(&frame)) {
      this->submit(std::move(*submit));
    } else if (const auto* cancel = std::get_if<CancelFrame>(&frame)) {
      std::lock_guard lock(mutex_);
      if (auto waiting = cancelled_.find(cancel->id); waiting != cancelled_.end())
        waiting->second.push_back(cancel->choice);
      else
        this->cancel(cancel->id, cancel->choice);
    } else if (std::holds_alternative<WatchFrame>(frame)) {
      send(PagesFrame{made_->engine->watch_pages()});
    } else if (auto* load = std::get_if<LoadAdapterFrame>(&frame)) {
      await_binder();
      made_->engine->load_adapter(std::move(load->ask), [this, ticket = load->ticket](Result<AdapterInfo> loaded) {
        AdapterFrame answer{.ticket = ticket};
        if (loaded.ok()) {
          answer.info = std::move(*loaded);
        } else {
          answer.error = loaded.error();
        }
        send(answer);
      });
    } else if (auto* unload = std::get_if<UnloadAdapterFrame>(&frame)) {
      await_binder();
      made_->engine->unload_adapter(std::move(unload->name), [this, ticket = unload->ticket](Result<void> unloaded) {
        AdapterFrame answer{.ticket = ticket};
        if (!unloaded.ok()) answer.error = unloaded.error();
        send(answer);
      });
    } else if (const auto* save = std::get_if<SaveCacheFrame>(&frame)) {
      int file = -1;
      TRY_VOID(receive_files(kEngineFiles, {&file, 1}, false));
      made_->engine->save_cache(file, [this, file, ticket = save->ticket](Result<CacheFileSummary> saved) {
        ::close(file);
        tell_cache(ticket, saved);
      });
    } else if (const auto* reset = std::get_if<ResetCacheFrame>(&frame)) {
      made_->engine->reset_cache(
          [this, ticket = reset->ticket](Result<CacheFileSummary> gone) { tell_cache(ticket, gone); });
    } else {
      return error(Code::corrupt, "a frame of kind {} is not for an engine", frame.index());
    }
    return {};
  }

  // Requests that came before an adapter is changed find those that were there when they came.
  void await_binder() {
    std::unique_lock lock(mutex_);
    bound_.wait(lock, [this] { return cancelled_.empty(); });
  }

  void tell_cache(int64_t ticket, const Result<CacheFileSummary>& result) {
    CacheFrame answer{.ticket = ticket};
    if (result.ok()) {
      answer.summary = *result;
    } else {
      answer.error = result.error();
    }
    send(answer);
  }

  // With the lock held.
  void cancel(RequestId id, int choice) {
    auto found = ids_.find(id);
    if (found == ids_.end()) return;
    made_->engine->cancel(found->second.id, choice);
    if (choice < 0 || --found->second.unfinished == 0) ids_.erase(found);
  }

  void submit(SubmitFrame frame) {
    frame.request.outer = frame.id;
    std::unique_lock lock(mutex_);
    const bool begun = !frame.request.resumed.empty();
    if (frame.constraint.empty()) {
      // Who has not begun takes no place from who has, and was only longer in coming.
      if (!begun) bound_.wait(lock, [this] { return begun_unbound_ == 0; });
      return enter(std::move(frame));
    }
    // Compiling may take long: nobody else waits for it.
    begun_unbound_ += begun;
    cancelled_[frame.id];
    unbound_.push_back(std::move(frame));
    if (!binder_.joinable()) binder_ = std::thread([this] { bind_all(); });
    to_bind_.notify_one();
  }

  // Binder thread: constraints of requests, one after another.
  void bind_all() {
    for (std::unique_lock lock(mutex_);;) {
      to_bind_.wait(lock, [this] { return stopping_ || !unbound_.empty(); });
      if (stopping_) return;
      SubmitFrame frame = std::move(unbound_.front());
      unbound_.pop_front();
      lock.unlock();
      auto constraint = made_->constraint(frame.constraint, frame.request.tenant);
      if (!constraint.ok()) {
        Event refusal = {.request = frame.id, .finish = Finish::failed, .error = constraint.error()};
        send(EventsFrame{.events = {refusal}});
      }
      lock.lock();
      begun_unbound_ -= !frame.request.resumed.empty();
      const std::vector<int> cancelled = std::move(cancelled_.at(frame.id));
      cancelled_.erase(frame.id);
      if (constraint.ok()) {
        const RequestId id = frame.id;
        frame.request.constraint = std::move(*constraint);
        enter(std::move(frame));
        for (int choice : cancelled) cancel(id, choice);
      }
      bound_.notify_all();
    }
  }

  // With the lock held: the engine may tell of it before submit() has returned, and who cancels must find it from then
  // on.
  void enter(SubmitFrame frame) {
    const RequestId id = frame.id;
    int unfinished = frame.request.choices;
    for (const Resumed& before : frame.request.resumed) unfinished -= before.finished;
    ids_[id] = {.unfinished = unfinished,
                .id = made_->engine->submit(
                    std::move(frame.request), [this, id](std::span<const Event> events) { hear(id, events); },
                    frame.tell_admission)};
  }

  // Engine thread.
  void hear(RequestId id, std::span<const Event> events) {
    if (events.empty()) step_.admitted.push_back(id);
    int ended = 0;
    for (const Event& event : events) {
      step_.events.push_back(event);
      step_.events.back().request = id;
      ended += event.finish != Finish::none;
    }
    if (ended == 0) return;
    std::lock_guard lock(mutex_);
    auto found = ids_.find(id);
    if (found != ids_.end() && (found->second.unfinished -= ended) <= 0) ids_.erase(found);
  }
  void tell() {
    if (step_.admitted.empty() && step_.events.empty()) return;
    send(step_);
    step_ = {};
  }

  const int socket_;
  EngineOfProcess* made_ = nullptr;
  std::mutex sending_, mutex_;
  std::string out_;
  struct Known {
    int unfinished = 0;
    RequestId id = 0;  // as the engine knows it
  };
  std::map<RequestId, Known> ids_;   // by what the server calls them; guarded by mutex_, as all up to the thread
  std::deque<SubmitFrame> unbound_;  // their constraints are still to be made
  int begun_unbound_ = 0;            // of them, and of the one that is being made, those that go on
  std::map<RequestId, std::vector<int>> cancelled_;  // choices cancelled meanwhile
  std::condition_variable to_bind_, bound_;
  bool stopping_ = false;
  std::thread binder_;
  EventsFrame step_;  // engine thread
};

}  // namespace

int64_t allowed_untried(int64_t parameters, int64_t tokens) {
  if (parameters <= 0) return kUntriedMost;
  // Two operations a parameter and token, each a nanosecond.
  const double operations = 2.0 * static_cast<double>(parameters) * static_cast<double>(std::max<int64_t>(tokens, 1));
  return kUntriedLeast + static_cast<int64_t>(std::min(operations, static_cast<double>(kUntriedMost - kUntriedLeast)));
}

Result<void> run_engine_child(const std::function<Result<bool>()>& load,
                              const std::function<Result<EngineOfProcess>(EngineWatch& watch)>& make) {
  const Result<bool> loaded = load();
  if (!loaded.ok()) {
    tell_engine_failed(loaded.error());
    return loaded.error();
  }
  if (*loaded) leave_spare();
  TRY(SharedPageFile shared, SharedPageFile::open(kEngineSharedFile));
  PageWatch watch(shared.page());
  Child child(kEngineSocket);
  auto made = make(watch);
  if (!made.ok()) {
    child.send(FailedFrame{made.error()});
    return made.error();
  }
  watch.know(made->parameters);
  child.send(ReadyFrame{made->engine->facts(), made->pages, made->tokens, made->weights, made->kv,
                        made->engine->adapters(), made->files});
  Result<void> served = child.serve(*made);
  // Nobody is left to tell anything: neither what is open nor memory needs to be put in order.
  if (served.ok()) ::_exit(0);
  return served;
}

void tell_engine_failed(const Error& why) { Child(kEngineSocket).send(FailedFrame{why}); }

}  // namespace millrace
