// A load of OpenAI requests on a server, over plain HTTP, from one thread with epoll: hundreds of streams cost the
// client little, so that it can run beside the server it measures. Connections are kept and used again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/serve_metrics.h"

namespace millrace {

struct ServeTarget {
  std::string host, port, prefix;  // prefix: path before the endpoint, "" or "/llm"
  std::vector<std::pair<std::string, std::string>> headers;
};
Result<ServeTarget> parse_target(std::string_view base_url);

struct ServeRequest {
  double time = 0;   // when it is due, in seconds after the start
  std::string body;  // JSON
};

struct ServeRun {
  std::string endpoint = "/v1/completions";
  bool chat = false;
  int max_concurrency = 0;                          // 0: no limit
  double timeout = 6 * 3600;                        // seconds a request may take
  bool keep_text = false;                           // records keep the answers
  std::function<bool(size_t ended)> progress = {};  // false stops
};

struct ServeOutcome {
  std::vector<ServeRecord> records;  // as the requests, in their order
  double seconds = 0;                // from the first request to the last answer
};

// Sends everything and waits for all answers. What a request meets is in its record; an Error means that nothing could
// be sent at all, or that progress() said stop.
Result<ServeOutcome> run_load(const ServeTarget& target, const std::vector<ServeRequest>& requests,
                              const ServeRun& options);

// One plain GET, for /v1/models.
Result<std::string> get_text(const ServeTarget& target, const std::string& path);

}  // namespace millrace
