// Bodies of the interfaces beside OpenAI's chats: reading must end in a request or in an error that can be shown.
#include <cstddef>
#include <cstdint>

#include "server/anthropic/read_messages.h"
#include "server/anthropic/writing.h"
#include "server/llama_cpp/read_llama.h"
#include "server/ollama/read_ollama.h"
#include "server/ollama/writing.h"
#include "server/responses/read_response.h"

namespace millrace {
namespace {

std::optional<ApiError> read(unsigned which, std::string_view body, RequestBody& out) {
  switch (which % 7) {
    case 0:
      return read_messages(body, kMessagesBody, {}, out);
    case 1:
      return read_messages(body, kCountBody, {}, out);
    case 2:
      return read_ollama(body, kOllamaChat, {}, out);
    case 3:
      return read_ollama(body, kOllamaGenerate, {}, out);
    case 4:
      return read_llama(body, kLlamaCompletion, {}, out);
    case 5:
      return read_llama(body, kLlamaInfill, {}, out);
    default:
      return read_response(body, {}, out);
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  RequestBody asked;
  const auto failure = read(data[0], body, asked);
  if (!failure) {
    CHECK(check_sampling(asked.request.sampling, 1 << 30).ok(), "sampling out of range");
    CHECK(asked.request.choices == 1 && asked.max_tokens >= 0, "counts out of range");
    CHECK(!asked.tools || asked.tools->tools.size() <= asked.chat_options.tools.size(), "tools nobody is shown");
    CHECK(!asked.suffix || std::holds_alternative<std::string>(asked.prompts.at(0)), "nothing to fill in");
    CHECK(!asked.chat_options.continue_last || !asked.messages.empty(), "there is nothing to continue");
  } else {
    // What is said about it is JSON again, whatever of it is shown back.
    for (const HttpAnswer& answer : {anthropic_refusal(*failure), ollama_refusal(*failure), error_answer(*failure)})
      CHECK(answer.status >= 400 && parse_json(answer.body).ok(), "an error that is no JSON: {}", answer.body);
  }
  // What was ignored is told in a header of one line.
  HttpAnswer head;
  add_ignored(asked.ignored, head);
  for (const auto& [name, value] : head.headers)
    for (char c : value) CHECK(c >= ' ' && c < 0x7F && value.size() < 2000, "a header that is none");
  return 0;
}
