#include "server/anthropic/writing.h"

#include <iterator>

#include "server/quoted.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

std::string_view stop_reason(const Choice& choice) {
  if (choice.finish_reason() == "length") return "max_tokens";
  if (choice.finish_reason() == "tool_calls") return "tool_use";
  return choice.stopped_by().empty() ? "end_turn" : "stop_sequence";
}

// Tokens found in the cache are counted apart.
std::string usage_text(int64_t prompt, int64_t cached, int64_t completion) {
  return fmt::format(
      R"({{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":{},"output_tokens":{}}})",
      prompt - cached, cached, completion);
}

void append_event(std::string& out, std::string_view type, std::string_view rest) {
  fmt::format_to(std::back_inserter(out), "event: {}\ndata: {{\"type\":\"{}\"{}}}\n\n", type, type, rest);
}

void append_part_event(std::string& out, std::string_view type, int index, std::string_view rest) {
  append_event(out, type, fmt::format(R"(,"index":{}{})", index, rest));
}

// {"id": ..., "model": ...
std::string opening(const Stamp& stamp) {
  return fmt::format(R"({{"id":"{}","type":"message","role":"assistant","model":{})", stamp.id,
                     quoted_text(stamp.model));
}

// Arguments are an object, or, where the answer was cut off within them, what there is of one.
std::string input_text(std::string_view arguments) {
  if (arguments.empty()) return "{}";
  auto parsed = parse_json(arguments);
  if (parsed.ok() && parsed->is_object()) return to_text(*parsed);
  return fmt::format(R"({{"unfinished":{}}})", quoted_text(arguments));
}

void close_part(std::string& out, MessageStream& stream) {
  if (stream.open) append_part_event(out, "content_block_stop", stream.index, "");
  stream.open = false;
}

void open_part(std::string& out, MessageStream& stream, const AnswerPart& part) {
  close_part(out, stream);
  stream.open = true;
  stream.kind = part.kind;
  ++stream.index;
  std::string block = R"({"type":"text","text":""})";
  if (part.kind == Kind::reasoning) block = R"({"type":"thinking","thinking":"","signature":""})";
  if (part.kind == Kind::call)
    block = fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{{}}}})", quoted_text(part.id),
                        quoted_text(part.text));
  append_part_event(out, "content_block_start", stream.index, R"(,"content_block":)" + block);
}

void append_part(std::string& out, MessageStream& stream, const AnswerPart& part) {
  if (part.kind == Kind::ended) return close_part(out, stream);
  if (part.text.empty()) return;
  const bool goes_on = stream.open && (part.kind == stream.kind || part.kind == Kind::arguments);
  if (!goes_on || part.kind == Kind::call) open_part(out, stream, part);
  if (part.kind == Kind::call) return;
  const std::string_view type = part.kind == Kind::content     ? R"("text_delta","text")"
                                : part.kind == Kind::reasoning ? R"("thinking_delta","thinking")"
                                                               : R"("input_json_delta","partial_json")";
  append_part_event(out, "content_block_delta", stream.index,
                    fmt::format(R"(,"delta":{{"type":{}:{}}})", type, quoted_text(part.text)));
}

std::string or_null(std::string_view text) { return text.empty() ? "null" : quoted_text(text); }

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
    case 405:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 529:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// What is busy or being loaded is "overloaded" in this interface's words, with a status of its own.
int status_of(const ApiError& failure) { return failure.status == 503 ? 529 : failure.status; }

}  // namespace

std::string content_json(std::span<const AnswerPart> list) {
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) {
    const AnswerPart& part = list[i];
    if (part.kind == Kind::ended || part.kind == Kind::arguments) continue;
    if (part.text.empty()) continue;
    if (!out.empty()) out += ',';
    if (part.kind == Kind::content) {
      out += fmt::format(R"({{"type":"text","text":{}}})", quoted_text(part.text));
    } else if (part.kind == Kind::reasoning) {
      out += fmt::format(R"({{"type":"thinking","thinking":{},"signature":""}})", quoted_text(part.text));
    } else {
      std::string arguments;
      for (size_t j = i + 1; j < list.size() && list[j].kind == Kind::arguments; ++j) arguments += list[j].text;
      out += fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{}}})", quoted_text(part.id),
                         quoted_text(part.text), input_text(arguments));
    }
  }
  return out;
}

std::string message_json(const Stamp& stamp, const Choice& choice, const Usage& usage) {
  return fmt::format(R"({},"content":[{}],"stop_reason":"{}","stop_sequence":{},"usage":{}}})", opening(stamp),
                     content_json(choice.parts()), stop_reason(choice), or_null(choice.stopped_by()),
                     usage_text(usage.prompt, usage.cached, usage.completion));
}

void append_message_start(std::string& out, const Stamp& stamp) {
  append_event(out, "message_start",
               fmt::format(R"(,"message":{},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{}}})",
                           opening(stamp), usage_text(stamp.prompt, stamp.cached, 0)));
  append_event(out, "ping", "");
}

void append_message_parts(std::string& out, MessageStream& stream, std::span<const AnswerPart> parts) {
  for (const AnswerPart& part : parts) append_part(out, stream, part);
}

void end_message_parts(std::string& out, MessageStream& stream, const Choice& choice) {
  close_part(out, stream);
  stream.stop_reason = stop_reason(choice);
  stream.stop_sequence = choice.stopped_by();
}

void append_message_end(std::string& out, const MessageStream& stream, const Usage& usage) {
  append_event(out, "message_delta",
               fmt::format(R"(,"delta":{{"stop_reason":"{}","stop_sequence":{}}},"usage":{})", stream.stop_reason,
                           or_null(stream.stop_sequence), usage_text(usage.prompt, usage.cached, usage.completion)));
  append_event(out, "message_stop", "");
}

Json anthropic_error(const ApiError& failure) {
  return JsonObject{{"type", "error"},
                    {"error", JsonObject{{"type", error_type(status_of(failure))}, {"message", failure.message}}}};
}

HttpAnswer anthropic_refusal(const ApiError& failure) {
  HttpAnswer answer = error_answer(failure);  // with the headers every refusal has
  answer.status = status_of(failure);
  answer.body = to_text(anthropic_error(failure));
  return answer;
}

void append_message_error(std::string& out, const ApiError& failure) {
  out += "event: error\ndata: " + to_text(anthropic_error(failure)) + "\n\n";
}

}  // namespace millrace
