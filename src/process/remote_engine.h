// RemoteEngine: an engine in a process of its own, which may die. What is open then goes on in another process from the
// tokens already told: an answer is a function of its request and its tokens so far, so nobody notices but by the
// clock. A step that takes far too long ends the process too. A request that was being computed at two deaths in a row,
// without a token in between, is tried with nothing beside it, and refused when the engine dies of it once more; if
// that was somebody's kill, after ten of them.
//
// When no process can be started any more, requests are refused with the reason, and starts go on being tried: files
// that are put back heal it. Files of another fingerprint do not.
//
//   submit, cancel   any thread        noted and queued
//   one thread       sends what is queued, reads what comes, calls listeners, watches over the process
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/port.h"
#include "process/frames.h"
#include "process/shared_page.h"
#include "process/spare.h"

namespace millrace {

// How the process is started: this program again, with these words.
struct EngineCommand {
  std::vector<std::string> words;
  std::vector<std::string> words_first = {};  // added the first time
  std::vector<std::string> words_again = {};  // added when it is not
  std::vector<std::string> words_bare = {};   // and these, when the one before died before it was ready
  double patience = 60;  // seconds without a process, however starts fail, until requests are refused
  bool spare = false;    // it may leave a spare (spare.h), of which the next ones are copies as long as that works
};

class RemoteEngine : public EnginePort {
 public:
  using Log = std::function<void(std::string_view line)>;
  // Waits until the engine is ready; `go_on` is asked meanwhile.
  static Result<std::unique_ptr<RemoteEngine>> start(EngineCommand command, const std::function<bool()>& go_on,
                                                     Log log);
  ~RemoteEngine() override;

  RequestId submit(Request request, Listener listener, bool tell_admission = false) override;
  void cancel(RequestId request, int choice = -1) override;
  void when_told(std::function<void()> told) override { told_ = std::move(told); }
  void when_cached(std::function<void(std::vector<CacheChange>)> heard) override { cached_ = std::move(heard); }
  const EngineFacts& facts() const override { return first_.facts; }
  EngineSnapshot snapshot() const override;
  std::optional<Error> failing() const override;
  std::vector<PageState> watch_pages() override;
  std::vector<AdapterInfo> adapters() const override;
  void load_adapter(AdapterAsk ask, std::function<void(Result<AdapterInfo>)> done) override;
  void unload_adapter(std::string name, std::function<void(Result<void>)> done) override;

  void save_cache(int file, CacheDone done) override;
  void reset_cache(CacheDone done) override;
  Result<void> pause() override;
  Result<void> sleep() override;
  void go_on() override;

  Result<void> become(std::shared_ptr<EnginePort> other) override;

  const ReadyFrame& ready() const { return first_; }  // as the first process said

 private:
  struct Open {
    Request request;
    Listener listener;
    bool tell_admission = false;
    std::vector<Resumed> told;  // by choice
    std::vector<int> cached;    // by choice, as first told; -1: not yet
    int unfinished = 0;
    int deaths = 0;  // in a row, without a token in between
    bool sent = false;
    std::optional<AdapterInfo> adapter;  // that it began with, loaded or not
    int64_t round = 0;                   // how often it was called back; what is said of an earlier round is not heard
  };
  // A process and our ends of its sockets.
  struct Process {
    int id = 0;
    int socket = -1;
    int files = -1;
    bool ready = false;
    FrameBuffer arrived;
    int64_t began = 0, ready_at = 0;
    std::optional<Error> failed;  // what it said of its start
    bool told_any = false;
    bool killed = false;  // by us
  };
  using Call = std::pair<Listener, std::vector<Event>>;

