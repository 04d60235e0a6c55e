// Service: everything the server knows how to answer, behind plain values: a request and an Exchange in, an answer
// out. It owns the workers beside the I/O thread and knows nothing of sockets. A model comes when it is loaded; until
// then whoever needs it is told to wait.
//
// handle() is called on the I/O thread and returns at once; everything else from any thread.
#pragma once

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

#include "server/generation.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/limiter.h"
#include "server/openai/embedding.h"
#include "server/request_body.h"
#include "server/route.h"
#include "server/share.h"
#include "server/workers.h"

namespace millrace {

// A file the server has with it, such as a page and what belongs to it. Anybody may fetch it.
struct StaticFile {
  std::string_view path;  // "/index.html"; "/" is this one too
  std::string_view content_type;
  std::string_view bytes;
  std::string_view encoding = "";  // "gzip" if the bytes are compressed
  std::string_view tag = "";       // changes with the bytes
};

struct ServiceOptions {
  BodyLimits body;
  Keys keys;                       // empty: nobody is asked for one
  bool open_metrics = false;       // /metrics, that of all tenants, for whoever asks
  std::vector<std::string> hosts;  // names the server may be called by; empty: any
  std::span<const StaticFile> files = {};
  std::filesystem::path adapter_folder;  // from which adapters may be loaded by request; empty: from none
  std::string version = "unknown";
  int prepare_threads = 2;
  size_t most_preparing = 1024;  // requests that wait to be tokenized
  double stuck_seconds = 30;     // without progress for so long, the engine is not healthy
  std::function<void(std::string_view line)> log = {};
};

class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  // What a request is refused with for its head alone (host, origin, path, key); nothing if its body may come. I/O
  // thread, at once.
  std::optional<HttpAnswer> deny(const HttpRequest& head);

  // The model is there.
  void serve(ServedModel model);
  // No new work is taken; what is open goes on.
  void drain();
  // Ends what is open, each with an error the client can read.
  void fail_all(std::string_view why);
  int open() const { return open_.load(); }
  void tidy();              // gives memory that a crowd has left back to the system, when a worker has time
  Metrics metrics() const;  // of the engine; empty without one

  struct Counters {
    std::atomic<int64_t> requests = 0, disconnects = 0;
    std::atomic<int64_t> slow_clients = 0, connections = 0, body_bytes = 0;  // written by connections
  };
  Counters& counters() { return counters_; }

  // For handlers.
  const ServiceOptions& options() const { return options_; }
  const ServedModel* model() const { return model_.load(); }  // null until there is one
  std::optional<ApiError> check_ready() const;
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
  void log_request(const HttpRequest& request, int status, double seconds, const Usage& usage) const;
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
  std::optional<ApiError> told_to_end();

  ServiceOptions options_;
  Clock::time_point start_ = Clock::now();
  std::array<uint8_t, 32> secret_;  // under which prefixes are kept apart
  std::unique_ptr<ServedModel> owned_model_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> draining_ = false;
  std::atomic<int> open_ = 0;
  Counters counters_;
  Limiter limiter_;

  std::mutex mutex_;  // guards the three below
  std::map<std::string, std::shared_ptr<Share>> shares_;
  std::set<std::shared_ptr<Generation>> generations_;
  std::optional<ApiError> ending_;  // what everybody who is open is told

  Workers stream_workers_;
  StepMail mail_{stream_workers_};
  // The last two: joined first, while everything they use is there. Compiling what an answer must be has a thread of
  // its own, so that it keeps nobody else's prompt waiting.
  Workers compile_workers_;
  Workers prepare_workers_;
};

}  // namespace millrace
