// Service: everything the server knows how to answer, behind plain values: a request and an Exchange in, an answer
// out. It owns the workers beside the I/O thread and knows nothing of sockets. A model comes when it is loaded; until
// then whoever needs it is told to wait.
//
// handle() is called on the I/O thread and returns at once; everything else from any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/controls.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/limiter.h"
#include "server/openai/embedding.h"
#include "server/request_body.h"
#include "server/route.h"
#include "server/share.h"
#include "server/stored_answers.h"
#include "server/trace.h"
#include "server/workers.h"

namespace millrace {

class Shelf;

// A file the server has with it, such as a page and what belongs to it. Anybody may fetch it.
struct StaticFile {
  std::string_view path;  // "/index.html"; "/" is this one too
  std::string_view content_type;
  std::string_view bytes;
  std::string_view encoding = "";  // "gzip" if the bytes are compressed
  std::string_view tag = "";       // changes with the bytes
};

struct ServiceCounters {
  std::atomic<int64_t> requests = 0, disconnects = 0, resumed = 0;
  std::atomic<int64_t> slow_clients = 0, connections = 0, body_bytes = 0;  // written by connections
};

// What services of one server have in common.
struct ServerWide {
  ServiceCounters counters;
  Limiter limiter;
};

struct ServiceOptions {
  BodyLimits body;
  Keys keys;                       // empty: nobody is asked for one
  bool open_metrics = false;       // /metrics, that of all tenants, for whoever asks
  std::vector<std::string> hosts;  // names the server may be called by; empty: any
  std::span<const StaticFile> files = {};
  std::filesystem::path adapter_folder;  // from which adapters may be loaded by request; empty: from none
  std::filesystem::path weights_folder;  // from which weights may be loaded by request; empty: from none
  // Loads a model of the same shapes as the one there is, and an engine for it.
  std::function<Result<ServedModel>(const std::string& path, const ServedModel& old)> load = {};
  // Whether there is memory for a second engine like this one.
  std::function<bool(const ServedModel& old)> fits_beside = {};
  std::string version = "unknown";
  // Under which prefixes are kept apart and ids of events are sealed; replicas share one. None: drawn at the start.
  std::optional<std::array<uint8_t, 32>> secret = {};
  // Answers that are kept for requests that go on from them. Null: made at the start.
  std::shared_ptr<StoredAnswers> stored = nullptr;
  int prepare_threads = 2;
  size_t most_preparing = 1024;  // requests that wait to be tokenized
  double stuck_seconds = 30;     // without progress for so long, the engine is not healthy
  std::function<void(std::string_view line)> log = {};
  bool json_log = false;                  // each line is an object
  std::shared_ptr<ServerWide> wide = {};  // shared with services of other models; none: its own
  Shelf* shelf = nullptr;                 // where other models are; it outlives the service. None: there are none
};

class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  // The same, whichever model is named. Any thread.
  void handle_here(HttpRequest request, std::shared_ptr<Exchange> exchange);
  // What a request is refused with for its head alone (host, origin, path, key); nothing if its body may come. I/O
  // thread, at once.
  std::optional<HttpAnswer> deny(const HttpRequest& head);

  // The model is there, or another takes its place: what is open ends with the one it has begun with.
  void serve(ServedModel model);
  // Ends what is open with an error, all or what this model answers.
  void fail_open(const ApiError& failure, const ServedModel* only);
  int generations();  // requests that are read and open
  int retired();      // models whose place another has taken, and that still answer
  // No new work is taken; what is open goes on.
  void drain();
  // Ends what is open, each with an error the client can read.
  void fail_all(std::string_view why);
  int open() const;  // also at other models
  int open_here() const { return open_.load(); }
  void tidy();              // gives memory that a crowd has left back to the system, when a worker has time
  Metrics metrics() const;  // of the engine; empty without one

  ServiceCounters& counters() { return wide_->counters; }

