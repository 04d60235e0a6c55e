#include "process/remote_engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kLookMilliseconds = 100;
constexpr int64_t kLook = int64_t{kLookMilliseconds} * 1'000'000;
constexpr int kStillLooks = 17;      // without a sign of life between steps: two seconds with what looking takes
constexpr int kDeathsTogether = 2;   // in a row; after so many a request is tried alone
constexpr int kDeathsAlone = 3;      // after so many, the last of them alone, it is refused;
constexpr int kDeathsOutside = 10;   // after so many if that last one came from outside
constexpr int kFailedStarts = 3;     // for the model's files; after so many requests are refused
constexpr double kLongestPause = 5;  // seconds before a process is started again
constexpr int64_t kLeastLoad = 60 * kSecond, kTimesFirstLoad = 10;  // what a later start may take

// Somebody killed it, or the system did, or one of the ranks it stands for (mpirun says so by its code). A request
// can hardly be the reason.
bool killed(int status) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
         (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
}

}  // namespace

Result<std::unique_ptr<RemoteEngine>> RemoteEngine::start(EngineCommand command, const std::function<bool()>& go_on,
                                                          Log log) {
  std::unique_ptr<RemoteEngine> engine(new RemoteEngine(std::move(command), std::move(log)));
  engine->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (engine->wake_ < 0) return error(Code::io, "no event for the engine: {}", std::strerror(errno));
  engine->epoch_ = shared_now();
  if (engine->command_.spare) adopt_orphans();
  TRY(Spawned first, engine->spawn(false));
  engine->install(std::move(first));
  TRY_VOID(engine->await_ready(go_on));
  engine->thread_ = std::thread([e = engine.get()] { e->loop(); });
  return engine;
}

RemoteEngine::~RemoteEngine() {
  stop_thread();
  end_process(SIGKILL);
  spare_.end();
  if (wake_ >= 0) ::close(wake_);
}

void RemoteEngine::wake() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof(one)));
}

// ---- any thread ----

RequestId RemoteEngine::submit(Request request, Listener listener, bool tell_admission) {
  RequestId id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_id_++;
    Open& open = open_[id];
    const auto choices = static_cast<size_t>(std::max(1, request.choices));
    open.told.resize(choices);
    open.cached.assign(choices, -1);
    open.unfinished = static_cast<int>(choices);
    open.adapter = adapter_named(request.adapter);
    open.request = std::move(request);
    open.listener = std::move(listener);
    open.tell_admission = tell_admission;
    if (process_.ready && !paused_ && alone_.empty()) send_request(id, open);
  }
  wake();
  return id;
}

void RemoteEngine::cancel(RequestId request, int choice) {
  {
    std::lock_guard lock(mutex_);
    auto found = open_.find(request);
    if (found == open_.end()) return;
    Open& open = found->second;
    if (open.sent && process_.ready) append_frame(CancelFrame{on_wire(request, open), choice}, out_);
    bool ends = choice < 0;
    if (choice >= 0 && choice < std::ssize(open.told)) {
      Resumed& told = open.told[static_cast<size_t>(choice)];
      if (!std::exchange(told.finished, true)) --open.unfinished;
      ends = open.unfinished == 0;
    }
    if (ends) {
      open_.erase(found);
      if (!alone_.empty() && alone_.front() == request) send_next_alone();
    }
  }
  wake();
}

EngineSnapshot RemoteEngine::snapshot() const {
  std::lock_guard lock(mutex_);
  return figures();
}

