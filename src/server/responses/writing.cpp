#include "server/responses/writing.h"

#include <iterator>

#include "server/asked_tools.h"
#include "server/quoted.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

void append_event(std::string& out, ResponseStream& stream, std::string_view type, std::string_view rest) {
  fmt::format_to(std::back_inserter(out), "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},{2}}}\n\n",
                 type, stream.sequence++, rest);
}

// Where in the answer an event belongs: "item_id", "output_index" and, but for calls, "content_index".
std::string place(const ResponseStream& stream) {
  const std::string_view within = stream.kind == Kind::call ? "" : R"(,"content_index":0)";
  return fmt::format(R"("item_id":"{}","output_index":{}{})", stream.id, stream.index, within);
}

std::string part_json(const ResponseStream& stream, std::string_view text) {
  if (stream.kind == Kind::reasoning) return fmt::format(R"({{"type":"reasoning_text","text":{}}})", quoted_text(text));
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[]}})", quoted_text(text));
}

// The open item: as it begins, or whole.
std::string item_json(const ResponseStream& stream, bool whole) {
  const std::string_view status = !whole ? "in_progress" : stream.cut ? "incomplete" : "completed";
  if (stream.kind == Kind::call) {
    return fmt::format(R"({{"type":"function_call","id":"{}","status":"{}","call_id":{},"name":{},"arguments":{}}})",
                       stream.id, status, quoted_text(stream.call_id), quoted_text(stream.name),
                       quoted_text(whole ? stream.text : ""));
  }
  const std::string content = whole ? part_json(stream, stream.text) : "";
  if (stream.kind == Kind::reasoning)
    return fmt::format(R"({{"type":"reasoning","id":"{}","status":"{}","summary":[],"content":[{}]}})", stream.id,
                       status, content);
  return fmt::format(R"({{"type":"message","id":"{}","status":"{}","role":"assistant","content":[{}]}})", stream.id,
                     status, content);
}

std::string_view event_name(Kind kind) {
  return kind == Kind::call        ? "response.function_call_arguments"
         : kind == Kind::reasoning ? "response.reasoning_text"
                                   : "response.output_text";
}

// The item that is whole, as a part of a message.
void add_to_message(ResponseStream& stream) {
  if (stream.kind == Kind::call) {
    stream.said.tool_calls.push_back(call_json(stream.call_id, stream.name, Json(stream.text)));
  } else {
    (stream.kind == Kind::reasoning ? stream.said.reasoning : stream.said.content) += stream.text;
  }
}

void close_item(std::string* events, ResponseStream& stream) {
  if (!std::exchange(stream.open, false)) return;
  const std::string item = item_json(stream, true);
  if (!stream.items.empty()) stream.items += ',';
  stream.items += item;
  add_to_message(stream);
  if (events == nullptr) return;
  const std::string_view field = stream.kind == Kind::call ? "arguments" : "text";
  std::string rest = fmt::format(R"({},"{}":{})", place(stream), field, quoted_text(stream.text));
  if (stream.kind == Kind::call) rest += fmt::format(R"(,"name":{})", quoted_text(stream.name));
  if (stream.kind == Kind::content) rest += R"(,"logprobs":[])";
  append_event(*events, stream, fmt::format("{}.done", event_name(stream.kind)), rest);
  if (stream.kind != Kind::call)
    append_event(*events, stream, "response.content_part.done",
                 fmt::format(R"({},"part":{})", place(stream), part_json(stream, stream.text)));
  append_event(*events, stream, "response.output_item.done",
               fmt::format(R"("output_index":{},"item":{})", stream.index, item));
}

void open_item(std::string* events, ResponseStream& stream, const AnswerPart& part) {
  close_item(events, stream);
  stream.open = true;
  stream.kind = part.kind;
  ++stream.index;
  // The same for the same answer, so that a stream that is gone on with has them again.
  stream.id = fmt::format("{}{}{:02x}",
                          part.kind == Kind::call        ? "fc_"
                          : part.kind == Kind::reasoning ? "rs_"
                                                         : "msg_",
                          stream.name_of_answer, stream.index);
  stream.text.clear();
  if (part.kind == Kind::call) {
    stream.call_id = part.id;
    stream.name = part.text;
  }
  if (events == nullptr) return;
  append_event(*events, stream, "response.output_item.added",
               fmt::format(R"("output_index":{},"item":{})", stream.index, item_json(stream, false)));
  if (part.kind != Kind::call)
    append_event(*events, stream, "response.content_part.added",
                 fmt::format(R"({},"part":{})", place(stream), part_json(stream, "")));
}

