#include "server/batch_file.h"

#include "base/json.h"
#include "server/glance.h"
#include "server/schema.h"

namespace millrace {
namespace {

// A line may be longer and deeper than a body may be: then its own answer says so, under its own id.
constexpr unsigned kDeepestLine = 256;
constexpr size_t kLongestRow = size_t{1} << 30;

std::string what_is_wrong(const Json& json) {
  const Json *method = find(json, "method"), *url = find(json, "url"), *body = find(json, "body");
  if (const Json* id = find(json, "custom_id"); id == nullptr || !id->is_string()) return "it has no custom_id";
  if (method != nullptr && *method != Json("POST")) return "its method must be POST";
  if (url == nullptr || (*url != Json("/v1/chat/completions") && *url != Json("/v1/completions")))
    return "its url must be /v1/chat/completions or /v1/completions";
  if (body == nullptr || !body->is_object()) return "it has no body";
  if (const Json* stream = find(*body, "stream"); stream != nullptr && *stream == Json(true))
    return "answers of a batch are not streamed";
  return {};
}

}  // namespace

BatchLine read_batch_line(std::string_view text, int64_t number) {
  BatchLine line{.id = fmt::format("line-{}", number), .wrong = {}, .request = {}};
  auto wrong = [&](std::string_view what) {
    line.wrong = fmt::format("line {}: {}", number, what);
    return line;
  };
  const bool too_long = text.size() > kLongestBatchLine;
  auto json = too_long ? Result<Json>(error(Code::invalid, "longer than 64 MiB"))
                       : parse_json(text, {.max_bytes = kLongestBatchLine, .max_depth = kDeepestLine});
  if (!json.ok()) {
    if (auto id = string_at_a_glance(text, "custom_id"); id && !id->empty()) line.id = *std::move(id);
    return wrong(json.error().message);
  }
  if (const Json* id = find(*json, "custom_id"); id != nullptr && id->is_string())
    line.id = std::string(id->get_string());
  if (const std::string what = what_is_wrong(*json); !what.empty()) return wrong(what);
  line.request = {.method = "POST",
                  .path = std::string(find(*json, "url")->get_string()),
                  .body = to_text(*find(*json, "body")),
                  .local = true};
  return line;
}

Result<void> BatchRecord::add_row(std::string_view row) {
  auto json = parse_json(row, {.max_bytes = kLongestRow, .max_depth = kDeepestLine});
  const Json* id = json.ok() ? find(*json, "custom_id") : nullptr;
  const Json* response = json.ok() ? find(*json, "response") : nullptr;
  const Json* failure = json.ok() ? find(*json, "error") : nullptr;
  if (id == nullptr || !id->is_string() || (response == nullptr && failure == nullptr))
    return error(Code::invalid, "it is no answer of a batch");
  if (response != nullptr) {
    answered_.emplace(id->get_string());
    return {};
  }
  const Json* message = find(*failure, "message");
  refused_.emplace(id->get_string(), message != nullptr && message->is_string() ? message->get_string() : "");
  return {};
}

bool BatchRecord::looks_like_row(std::string_view begun) {
  for (const std::string_view begin : {R"({"id":"batch_req_)", R"({"id":null,"custom_id":")"})
    if (begun.substr(0, begin.size()) == begin.substr(0, begun.size())) return true;
  return false;
}

BatchRecord::Next BatchRecord::next(BatchLine& line, int64_t number) {
  if (line.wrong.empty() && !seen_.insert(line.id).second)
    line.wrong = fmt::format("line {}: its custom_id came before", number);
  if (!line.wrong.empty()) return refused_.contains({line.id, line.wrong}) ? Next::skip : Next::refuse;
  return answered_.contains(line.id) ? Next::skip : Next::ask;
}

std::string batch_answer_row(std::string_view id, const HttpAnswer& answer, int64_t number) {
  auto body = parse_json(answer.body, {.max_bytes = kLongestRow});
  const std::string name = fmt::format("batch_req_{}", number);
  JsonObject response = {
      {"status_code", answer.status}, {"request_id", name}, {"body", body.ok() ? std::move(*body) : Json()}};
  for (const auto& [header, value] : answer.headers)
    if (header == kIgnoredHeader) response["ignored"] = value;
  return to_text(JsonObject{{"id", name}, {"custom_id", id}, {"response", std::move(response)}, {"error", nullptr}});
}

std::string batch_error_row(std::string_view id, std::string_view message) {
  return to_text(JsonObject{{"id", nullptr},
                            {"custom_id", id},
                            {"response", nullptr},
                            {"error", JsonObject{{"code", "invalid_request"}, {"message", message}}}});
}

}  // namespace millrace
