#include "server/own/operate.h"

#include "server/openai/read_request.h"
#include "server/own/adapters.h"
#include "server/service.h"

namespace millrace {
namespace {

std::optional<ApiError> check_operator(Service& service, const Call& call) {
  if (auto failure = service.check_writes()) return failure;
  if (call.visitor.oversees) return {};
  return ApiError{.status = 403,
                  .message = "this is for an operator's key only",
                  .type = "permission_error",
                  .code = "operator_only"};
}

HttpAnswer status_answer(std::string_view status) { return {.body = to_text(JsonObject{{"status", status}})}; }

Controls::Done answer_with(const std::shared_ptr<Exchange>& exchange) {
  return [exchange](Result<std::string> said) {
    exchange->answer(said.ok() ? status_answer(*said) : error_answer(from_error(said.error())));
  };
}

// vLLM's word for what becomes of open answers.
std::optional<ApiError> read_mode(std::string_view query, OpenAnswers otherwise, OpenAnswers& out) {
  const std::string mode = query_value(query, "mode");
  out = otherwise;
  if (mode.empty()) return {};
  if (mode == "wait")
    out = OpenAnswers::wait;
  else if (mode == "abort")
    out = OpenAnswers::abort;
  else if (mode == "keep")
    out = OpenAnswers::keep;
  else
    return bad_field("mode", fmt::format("'{}' is none of wait, abort and keep", shortened(mode)));
  return {};
}

std::optional<ApiError> start_update(Service& service, const JsonObject& body, const Noted& answer) {
  auto path =
      path_within(service.options().weights_folder, find(body, "model_path")->get_string(), "weights (--weights-dir)");
  if (!path.ok()) {
    ApiError failure = from_error(path.error());
    failure.param = "model_path";
    return failure;
  }
  OpenAnswers open = OpenAnswers::wait;
  if (const Json* mode = find(body, "mode")) {
    if (mode->get_string() == "abort") open = OpenAnswers::abort;
    if (mode->get_string() == "keep") open = OpenAnswers::keep;
  }
  if (const Json* abort = find(body, "abort_all_requests"); abort != nullptr && abort->get_bool())
    open = OpenAnswers::abort;
  std::string version;
  if (const Json* given = find(body, "weight_version")) version = std::string(given->get_string());
  service.controls().update(path->string(), version, open, [&service, answer](Result<std::string> said) {
    if (!said.ok()) return answer(error_answer(from_error(said.error())));
    answer({.body = to_text(JsonObject{{"success", true},
                                       {"message", *said},
                                       {"num_paused_requests", 0},
                                       {"fingerprint", service.model()->fingerprint}})});
  });
  return {};
}

}  // namespace

void pause_server(Service& service, Call call) {
  OpenAnswers open = OpenAnswers::abort;
  auto failure = check_operator(service, call);
  if (!failure) failure = read_mode(call.request.query, OpenAnswers::abort, open);
  if (failure) return call.exchange->answer(error_answer(*failure));
  const bool clear = query_value(call.request.query, "clear_cache") != "false";
  service.controls().pause(open, clear, answer_with(call.exchange));
}

void resume_server(Service& service, Call call) {
  if (auto failure = check_operator(service, call)) return call.exchange->answer(error_answer(*failure));
  service.controls().resume(answer_with(call.exchange));
}

void is_paused(Service& service, Call call) {
  call.exchange->answer({.body = to_text(JsonObject{{"is_paused", service.controls().paused()}})});
}

// Level 1 keeps weights in memory elsewhere; here they come from their files again at either level.
void sleep_server(Service& service, Call call) {
  OpenAnswers open = OpenAnswers::keep;
  auto failure = check_operator(service, call);
  if (!failure) failure = read_mode(call.request.query, OpenAnswers::keep, open);
  const std::string level = query_value(call.request.query, "level");
  if (!failure && !level.empty() && level != "1" && level != "2")
    failure = bad_field("level", fmt::format("'{}' is neither 1 nor 2", shortened(level)));
  if (failure) return call.exchange->answer(error_answer(*failure));
  service.controls().sleep(open, answer_with(call.exchange));
}

void wake_server(Service& service, Call call) {
  if (auto failure = check_operator(service, call)) return call.exchange->answer(error_answer(*failure));
  service.controls().wake_up(answer_with(call.exchange));
}

void is_sleeping(Service& service, Call call) {
  call.exchange->answer({.body = to_text(JsonObject{{"is_sleeping", service.controls().sleeping()}})});
}

void reset_prefix_cache(Service& service, Call call) {
  if (auto failure = check_operator(service, call)) return call.exchange->answer(error_answer(*failure));
  service.model()->engine->reset_cache([exchange = call.exchange](Result<CacheFileSummary> gone) {
    exchange->answer(gone.ok() ? HttpAnswer{.body = to_text(JsonObject{{"success", true}, {"nodes", gone->nodes}})}
                               : error_answer(from_error(gone.error())));
  });
}

void update_weights(Service& service, Call call) {
  auto failure = check_operator(service, call);
  if (!failure && (service.options().weights_folder.empty() || !service.options().load))
    failure = ApiError{.status = 403,
                       .message = "this server takes no other weights while it runs; start it with --weights-dir DIR",
                       .type = "permission_error",
                       .code = "not_enabled"};
  if (failure) return call.exchange->answer(error_answer(*failure));
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  service.work(
      [&service, request, exchange = call.exchange] {
        JsonObject body;
        Ignored ignored;
        auto wrong = read_body(request->body, kUpdateWeights, service.options().body, body, ignored);
        const Noted answer = noting(ignored, exchange);
        if (!wrong) wrong = start_update(service, body, answer);
        if (wrong) answer(error_answer(*wrong));
      },
      call.exchange);
}

}  // namespace millrace
