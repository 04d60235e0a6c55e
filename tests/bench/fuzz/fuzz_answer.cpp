// A server's answer, in any pieces: the load generator reads it without trouble, and the pieces make no difference. The
// first byte says where to cut.
#include <cstdlib>

#include "bench/serve_answer.h"

namespace {

struct Read {
  bool ok = true, complete = false, done = false;
  int status = 0;
  std::string body, text;
  int64_t tokens = 0;
  bool operator==(const Read&) const = default;
};

Read read(std::string_view bytes, size_t piece) {
  Read result;
  millrace::ResponseReader response;
  millrace::AnswerReader answer(bytes.size() % 2 == 0);
  for (size_t at = 0; at < bytes.size() && result.ok; at += piece) {
    std::string body;
    result.ok = response.feed(bytes.substr(at, piece), body).ok();
    if (!result.ok) break;  // what was read before the mistake depends on the pieces
    result.body += body;
  }
  result.complete = response.complete();
  result.status = response.status();
  if (!result.ok) return {.ok = false};
  bool good = true;
  for (size_t at = 0; at < result.body.size() && good; at += piece) {
    good = answer.feed(std::string_view(result.body).substr(at, piece), 1).ok();
  }
  result.done = answer.done();
  millrace::ServeRecord record = answer.finish();
  result.text = record.text;
  result.tokens = record.output_tokens;
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (!(read(bytes, 1 + data[0]) == read(bytes, size))) std::abort();
  return 0;
}
