#include "server/token_json.h"

#include <cmath>
#include <iterator>

#include "server/quoted.h"

namespace millrace {

std::string token_text(const LoadedModel& model, Token token) {
#if MILLRACE_SESSION_TEXT
  if (model.tokenizer() != nullptr) return model.tokenizer()->token_bytes(token);
#else
  static_cast<void>(model);
#endif
  return fmt::format("token_id:{}", token);
}

void append_logprob(std::string& out, float value) {
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(value) ? value : -9999.0F);
}

void append_token_json(std::string& out, const LoadedModel& model, Token token, float logprob) {
  const std::string bytes = token_text(model, token);
  out += R"("token":)";
  append_quoted(out, bytes);
  out += R"(,"logprob":)";
  append_logprob(out, logprob);
  out += R"(,"bytes":[)";
  bool first = true;
  for (char byte : bytes) {
    fmt::format_to(std::back_inserter(out), "{}{}", first ? "" : ",", static_cast<unsigned char>(byte));
    first = false;
  }
  out += ']';
}

void append_top_json(std::string& out, const LoadedModel& model, const Logprobs& values, bool ids) {
  out += R"(,"top_logprobs":[)";
  for (size_t i = 0; i < values.top.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    if (ids) fmt::format_to(std::back_inserter(out), R"("id":{},)", values.top[i].id);
    append_token_json(out, model, values.top[i].id, values.top[i].logprob);
    out += '}';
  }
  out += ']';
}

}  // namespace millrace
