#include "server/openai/writing.h"

#include <cmath>
#include <iterator>

namespace millrace {
namespace {

// JSON has no infinities; a token that cannot be chosen gets what OpenAI gives it.
void append_number(std::string& out, float value) {
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(value) ? value : -9999.0F);
}

std::string token_text(const LoadedModel& model, Token token) {
#if MILLRACE_SESSION_TEXT
  if (model.tokenizer() != nullptr) return model.tokenizer()->token_bytes(token);
#else
  static_cast<void>(model);
#endif
  return fmt::format("token_id:{}", token);
}

// "token": ..., "logprob": ..., "bytes": [...]
void append_token(std::string& out, const LoadedModel& model, Token token, float logprob) {
  const std::string bytes = token_text(model, token);
  out += R"("token":)";
  append_quoted(out, bytes);
  out += R"(,"logprob":)";
  append_number(out, logprob);
  out += R"(,"bytes":[)";
  bool first = true;
  for (char byte : bytes) {
    fmt::format_to(std::back_inserter(out), "{}{}", first ? "" : ",", static_cast<unsigned char>(byte));
    first = false;
  }
  out += ']';
}

void append_chat_logprobs(std::string& out, const LoadedModel& model, const Choice& choice) {
  out += R"({"content":[)";
  bool first = true;
  for (const ShownLogprobs& one : choice.logprobs()) {
    out += first ? "{" : ",{";
    first = false;
    append_token(out, model, one.token, one.values.chosen);
    out += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < one.values.top.size(); ++i) {
      out += i == 0 ? "{" : ",{";
      append_token(out, model, one.values.top[i].id, one.values.top[i].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += R"(],"refusal":null})";
}

// The older shape: parallel lists.
void append_completion_logprobs(std::string& out, const LoadedModel& model, const Choice& choice) {
  std::string tokens, numbers, tops, offsets;
  for (const ShownLogprobs& one : choice.logprobs()) {
    if (!tokens.empty()) {
      for (std::string* list : {&tokens, &numbers, &tops, &offsets}) *list += ',';
    }
    append_quoted(tokens, token_text(model, one.token));
    append_number(numbers, one.values.chosen);
    fmt::format_to(std::back_inserter(offsets), "{}", one.offset);
    tops += '{';
    for (size_t i = 0; i < one.values.top.size(); ++i) {
      if (i > 0) tops += ',';
      append_quoted(tops, token_text(model, one.values.top[i].id));
      tops += ':';
      append_number(tops, one.values.top[i].logprob);
    }
    tops += '}';
  }
  fmt::format_to(std::back_inserter(out),
                 R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", tokens, numbers,
                 tops, offsets);
}

// "logprobs": ..., "finish_reason": ..., and the ids if they were asked for
void append_tail(std::string& out, const LoadedModel& model, bool chat, const Choice& choice) {
  out += R"(,"logprobs":)";
  if (choice.logprobs().empty()) {
    out += "null";
  } else if (chat) {
    append_chat_logprobs(out, model, choice);
  } else {
    append_completion_logprobs(out, model, choice);
  }
  if (!choice.ids().empty())
    fmt::format_to(std::back_inserter(out), R"(,"token_ids":[{}])", fmt::join(choice.ids(), ","));
  out += R"(,"finish_reason":)";
  if (choice.done()) {
    append_quoted(out, choice.finish_reason());
  } else {
    out += "null";
  }
}

// {"id": ..., "model": ...
void append_stamp(std::string& out, const Stamp& stamp, std::string_view object) {
  fmt::format_to(std::back_inserter(out), R"({{"id":"{}","object":"{}","created":{},"model":)", stamp.id, object,
                 stamp.created);
  append_quoted(out, stamp.model);
  fmt::format_to(std::back_inserter(out), R"(,"system_fingerprint":"{}")", stamp.fingerprint);
}

std::string_view event_object(bool chat) { return chat ? "chat.completion.chunk" : "text_completion"; }

void begin_event(std::string& out, const Stamp& stamp, size_t index) {
  out += stamp.event;
  out += fmt::format_int(index).c_str();
}

}  // namespace

std::string event_opening(const Stamp& stamp) {
  std::string out = "data: ";
  append_stamp(out, stamp, event_object(stamp.chat));
  if (stamp.include_usage) out += R"(,"usage":null)";
  return out + R"(,"choices":[{"index":)";
}

Json usage_json(const Usage& usage) {
  JsonObject out = {{"prompt_tokens", usage.prompt},
                    {"completion_tokens", usage.completion},
                    {"total_tokens", usage.prompt + usage.completion},
                    {"prompt_tokens_details", JsonObject{{"cached_tokens", usage.cached}}}};
  if (usage.accepted + usage.rejected > 0) {
    out["completion_tokens_details"] =
        JsonObject{{"accepted_prediction_tokens", usage.accepted}, {"rejected_prediction_tokens", usage.rejected}};
  }
  return out;
}

std::string choice_json(const LoadedModel& model, bool chat, const Choice& choice, size_t index) {
  std::string out = fmt::format(R"({{"index":{},)", index);
  if (chat) {
    out += R"("message":{"role":"assistant","content":)";
    append_quoted(out, choice.text());
    out += R"(,"refusal":null})";
  } else {
    out += R"("text":)";
    append_quoted(out, choice.text());
  }
  append_tail(out, model, chat, choice);
  out += '}';
  return out;
}

std::string answer_json(const Stamp& stamp, std::string_view choices, const Usage& usage) {
  std::string out;
  append_stamp(out, stamp, stamp.chat ? "chat.completion" : "text_completion");
  fmt::format_to(std::back_inserter(out), R"(,"choices":[{}],"usage":{}}})", choices, to_text(usage_json(usage)));
  return out;
}

void append_role_event(std::string& out, const Stamp& stamp, size_t index) {
  begin_event(out, stamp, index);
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})";
  out += "\n\n";
}

void append_choice_event(std::string& out, const LoadedModel& model, const Stamp& stamp, const Choice& choice,
                         size_t index) {
  begin_event(out, stamp, index);
  if (stamp.chat) {
    out += R"(,"delta":{)";
    if (!choice.text().empty() || !choice.done()) {
      out += R"("content":)";
      append_quoted(out, choice.text());
    }
    out += '}';
  } else {
    out += R"(,"text":)";
    append_quoted(out, choice.text());
  }
  append_tail(out, model, stamp.chat, choice);
  out += "}]}\n\n";
}

void append_usage_event(std::string& out, const Stamp& stamp, const Usage& usage) {
  out += "data: ";
  append_stamp(out, stamp, event_object(stamp.chat));
  fmt::format_to(std::back_inserter(out), R"(,"choices":[],"usage":{}}})", to_text(usage_json(usage)));
  out += "\n\n";
}

void append_error_event(std::string& out, const ApiError& failure) {
  out += "data: " + to_text(error_json(failure)) + "\n\n";
}

void append_done_event(std::string& out) { out += "data: [DONE]\n\n"; }

}  // namespace millrace
