// StoredAnswers: answers that are kept so that a later request can go on from them by their ids (OpenAI's Responses
// with `store` and `previous_response_id`). In memory, bounded in bytes: what was used least recently goes first, of
// the tenant that has most, so that nobody pushes out another's. A tenant finds its own only. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/request_body.h"

namespace millrace {

struct StoredAnswer {
  std::vector<Message> messages;  // the conversation with the answer, less the instructions, which are not kept
  std::string body;               // the answer as its client got it
};

class StoredAnswers {
 public:
  static constexpr int64_t kUsualBytes = int64_t{64} << 20;
  explicit StoredAnswers(int64_t bytes = kUsualBytes) : most_bytes_(bytes) {}  // 0: nothing is kept

  bool keeps() const { return most_bytes_ > 0; }
  // An answer larger than all there is room for is not kept.
  void put(const std::string& tenant, const std::string& id, StoredAnswer answer);
  std::shared_ptr<const StoredAnswer> find(const std::string& tenant, const std::string& id);  // null: there is none
  bool erase(const std::string& tenant, const std::string& id);

  // Puts the conversation of the answer that is gone on from before what is asked; why not, if it is not there.
  std::optional<ApiError> go_on(const std::string& tenant, RequestBody& asked);
  // Of the conversation that is asked about, what is kept.
  static std::vector<Message> kept_of(const RequestBody& asked);
  static ApiError unknown(const std::string& id);  // what is said where there is no such answer

  struct Counters {
    size_t answers = 0;
    int64_t bytes = 0;
    int64_t stored = 0, pushed_out = 0;
  };
  Counters counters();
  std::string metrics_text();  // the same in Prometheus' text format

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id
  struct Entry {
    Key key;
    std::shared_ptr<const StoredAnswer> answer;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;
  void remove(Entries::iterator entry);

  const int64_t most_bytes_;
  std::mutex lock_;  // guards all below
  Entries entries_;  // the last used first
  std::map<Key, Entries::iterator> by_key_;
  std::map<std::string, int64_t> by_tenant_;
  Counters counters_;
};

}  // namespace millrace