void take_part(std::string* events, ResponseStream& stream, const AnswerPart& part) {
  if (part.kind == Kind::ended) return close_item(events, stream);
  if (part.text.empty()) return;
  const bool goes_on = stream.open && (part.kind == stream.kind || part.kind == Kind::arguments);
  if (!goes_on || part.kind == Kind::call) open_item(events, stream, part);
  if (part.kind == Kind::call) return;
  stream.text += part.text;
  if (events == nullptr) return;
  const std::string_view more = part.kind == Kind::content ? R"(,"logprobs":[])" : "";
  append_event(*events, stream, fmt::format("{}.delta", event_name(stream.kind)),
               fmt::format(R"({},"delta":{}{})", place(stream), quoted_text(part.text), more));
}

std::string usage_json(const Usage& usage) {
  return fmt::format(R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
                     R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
                     usage.prompt, usage.cached, usage.completion, usage.reasoning, usage.prompt + usage.completion);
}

// The whole object, with what changes from its beginning to its end.
std::string object_json(const Stamp& stamp, std::string_view status, std::string_view error, std::string_view details,
                        std::string_view items, std::string_view usage) {
  return fmt::format(
      R"({{"id":"{}","object":"response","created_at":{},"status":"{}","background":false,"error":{},)"
      R"("incomplete_details":{},"instructions":null,"max_output_tokens":null,"model":{},"output":[{}],)"
      R"("parallel_tool_calls":true,"previous_response_id":{},"reasoning":{{"effort":null,"summary":null}},)"
      R"("store":{},"temperature":null,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],)"
      R"("top_p":null,"truncation":"disabled","usage":{},"user":null,"metadata":{{}}}})",
      stamp.id, stamp.created, status, error, details, quoted_text(stamp.model), items,
      stamp.previous.empty() ? "null" : quoted_text(stamp.previous), stamp.keep ? "true" : "false", usage);
}

}  // namespace

void take_parts(std::string* events, ResponseStream& stream, std::span<const AnswerPart> parts) {
  for (const AnswerPart& part : parts) take_part(events, stream, part);
}

void end_parts(std::string* events, ResponseStream& stream, bool cut) {
  stream.cut = cut;
  close_item(events, stream);
}

std::string response_json(const Stamp& stamp, const ResponseStream& stream, const Usage& usage) {
  return object_json(stamp, stream.cut ? "incomplete" : "completed", "null",
                     stream.cut ? R"({"reason":"max_output_tokens"})" : "null", stream.items, usage_json(usage));
}

void append_response_start(std::string& out, const Stamp& stamp, ResponseStream& stream) {
  const std::string begun =
      fmt::format(R"("response":{})", object_json(stamp, "in_progress", "null", "null", "", "null"));
  append_event(out, stream, "response.created", begun);
  append_event(out, stream, "response.in_progress", begun);
}

void append_response_end(std::string& out, const Stamp& stamp, ResponseStream& stream, const Usage& usage) {
  std::string body = response_json(stamp, stream, usage);
  append_event(out, stream, stream.cut ? "response.incomplete" : "response.completed",
               fmt::format(R"("response":{})", body));
  if (stamp.keep) stamp.keep(stamp.id, std::move(body), std::move(stream.said));
}

void append_response_failure(std::string& out, const Stamp& stamp, ResponseStream& stream, const ApiError& failure) {
  const std::string_view code = failure.status == 429 ? "rate_limit_exceeded" : "server_error";
  const std::string error = fmt::format(R"({{"code":"{}","message":{}}})", code, quoted_text(failure.message));
  append_event(out, stream, "response.failed",
               fmt::format(R"("response":{})", object_json(stamp, "failed", error, "null", stream.items, "null")));
}

}  // namespace millrace
