#include "server/openai/writing.h"

#include <cmath>
#include <iterator>

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

// Length of the valid UTF-8 character at the front of the text, 0 if there is none.
size_t character(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (first == 0xE0 && byte(1) < 0xA0) return 0;  // longer than need be
  if (first == 0xED && byte(1) > 0x9F) return 0;  // half of a surrogate pair
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;  // beyond the last character
  return length;
}

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
void append_tail(std::string& out, const LoadedModel& model, const Stamp& stamp, const Choice& choice, bool last) {
  out += R"(,"logprobs":)";
  if (choice.logprobs().empty()) {
    out += "null";
  } else if (stamp.chat) {
    append_chat_logprobs(out, model, choice);
  } else {
    append_completion_logprobs(out, model, choice);
  }
  if (!choice.ids().empty())
    fmt::format_to(std::back_inserter(out), R"(,"token_ids":[{}])", fmt::join(choice.ids(), ","));
  out += R"(,"finish_reason":)";
  if (last) {
    const std::string_view reason = choice.finish_reason();
    append_quoted(out, stamp.functions && reason == "tool_calls" ? "function_call" : reason);
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

// What a message with calls has beside its content.
void append_calls(std::string& out, const Stamp& stamp, const Choice& choice) {
  bool first = true;
  std::string arguments;
  const auto& parts = choice.parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != Kind::call) continue;
    arguments.clear();
    for (size_t next = i + 1; next < parts.size() && parts[next].kind == Kind::arguments; ++next)
      arguments += parts[next].text;
    if (!stamp.functions) {
      out += first ? R"(,"tool_calls":[{"id":)" : R"(,{"id":)";
      append_quoted(out, parts[i].id);
      out += R"(,"type":"function","function":{"name":)";
    } else if (first) {
      out += R"(,"function_call":{"name":)";
    } else {
      break;  // the older shape has room for one
    }
    append_quoted(out, parts[i].text);
    out += R"(,"arguments":)";
    append_quoted(out, arguments);
    out += stamp.functions ? "}" : "}}";
    first = false;
  }
  if (!first && !stamp.functions) out += ']';
}

void append_message(std::string& out, const Stamp& stamp, const Choice& choice) {
  std::string content, reasoning;
  for (const AnswerPart& part : choice.parts()) {
    if (part.kind == Kind::content) content += part.text;
    if (part.kind == Kind::reasoning) reasoning += part.text;
  }
  out += R"("message":{"role":"assistant","content":)";
  if (content.empty() && (choice.calls() > 0 || !reasoning.empty())) {
    out += "null";
  } else {
    append_quoted(out, content);
  }
  if (!reasoning.empty()) {
    out += R"(,"reasoning_content":)";
    append_quoted(out, reasoning);
  }
  append_calls(out, stamp, choice);
  out += R"(,"refusal":null})";
}

// {"content": ...}, or what else came; `call` is the number of the call it belongs to.
void append_delta(std::string& out, const Stamp& stamp, const AnswerPart& part, int call) {
  if (part.kind == Kind::content || part.kind == Kind::reasoning) {
    out += part.kind == Kind::content ? R"({"content":)" : R"({"reasoning_content":)";
    append_quoted(out, part.text);
    out += '}';
    return;
  }
  const bool begins = part.kind == Kind::call;
  if (stamp.functions) {
    out += R"({"function_call":{)";
  } else {
    fmt::format_to(std::back_inserter(out), R"({{"tool_calls":[{{"index":{},)", call);
    if (begins) {
      out += R"("id":)";
      append_quoted(out, part.id);
      out += R"(,"type":"function",)";
    }
    out += R"("function":{)";
  }
  if (begins) {
    out += R"("name":)";
    append_quoted(out, part.text);
    out += ',';
  }
  out += R"("arguments":)";
  append_quoted(out, begins ? "" : part.text);
  out += stamp.functions ? "}}" : "}}]}";
}

// One event for each part, in order; the last has what else there is. A call's end is an event of its own.
void append_deltas(std::string& out, const LoadedModel& model, const Stamp& stamp, const Choice& choice, size_t index) {
  const auto& parts = choice.parts();
  int call = choice.earlier_calls() - 1;
  bool told = false;  // all but what belongs to the last event
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == Kind::ended) continue;
    call += parts[i].kind == Kind::call ? 1 : 0;
    if (stamp.functions && call > 0 && parts[i].kind != Kind::content) continue;
    begin_event(out, stamp, index);
    out += R"(,"delta":)";
    append_delta(out, stamp, parts[i], call);
    told = i + 1 == parts.size() && (parts[i].kind == Kind::content || !choice.done());
    if (told) {
      append_tail(out, model, stamp, choice, choice.done());
      out += "}]}\n\n";
    } else {
      out += R"(,"logprobs":null,"finish_reason":null}]})";
      out += "\n\n";
    }
  }
  const bool more = choice.done() || !choice.logprobs().empty() || !choice.ids().empty();
  if (told || !more) return;
  begin_event(out, stamp, index);
  out += choice.done() ? R"(,"delta":{})" : R"(,"delta":{"content":""})";
  append_tail(out, model, stamp, choice, choice.done());
  out += "}]}\n\n";
}

// Bytes at the front of the text that stand for themselves in a JSON string and need no look at their neighbours.
size_t plain_bytes(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && text[count] >= 0x20 && text[count] < 0x7F && text[count] != '"' && text[count] != '\\')
    ++count;
  return count;
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    if (const size_t plain = plain_bytes(text); plain > 0) {
      out += text.substr(0, plain);
      text.remove_prefix(plain);
      continue;
    }
    const auto first = static_cast<unsigned char>(text[0]);
    if (first == '"' || first == '\\') {
      out += '\\';
      out += text[0];
    } else if (first == '\n') {
      out += "\\n";
    } else if (first < 0x20 || first == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", first);
    } else if (const size_t length = character(text); length > 0) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(1);
  }
  out += '"';
}

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
  JsonObject details;
  if (usage.reasoning > 0) details["reasoning_tokens"] = usage.reasoning;
  if (usage.accepted + usage.rejected > 0) {
    details["accepted_prediction_tokens"] = usage.accepted;
    details["rejected_prediction_tokens"] = usage.rejected;
  }
  if (!details.empty()) out["completion_tokens_details"] = std::move(details);
  return out;
}

std::string choice_json(const LoadedModel& model, const Stamp& stamp, const Choice& choice, size_t index) {
  std::string out = fmt::format(R"({{"index":{},)", index);
  if (stamp.chat) {
    append_message(out, stamp, choice);
  } else {
    out += R"("text":)";
    append_quoted(out, choice.text());
  }
  append_tail(out, model, stamp, choice, choice.done());
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
  if (stamp.chat) return append_deltas(out, model, stamp, choice, index);
  begin_event(out, stamp, index);
  out += R"(,"text":)";
  append_quoted(out, choice.text());
  append_tail(out, model, stamp, choice, choice.done());
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
