// Bodies of requests, as a client may send them: reading must end in a request or in an error that can be shown.
#include <cstddef>
#include <cstdint>

#include "server/openai/read_request.h"
#include "server/openai/writing.h"
#include "server/shelf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 1) return 0;
  constexpr Body kKinds[] = {kChat,        kCompletion,    kTokenize, kDetokenize, kTemplate, kEmbed, kRerank, kScore,
                             kLoadAdapter, kUnloadAdapter, kChat,     kCompletion, kChat,     kEmbed, kChat,   kScore};
  const Body kind = kKinds[data[0] % 16];
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::optional<ApiError> failure;
  Ignored ignored;
  if ((kind & kGenerate) != 0) {
    RequestBody asked;
    failure = read_request_body(body, kind, {}, asked);
    ignored = asked.ignored;
    CHECK(failure || (asked.request.choices >= 1 && asked.request.choices <= 128), "choices out of range");
    HttpRequest request;
    request.body = body;
    const std::string named = named_model(request);
    const size_t first = body.find("\"model\"");
    const bool once = first != body.npos && body.find("\"model\"", first + 1) == body.npos;
    CHECK(failure || !once || asked.model.empty() || body.find('\\') != body.npos || named == asked.model,
          "a body for '{}' went to '{}'", asked.model, named);
    CHECK(failure || check_sampling(asked.request.sampling, 1 << 30).ok(), "sampling out of range");
  } else {
    JsonObject object;
    failure = read_body(body, kind, {}, object, ignored);
    if (!failure && find(object, "messages") != nullptr) messages_of(object);
  }
  // What was ignored is told in a header of one line.
  HttpAnswer head;
  add_ignored(ignored, head);
  for (const auto& [name, value] : head.headers)
    for (char c : value) CHECK(c >= ' ' && c < 0x7F && value.size() < 2000, "a header that is none");
  if (failure) {
    // What is said about it is JSON again, whatever of it is shown back.
    const HttpAnswer answer = error_answer(*failure);
    CHECK(answer.status >= 400 && parse_json(answer.body).ok(), "an error that is no JSON: {}", answer.body);
  }
  std::string quoted;
  append_quoted(quoted, body);
  CHECK(parse_json(quoted).ok(), "a text was quoted wrongly");
  return 0;
}