  RemoteEngine(EngineCommand command, Log log) : log_(std::move(log)), command_(std::move(command)) {}
  void loop();
  void turn();
  void send_queued();
  bool read_arrived();
  void take(EventsFrame frame);
  bool take_ready(const ReadyFrame& frame);
  void note(Open& open, Event& event);
  void check_alive();
  void bury(int status);
  void blame(bool outside, std::vector<Call>& calls);
  std::vector<RequestId> suspects() const;
  static bool has_begun(const Open& open);
  void send_request(RequestId id, Open& open);
  void send_open();
  // Requests by their numbers on the wire: the round is in the upper bits.
  static constexpr int kRoundShift = 40;
  static constexpr RequestId kIdBits = (RequestId{1} << kRoundShift) - 1;
  static RequestId on_wire(RequestId id, const Open& open) { return id | open.round << kRoundShift; }
  void send_next_alone();
  void give_up(const Error& why);
  void start_failed(const Error& why, bool told);
  void refuse_late();
  // The process, in remote_process.cpp.
  struct Spawned {
    SharedPageFile shared;
    SpawnedProcess process;
  };
  Result<Spawned> spawn(bool again);
  Result<SpawnedProcess> spawn_from_files(bool again, int shared);
  void install(Spawned made);
  Result<void> await_ready(const std::function<bool()>& go_on);
  int await_end();
  void kill_process();
  void end_process(int signal);
  void close_sockets();
  void revive();
  static std::string how_it_ended(int status);
  // Adapters, in remote_adapters.cpp.
  struct AdapterWait {  // for an answer about one
    std::string name;
    std::function<void(Result<AdapterInfo>)> loaded;  // one of the two
    std::function<void(Result<void>)> unloaded;
  };
  void take(const AdapterFrame& frame);
  void restore_adapters(const ReadyFrame& frame);
  std::optional<AdapterInfo> adapter_named(const std::string& name) const;
  void append_submit(const SubmitFrame& frame, const Open& open);
  void fail_adapter_waits(const Error& why);
  // The cache, in remote_cache.cpp.
  void take(const CacheFrame& frame);
  void fail_cache_waits(const Error& why);
  int64_t ask_cache(CacheDone& done);
  // Rest and change, in remote_rest.cpp.
  void call_back();
  void call_back(RequestId id, Open& open);
  void become_next();
  void stop_thread();
  void wake() const;
  EngineSnapshot figures() const;

  const Log log_;
  ReadyFrame first_;
  std::function<void()> told_;
  std::function<void(std::vector<CacheChange>)> cached_;
  SharedPageFile shared_;
  int64_t epoch_ = 0;  // when the first process began
  int wake_ = -1;      // an eventfd

  mutable std::mutex mutex_;  // guards all below
  EngineCommand command_;
  Identity tokens_;  // of the fingerprint that every process is to have
  Process process_;
  Spare spare_;
  std::map<RequestId, Open> open_;
  std::deque<RequestId> alone_;  // to be tried one after another; the first is all that the process has
  std::string out_;              // to be sent
  RequestId next_id_ = 1;
  Metrics before_;  // what processes before this one have counted
  std::vector<PageState> pages_;
  std::vector<AdapterInfo> adapters_;  // that every process is to have
  std::map<int64_t, AdapterWait> adapter_waits_;
  std::map<int64_t, CacheDone> cache_waits_;
  int64_t next_ticket_ = 1;
  bool was_ready_ = true;  // the process before
  bool paused_ = false, asleep_ = false;
  bool spawning_ = false;               // a process is being made, without the lock
  std::condition_variable buried_;      // a process has ended, or was made
  std::shared_ptr<RemoteEngine> next_;  // whose process is to be taken
  std::condition_variable became_;      // there is no next_ any more
  int restarts_ = 0;
  int quick_deaths_ = 0;           // in a row, without a token told
  int64_t try_at_ = 0;             // when to start the next process
  int64_t gone_since_ = 0;         // when the first process of those died that did not become ready; 0: there is one
  int failed_starts_ = 0;          // for the model's files, since then
  std::optional<Error> given_up_;  // why requests are refused
  bool for_good_ = false;          // no other process is tried
  int64_t last_awake_ = 0;         // the sign of life last seen,
  int64_t last_look_ = 0;
  int64_t first_load_ = 0;  // how long the first process took until it was ready
  int still_ = 0;           // and for how many looks it has not changed
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace millrace
