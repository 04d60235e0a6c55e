#include "server/api_error.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// Whole seconds, as Retry-After has them; whoever waits longer than an hour may as well ask in between.
double whole_seconds(double wait) { return std::clamp(std::ceil(wait), 1.0, 3600.0); }

}  // namespace

ApiError bad_field(std::string_view field, std::string message) {
  return {.message = std::move(message), .param = std::string(field), .code = "invalid_value"};
}

ApiError not_built(std::string_view field, std::string message) {
  return {.message = std::move(message), .param = std::string(field), .code = "unsupported_parameter"};
}

ApiError unfinished() {
  return {.status = 500,
          .message = "the server could not finish this request: try again later",
          .type = "server_error",
          .code = "internal_error"};
}

ApiError from_error(const Error& failure) {
  switch (failure.code) {
    case Code::invalid:
    case Code::no_memory:  // more than the cache could ever hold: asking again does not help
      return {.message = failure.message, .code = "invalid_value"};
    case Code::unsupported:
      return {.message = failure.message, .code = "unsupported_parameter"};
    case Code::not_found:
      return {.status = 404, .message = failure.message, .code = "not_found"};
    case Code::overloaded:
      return {.status = 429, .message = failure.message, .type = "rate_limit_error", .code = "overloaded"};
    case Code::cancelled:
      return {.status = 503, .message = failure.message, .type = "server_error", .code = "shutting_down"};
    default:
      return {.status = 500, .message = failure.message, .type = "server_error", .code = "internal_error"};
  }
}

ApiError engine_fails(const Error& why) {
  return {
      .status = 503, .message = why.message, .type = "server_error", .code = "engine_unavailable", .retry_after = 5};
}

ApiError come_again(ApiError failure, double wait_seconds) {
  failure.message += fmt::format("; try again in about {:.0f} s", whole_seconds(wait_seconds));
  failure.retry_after = wait_seconds;
  return failure;
}

std::string_view shortened(std::string_view text) {
  constexpr size_t kShown = 64;
  if (text.size() <= kShown) return text;
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

Json error_json(const ApiError& failure) {
  auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return JsonObject{{"error", JsonObject{{"message", failure.message},
                                         {"type", failure.type},
                                         {"param", or_null(failure.param)},
                                         {"code", or_null(failure.code)}}}};
}

HttpAnswer error_answer(const ApiError& failure) {
  HttpAnswer answer{.status = failure.status, .body = to_text(error_json(failure))};
  if (failure.retry_after) {
    answer.headers.emplace_back("Retry-After", fmt::format("{:.0f}", whole_seconds(*failure.retry_after)));
  }
  if (failure.status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

}  // namespace millrace