// In the time of the first process.
EngineSnapshot RemoteEngine::figures() const {
  const SharedPage::Figures seen = shared_.page().seen();
  EngineSnapshot snapshot = seen.snapshot;
  const auto seconds = [&](int64_t from, int64_t to) { return static_cast<double>(to - from) / 1e9; };
  const int64_t now = shared_now();
  // `at` is when the engine's own clock was at last_progress or a little later.
  snapshot.now = seconds(epoch_, now);
  snapshot.last_progress = seconds(epoch_, process_.ready ? std::max(seen.at, process_.ready_at) : gone_since_);
  snapshot.metrics.carry(before_);
  snapshot.process = process_.id;
  snapshot.restarts = restarts_;
  snapshot.present = process_.ready;
  snapshot.paused = paused_;
  snapshot.asleep = asleep_;
  if (asleep_) snapshot.last_progress = snapshot.now;  // it is as it should be
  if (seen.at == 0) snapshot.pages = first_.facts.pages;
  return snapshot;
}

std::optional<Error> RemoteEngine::failing() const {
  std::lock_guard lock(mutex_);
  return given_up_;
}

std::vector<PageState> RemoteEngine::watch_pages() {
  std::vector<PageState> pages;
  {
    std::lock_guard lock(mutex_);
    if (process_.ready) append_frame(WatchFrame(), out_);
    pages = pages_;
  }
  wake();
  return pages;
}

// ---- the thread ----

void RemoteEngine::loop() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    turn();
  }
}

// Waits until there is something to send, to read or to look after, and does it.
void RemoteEngine::turn() {
  std::array<pollfd, 2> files = {pollfd{.fd = wake_, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = -1, .events = POLLIN, .revents = 0}};
  int pause = kLookMilliseconds;
  {
    std::lock_guard lock(mutex_);
    files[1].fd = process_.socket;
    if (!out_.empty()) files[1].events |= POLLOUT;
    if (process_.id == 0 && !for_good_ && !asleep_)
      pause = static_cast<int>(std::clamp<int64_t>((try_at_ - shared_now()) / 1'000'000, 0, kLookMilliseconds));
  }
  ::poll(files.data(), files.size(), pause);
  uint64_t count = 0;
  static_cast<void>(!::read(wake_, &count, sizeof(count)));
  become_next();
  send_queued();
  const bool there = files[1].fd < 0 || read_arrived();
  if (!there) {
    bury(await_end());
  } else {
    check_alive();
  }
  revive();
  refuse_late();
}

