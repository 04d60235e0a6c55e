// A file of requests and the file of its answers, in OpenAI's batch format: one line of either read or written. Both
// may come from anywhere, so reading is pure and fuzzed. Any thread.
//
// A row of the answers file is final if it carries a response, under its custom_id. A row that carries an error belongs
// to one line of the requests, not to an id: a second line with the same custom_id gets such a row, and the first one's
// answer is still to come. Going on after a kill asks again for whatever has no final row.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "server/http.h"

namespace millrace {

// A longer line is not asked, whoever reads it may cut it off behind that.
inline constexpr size_t kLongestBatchLine = size_t{64} << 20;

struct BatchLine {
  std::string id;       // its custom_id if it has one, else line-NUMBER
  std::string wrong;    // why it cannot be asked; empty: it can
  HttpRequest request;  // if nothing is wrong
};
BatchLine read_batch_line(std::string_view text, int64_t number);

// What the rows that are there already say, and which ids came before.
class BatchRecord {
 public:
  // One row of the answers file. An error if it is none.
  Result<void> add_row(std::string_view row);
  // Whether the beginning of a row that was never finished may be taken back: it looks like one.
  static bool looks_like_row(std::string_view begun);

  enum class Next : uint8_t { ask, refuse, skip };
  // What to do with the next line, lines in order. Fills `wrong` where an id comes a second time.
  Next next(BatchLine& line, int64_t number);

  size_t answered() const { return answered_.size(); }

 private:
  std::set<std::string> answered_;                         // ids with a response
  std::set<std::pair<std::string, std::string>> refused_;  // ids and messages of error rows
  std::set<std::string> seen_;                             // ids of lines so far
};

// With the names of fields that were taken and do nothing, if there were any (kIgnoredHeader).
std::string batch_answer_row(std::string_view id, const HttpAnswer& answer, int64_t number);
std::string batch_error_row(std::string_view id, std::string_view message);

}  // namespace millrace