  // For handlers.
  const ServiceOptions& options() const { return options_; }
  std::shared_ptr<const ServedModel> model() const;  // null until there is one
  Controls& controls() { return controls_; }
  StoredAnswers& stored() { return *options_.stored; }
  // What is open, for whoever watches: of one tenant, or of all.
  JsonArray open_requests(const std::string* tenant);
  std::optional<ApiError> check_ready() const;
  std::optional<ApiError> check_engine() const;  // there is one, or is to be soon
  std::optional<ApiError> check_writes() const;  // ready, and the model writes text
  static ApiError no_such_model(std::string_view name);
  // What a tenant has used. Only for names that have a key: their number does not grow.
  std::shared_ptr<Share> share_of(const std::string& tenant);
  // Reads the body as the dialect has it, generates, and answers in its words.
  void generate(const Dialect& dialect, Call call);
  // Reads the body on a worker, has its texts computed, and answers.
  void embed(ReadEmbedWork read, Call call, HttpAnswer (*refuse)(const ApiError&) = &error_answer);
  // Answers with what the task gives on a worker, or why there is nothing.
  void prepare(std::function<HttpAnswer()> task, std::shared_ptr<Exchange> exchange);
  // The same with a task that answers itself, then or later.
  void work(std::function<void()> task, std::shared_ptr<Exchange> exchange);

 private:
  using Clock = std::chrono::steady_clock;
  struct Admitted {  // what a head comes to
    FoundRoute found;
    Visitor visitor;
    std::optional<ApiError> refused;
  };
  struct Opening {  // a request on its way to becoming a generation
    const Dialect* dialect = nullptr;
    std::shared_ptr<HttpRequest> request;
    std::shared_ptr<Exchange> exchange;
    Visitor visitor;
    std::shared_ptr<Share> share;  // null: nobody has a share of his own
    std::function<void(const Ended&)> at_end;
  };

  Admitted admit(const HttpRequest& request) const;
  std::optional<HttpAnswer> denial(const HttpRequest& head, const Admitted& admitted);
  std::optional<ApiError> check_origin(const HttpRequest& request) const;
  std::optional<ApiError> check_key(const HttpRequest& request, Access access, Visitor& visitor) const;
  const StaticFile* find_file(const HttpRequest& request) const;
  double now() const;
  double wait_expected() const;
  ApiError too_much() const;
  void log_request(const HttpRequest& request, int status, double seconds, const Usage& usage,
                   std::string_view tenant = "") const;
  // Takes a request in, or says why not. What is given back is called once when it ends.
  using AtEnd = std::function<void(const Ended&)>;
  std::optional<ApiError> enter(Call& call, std::shared_ptr<HttpRequest>& request, std::shared_ptr<Share>& share,
                                AtEnd& at_end);
  std::optional<ApiError> start_work(ReadEmbedWork read, const HttpRequest& request,
                                     const std::shared_ptr<Exchange>& exchange, const AtEnd& at_end,
                                     HttpAnswer (*refuse)(const ApiError&));
  void open_generation(const Opening& opening);
  void begin(const std::shared_ptr<Generation>& generation);
  std::optional<ApiError> make_generation(const Opening& opening, std::shared_ptr<Generation>& generation);
  std::function<void(const std::string&, std::string, Message)> keeper(const RequestBody& asked,
                                                                       const std::string& tenant);
  std::optional<ApiError> told_to_end();
  void open_one(const Opening& opening);
  void clear_retired();

  ServiceOptions options_;
  Clock::time_point start_ = Clock::now();
  std::array<uint8_t, 32> secret_;                    // under which prefixes are kept apart
  mutable std::mutex model_mutex_;                    // guards the one below
  std::vector<std::shared_ptr<ServedModel>> models_;  // the last is the one that new requests get
  std::atomic<bool> draining_ = false;
  std::atomic<int> open_ = 0;
  std::shared_ptr<ServerWide> wide_;

  struct OpenRequest {
    Trace trace;
    std::string tenant, path;
    double began = 0;
  };
  std::mutex mutex_;  // guards the five below
  std::map<int64_t, OpenRequest> requests_;
  int64_t next_request_ = 1;
  std::map<std::string, std::shared_ptr<Share>> shares_;
  std::set<std::shared_ptr<Generation>> generations_;
  std::optional<ApiError> ending_;  // what everybody who is open is told

  Workers stream_workers_;
  StepMail mail_{stream_workers_};
  Controls controls_{*this};
  // The last two: joined first, while everything they use is there. Compiling what an answer must be has a thread of
  // its own, so that it keeps nobody else's prompt waiting.
  Workers compile_workers_;
  Workers prepare_workers_;
};

}  // namespace millrace