void RemoteEngine::send_queued() {
  std::lock_guard lock(mutex_);
  while (!out_.empty() && process_.socket >= 0) {
    const ssize_t sent = ::send(process_.socket, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // full, or gone, which reading notices
    out_.erase(0, static_cast<size_t>(sent));
  }
}

// False: the process is gone, or says what makes no sense.
bool RemoteEngine::read_arrived() {
  std::array<char, 1 << 16> room;
  for (;;) {
    const ssize_t count = ::recv(process_.socket, room.data(), room.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    process_.arrived.add({room.data(), static_cast<size_t>(count)});
    for (;;) {
      auto bytes = process_.arrived.next();
      if (bytes.ok() && !*bytes) break;
      auto frame = bytes.ok() ? read_frame(**bytes) : Result<Frame>(bytes.error());
      bool good = frame.ok();
      if (good) {
        if (auto* events = std::get_if<EventsFrame>(&*frame)) {
          take(std::move(*events));
        } else if (auto* pages = std::get_if<PagesFrame>(&*frame)) {
          std::lock_guard lock(mutex_);
          pages_ = std::move(pages->pages);
        } else if (auto* cached = std::get_if<ChangesFrame>(&*frame)) {
          if (cached_) cached_(std::move(cached->changes));
        } else if (const auto* adapter = std::get_if<AdapterFrame>(&*frame)) {
          take(*adapter);
        } else if (const auto* cache = std::get_if<CacheFrame>(&*frame)) {
          take(*cache);
        } else if (const auto* ready = std::get_if<ReadyFrame>(&*frame)) {
          good = take_ready(*ready);
        } else if (const auto* failed = std::get_if<FailedFrame>(&*frame)) {
          std::lock_guard lock(mutex_);
          process_.failed = failed->error;
          if (log_ && !given_up_) log_(fmt::format("the engine could not be started again: {}", failed->error.message));
        } else {
          good = false;
        }
      }
      if (!good) {
        kill_process();
        return false;
      }
    }
  }
}

// What an event means for going on elsewhere. The first thing said about cached tokens is what counts.
void RemoteEngine::note(Open& open, Event& event) {
  if (event.choice < 0 || event.choice >= std::ssize(open.told)) return;
  const auto choice = static_cast<size_t>(event.choice);
  Resumed& told = open.told[choice];
  if (event.token) {
    told.tokens.push_back(*event.token);
    told.mu = event.mu;
    open.deaths = 0;
    process_.told_any = true;
    quick_deaths_ = 0;
  }
  if (open.cached[choice] < 0) open.cached[choice] = event.cached;
  event.cached = open.cached[choice];
  if (event.finish != Finish::none && !std::exchange(told.finished, true)) --open.unfinished;
}

void RemoteEngine::take(EventsFrame frame) {
  std::vector<Call> calls;
  {
    std::lock_guard lock(mutex_);
    for (RequestId wire : frame.admitted) {
      auto found = open_.find(wire & kIdBits);
      if (found != open_.end() && std::exchange(found->second.tell_admission, false))
        calls.emplace_back(found->second.listener, std::vector<Event>());
    }
    for (size_t at = 0; at < frame.events.size();) {
      const RequestId wire = frame.events[at].request, id = wire & kIdBits;
      size_t end = at;
      while (end < frame.events.size() && frame.events[end].request == wire) ++end;
      auto found = open_.find(id);
      if (found != open_.end() && on_wire(id, found->second) == wire) {
        Open& open = found->second;
        std::vector<Event> events;
        bool refused = false;
        for (size_t i = at; i < end; ++i) {
          const auto choice =
              static_cast<size_t>(std::clamp(frame.events[i].choice, 0, static_cast<int>(open.told.size()) - 1));
          if (open.told[choice].finished) continue;  // nobody wants to hear more of it
          note(open, frame.events[i]);
          refused |= frame.events[i].error.has_value() && open.told[choice].tokens.empty();
          frame.events[i].request = id;
          events.push_back(std::move(frame.events[i]));
        }
        if (!events.empty()) calls.emplace_back(open.listener, std::move(events));
        if (refused && open.unfinished > 0) append_frame(CancelFrame{wire, -1}, out_);
        if (open.unfinished == 0 || refused) open_.erase(found);
        if (!alone_.empty() && alone_.front() == id) send_next_alone();
      }
      at = end;
    }
  }
  for (const auto& [listener, events] : calls) listener(events);
  if (told_ && !calls.empty()) told_();
}

// A process of the same fingerprint may go on with what another has begun, and no other.
bool RemoteEngine::take_ready(const ReadyFrame& frame) {
  std::unique_lock lock(mutex_);
  if (frame.tokens != tokens_ || frame.facts.limits.context != first_.facts.limits.context) {
    lock.unlock();
    give_up(error(Code::io, "the model's files are not what they were when the server started; start it again"));
    return false;
  }
  process_.ready = true;
  process_.ready_at = shared_now();
  gone_since_ = failed_starts_ = 0;
  given_up_.reset();
  still_ = 0;  // it was loading, and may not have had its first turn since
  restore_adapters(frame);
  send_open();
  return true;
}

// Everything that is open, to a process that knows nothing of it; if any is to be tried alone, that one. With the lock
// held.
void RemoteEngine::send_open() {
  if (paused_) return;
  size_t tokens = 0;
  alone_.clear();
  for (const auto& [id, open] : open_) {
    for (const Resumed& told : open.told) tokens += told.tokens.size();
    if (open.deaths >= kDeathsTogether) alone_.push_back(id);
  }
  // Who has begun comes first, so that nobody takes a place in the middle of whose answer somebody else waits.
  for (const bool begun : {true, false}) {
    for (auto& [id, open] : open_)
      if (has_begun(open) == begun && (alone_.empty() || id == alone_.front())) send_request(id, open);
  }
  if (log_)
    log_(fmt::format("engine process {} is ready: {} requests go on after {} tokens", process_.id, open_.size(),
                     tokens));
}

bool RemoteEngine::has_begun(const Open& open) {
  return std::ranges::any_of(open.told, [](const Resumed& told) { return told.finished || !told.tokens.empty(); });
}

void RemoteEngine::send_request(RequestId id, Open& open) {
  SubmitFrame frame{.id = on_wire(id, open), .tell_admission = open.tell_admission, .request = open.request};
  frame.request.again = std::exchange(open.sent, true);
  if (has_begun(open)) frame.request.resumed = open.told;
  if (open.request.constraint) frame.constraint = open.request.constraint->source();
  append_submit(frame, open);
}

// The one that was tried alone has told something or is gone. If others are to be tried it waits until they were:
// they would not be alone beside it.
void RemoteEngine::send_next_alone() {
  const RequestId tried = alone_.front();
  while (!alone_.empty() && (alone_.front() == tried || !open_.contains(alone_.front()))) alone_.pop_front();
  if (!alone_.empty()) {
    if (auto found = open_.find(tried); found != open_.end()) call_back(tried, found->second);
    return send_request(alone_.front(), open_.at(alone_.front()));
  }
  for (auto& [id, open] : open_)
    if (id != tried) send_request(id, open);
}

// A step that takes many times what it should, or an engine that shows no sign of life between steps. Looks are
// counted, not seconds: if this thread was held up, so was the engine.
void RemoteEngine::check_alive() {
  std::string why;
  {
    std::lock_guard lock(mutex_);
    const int64_t now = shared_now();
    if (process_.id == 0 || now - last_look_ < kLook) return;
    last_look_ = now;
    const SharedPage& page = shared_.page();
    const int64_t began = page.step_began.load(), sign = began != 0 ? began : page.awake.load();
    still_ = sign == last_awake_ ? still_ + 1 : 0;
    last_awake_ = sign;
    int64_t allowed = began != 0 ? page.step_allowed.load() : 0;
    if (!process_.ready) allowed = std::max(kLeastLoad, kTimesFirstLoad * first_load_);
    if (still_ <= std::max<int64_t>(kStillLooks, allowed / kLook)) return;
    const int64_t since = process_.ready ? std::max(sign, process_.began) : process_.began;
    why = fmt::format("engine process {} has not moved for {:.1f} s{}: it is ended", process_.id,
                      static_cast<double>(now - since) / 1e9,
                      !process_.ready ? " of its start" : (began != 0 ? " in a step" : ""));
  }
  if (log_) log_(why);
  kill_process();
  still_ = 0;
}

// Who may have caused the death: those in the step that ran. Between steps, those who had just come; when that has
// happened in a row without a token to anybody, all that the process had.
std::vector<RequestId> RemoteEngine::suspects() const {
  std::vector<RequestId> found;
  const SharedPage& page = shared_.page();
  if (page.step_began.load() != 0) {
    const auto count = std::clamp<int64_t>(page.ids_count.load(), 0, SharedPage::kMostIds);
    for (int64_t i = 0; i < count; ++i) found.push_back(page.ids[static_cast<size_t>(i)].load() & kIdBits);
  } else {
    const bool all = !process_.told_any && quick_deaths_ >= kDeathsTogether;
    for (const auto& [id, open] : open_)
      if (open.sent && (alone_.empty() || alone_.front() == id) && (all || open.tell_admission)) found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Nobody is refused for a death in company: whatever else was computed may have been the cause, or nothing of both.
void RemoteEngine::blame(bool outside, std::vector<Call>& calls) {
  const std::vector<RequestId> found = suspects();
  const int most = outside ? kDeathsOutside : kDeathsAlone;
  for (RequestId id : found) {
    auto suspect = open_.find(id);
    if (suspect == open_.end() || ++suspect->second.deaths < most || found.size() > 1) continue;
    Event last = {.request = id, .finish = Finish::failed};
    last.error = error(Code::internal,
                       "the engine stopped {} times in a row while it computed this request, the last time alone",
                       suspect->second.deaths);
    if (log_) log_(fmt::format("request {} is refused: {}", id, last.error->message));
    calls.emplace_back(suspect->second.listener, std::vector<Event>{last});
    open_.erase(suspect);
  }
  alone_.clear();
}

// The process has ended and was waited for.
void RemoteEngine::bury(int status) {
  std::vector<Call> calls;
  {
    std::lock_guard lock(mutex_);
    const int id = std::exchange(process_.id, 0);
    close_sockets();
    was_ready_ = process_.ready;
    if (gone_since_ == 0) gone_since_ = shared_now();
    const bool quiet = stopping_ || given_up_.has_value();  // what fails again and again was said once
    if (process_.ready && !asleep_) blame(killed(status) && !process_.killed, calls);
    quick_deaths_ += !process_.told_any && !asleep_;
    before_ = [&] {
      Metrics sum = shared_.page().seen().snapshot.metrics;
      sum.carry(before_);
      return sum;
    }();
    process_.ready = false;
    shared_.page().shown.store(0);
    shared_.page().figures[0] = {};
    out_.clear();
    restarts_ += !asleep_;
    const double pause = quick_deaths_ > 1 ? std::min(kLongestPause, 0.05 * (1 << std::min(quick_deaths_, 10))) : 0;
    try_at_ = shared_now() + static_cast<int64_t>(pause * static_cast<double>(kSecond));
    if (!was_ready_ && !asleep_) {
      const Error ended = error(Code::internal, "its process ended {} while it loaded the model", how_it_ended(status));
      start_failed(process_.failed.value_or(ended), process_.failed.has_value());
    }
    if (log_ && asleep_ && !stopping_) {
      log_(fmt::format("engine process {} has gone to sleep; {} requests wait", id, open_.size()));
    } else if (log_ && !quiet) {
      log_(fmt::format("engine process {} ended {}; {} requests wait", id, how_it_ended(status), open_.size()));
    }
  }
  fail_cache_waits(error(Code::overloaded, "the engine stopped while its cache was asked for; try again"));
  fail_adapter_waits(error(Code::overloaded, "the engine stopped while it was asked about an adapter; try again"));
  for (const auto& [listener, events] : calls) listener(events);
  if (told_ && !calls.empty()) told_();
  if (cached_) cached_({{.kind = CacheChange::Kind::cleared}});  // what it had cached went with it
  buried_.notify_all();
}

// With the lock held. What a process said of the model's files the next one will say too, most likely; whatever else is
// wrong may pass.
void RemoteEngine::start_failed(const Error& why, bool told) {
  if (for_good_) return;
  failed_starts_ += told && why.code != Code::no_memory && why.code != Code::internal;
  const double gone = static_cast<double>(shared_now() - gone_since_) / static_cast<double>(kSecond);
  if (failed_starts_ < kFailedStarts && gone < command_.patience) return;
  const bool first = !given_up_;
  given_up_ = within("the engine cannot be started again, which is tried every few seconds", why);
  if (log_ && first) log_(given_up_->message);
}

// No process will come that could go on: everybody is told, and whoever comes later too.
void RemoteEngine::give_up(const Error& why) {
  {
    std::lock_guard lock(mutex_);
    given_up_ = why;
    for_good_ = true;
    spare_.end();
  }
  if (log_) log_(why.message);
  refuse_late();
}

void RemoteEngine::refuse_late() {
  std::vector<Call> calls;
  {
    std::lock_guard lock(mutex_);
    if (!given_up_) return;
    for (auto& [id, open] : open_) {
      Event last = {.request = id, .finish = Finish::failed, .error = given_up_};
      calls.emplace_back(open.listener, std::vector<Event>{last});
    }
    open_.clear();
  }
  for (const auto& [listener, events] : calls) listener(events);
  if (told_ && !calls.empty()) told_();
}

}  // namespace millrace
