#include "server/openai/writing.h"

#include <algorithm>
#include <iterator>

#include "server/token_json.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

void append_chat_logprobs(std::string& out, const LoadedModel& model, const Choice& choice) {
  out += R"({"content":[)";
  bool first = true;
  for (const ShownLogprobs& one : choice.logprobs()) {
    out += first ? "{" : ",{";
    first = false;
    append_token_json(out, model, one.token, one.values.chosen);
    append_top_json(out, model, one.values);
    out += '}';
  }
  out += R"(],"refusal":null})";
}

// The older shape: parallel lists.
struct Lists {
  std::string tokens, numbers, tops, offsets;

  void add(const LoadedModel& model, const ShownLogprobs& one, size_t offset, bool known) {
    if (!tokens.empty()) {
      for (std::string* list : {&tokens, &numbers, &tops, &offsets}) *list += ',';
    }
    append_quoted(tokens, token_text(model, one.token));
    fmt::format_to(std::back_inserter(offsets), "{}", offset);
    if (!known) {  // nothing comes before the first token
      numbers += "null";
      tops += "null";
      return;
    }
    append_logprob(numbers, one.values.chosen);
    tops += '{';
    for (size_t i = 0; i < one.values.top.size(); ++i) {
      if (i > 0) tops += ',';
      append_quoted(tops, token_text(model, one.values.top[i].id));
      tops += ':';
      append_logprob(tops, one.values.top[i].logprob);
    }
    tops += '}';
  }
};

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

void append_completion_logprobs(std::string& out, const LoadedModel& model, const Choice& choice, bool echo) {
  Lists lists;
  size_t offset = 0;
  for (size_t i = 0; echo && i < choice.prompt_logprobs().size(); ++i) {
    const ShownLogprobs& one = choice.prompt_logprobs()[i];
    lists.add(model, one, offset, i > 0);
    offset += characters(token_text(model, one.token));
  }
  for (const ShownLogprobs& one : choice.logprobs()) lists.add(model, one, offset + one.offset, true);
  fmt::format_to(std::back_inserter(out),
                 R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", lists.tokens,
                 lists.numbers, lists.tops, lists.offsets);
}

// vLLM's shape: for each token of the prompt an object of ids, the first null.
void append_prompt_logprobs(std::string& out, const LoadedModel& model, const Choice& choice) {
  auto one_of = [&](Token token, float logprob, std::string_view rank) {
    fmt::format_to(std::back_inserter(out), R"("{}":{{"logprob":)", token);
    append_logprob(out, logprob);
    fmt::format_to(std::back_inserter(out), R"(,"rank":{},"decoded_token":)", rank);
    append_quoted(out, token_text(model, token));
    out += '}';
  };
  out += R"("prompt_logprobs":[null)";
  for (size_t i = 1; i < choice.prompt_logprobs().size(); ++i) {
    const ShownLogprobs& shown = choice.prompt_logprobs()[i];
    out += ",{";
    bool there = false;
    for (size_t j = 0; j < shown.values.top.size(); ++j) {
      if (j > 0) out += ',';
      one_of(shown.values.top[j].id, shown.values.top[j].logprob, fmt::format("{}", j + 1));
      there |= shown.values.top[j].id == shown.token;
    }
    if (!there) {
      if (!shown.values.top.empty()) out += ',';
      one_of(shown.token, shown.values.chosen, "null");
    }
    out += '}';
  }
  out += ']';
}

// "logprobs": ..., "finish_reason": ..., and the ids if they were asked for
void append_tail(std::string& out, const LoadedModel& model, const Stamp& stamp, const Choice& choice, bool last) {
  out += R"(,"logprobs":)";
  if (choice.logprobs().empty()) {
    out += "null";
  } else if (stamp.chat) {
    append_chat_logprobs(out, model, choice);
  } else {
    append_completion_logprobs(out, model, choice, choice.echoed());
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
  if (!choice.prompt_logprobs().empty()) {
    out += ',';
    append_prompt_logprobs(out, model, choice);
  }
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
