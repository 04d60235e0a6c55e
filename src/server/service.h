// Service: everything the server knows how to answer, behind plain values: a request and an Exchange in, an answer
// out. It owns the workers beside the I/O thread and knows nothing of sockets. A model comes when it is loaded; until
// then whoever needs it is told to wait.
//
// handle() is called on the I/O thread and returns at once; everything else from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
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
#include "server/request_body.h"
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
  std::vector<std::string> hosts;  // names the server may be called by; empty: any
  std::span<const StaticFile> files = {};
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

 private:
  friend struct Routes;
  using Clock = std::chrono::steady_clock;
  struct Visitor {  // who asks
    std::string tenant;
    TenantLimits limits;
  };

  std::optional<ApiError> check_origin(const HttpRequest& request) const;
  std::optional<ApiError> check_key(const HttpRequest& request, Visitor& visitor) const;
  std::optional<ApiError> check_ready() const;
  const ServedModel* model() const { return model_.load(); }
  double now() const;
  double wait_expected() const;
  ApiError too_much() const;
  void log_request(const HttpRequest& request, int status, double seconds, const Usage& usage) const;
  bool answer_file(const HttpRequest& request, Exchange& exchange) const;
  void generate(Body kind, HttpRequest request, std::shared_ptr<Exchange> exchange, const Visitor& visitor);
  std::optional<ApiError> open_generation(Body kind, HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                                          const Visitor& visitor, const std::function<void(const Ended&)>& at_end,
                                          std::shared_ptr<Generation>& generation);
  std::optional<ApiError> told_to_end();
  // Answers with what the task gives on a worker, or why there is nothing.
  void prepare(std::function<HttpAnswer()> task, std::shared_ptr<Exchange> exchange);

  ServiceOptions options_;
  Clock::time_point start_ = Clock::now();
  std::array<uint8_t, 32> secret_;  // under which prefixes are kept apart
  std::unique_ptr<ServedModel> owned_model_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> draining_ = false;
  std::atomic<int> open_ = 0;
  Counters counters_;
  Limiter limiter_;

  std::mutex mutex_;  // guards the two below
  std::set<std::shared_ptr<Generation>> generations_;
  std::optional<ApiError> ending_;  // what everybody who is open is told

  Workers stream_workers_;
  StepMail mail_{stream_workers_};
  Workers prepare_workers_;  // last: joined first, while everything they use is there
};

// One route of the server.
struct Route {
  std::string_view method, path, summary;
  bool open = false;  // needs no key
  unsigned body = 0;  // its body, a Body; 0: none
};
std::span<const Route> routes();

}  // namespace millrace
