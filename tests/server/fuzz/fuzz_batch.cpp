// Lines of a batch and rows of its answers, from anywhere. What must hold: a line that nothing is wrong with has a
// request, a row we write is read back as the row it is, and a second run after the first asks for nothing it has.
#include <string>

#include "base/result.h"
#include "server/batch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t middle = text.find('\n');
  BatchRecord record;
  static_cast<void>(record.add_row(text.substr(0, middle)));
  BatchLine line = read_batch_line(middle == std::string_view::npos ? text : text.substr(middle + 1), 3);
  CHECK(!line.wrong.empty() || !line.request.path.empty(), "nothing is wrong, but there is no request");
  if (record.next(line, 3) == BatchRecord::Next::skip) return 0;
  BatchRecord again;
  const std::string row =
      line.wrong.empty() ? batch_answer_row(line.id, {.body = "{}"}, 1) : batch_error_row(line.id, line.wrong);
  CHECK(again.add_row(row).ok(), "a row of ours is not read: {}", row);
  CHECK(row.find('\n') == std::string::npos && BatchRecord::looks_like_row(row), "a row is one line: {}", row);
  BatchLine same = read_batch_line(middle == std::string_view::npos ? text : text.substr(middle + 1), 3);
  CHECK(again.next(same, 3) == BatchRecord::Next::skip, "asked again: {}", row);
  return 0;
}
