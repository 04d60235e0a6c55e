#include "server/responses/responses.h"

#include "server/responses/read_response.h"
#include "server/responses/writing.h"
#include "server/service.h"

namespace millrace {
namespace {

class Responses : public Dialect {
 public:
  std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits, const SamplingDefaults& defaults,
                               RequestBody& out) const override {
    return read_response(request.body, limits, out, defaults);
  }
  HttpAnswer refuse(const ApiError& failure) const override { return error_answer(failure); }

  void begin(Stamp& stamp) const override {
    stamp.id = "resp_" + stamp.name;
    stamp.state = std::make_unique<ResponseStream>();
    state(stamp).name_of_answer = stamp.name;
  }
  HttpAnswer whole(const Stamp& stamp, const LoadedModel&, std::span<const Choice> choices,
                   const Usage& usage) const override {
    take(nullptr, state(stamp), choices[0]);
    std::string body = response_json(stamp, state(stamp), usage);
    if (stamp.keep) stamp.keep(stamp.id, body, std::move(state(stamp).said));
    return {.body = std::move(body)};
  }

  HttpAnswer head() const override {
    return {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
  }
  void append_first(std::string& out, const Stamp& stamp, size_t) const override {
    append_response_start(out, stamp, state(stamp));
  }
  void append_choice(std::string& out, const Stamp& stamp, const LoadedModel&, const Choice& choice,
                     size_t) const override {
    take(&out, state(stamp), choice);
  }
  void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const override {
    append_response_end(out, stamp, state(stamp), usage);
  }
  void number(const Stamp& stamp, int64_t events) const override { state(stamp).sequence = events; }
  void append_error(std::string& out, const Stamp& stamp, const ApiError& failure) const override {
    append_response_failure(out, stamp, state(stamp), failure);
  }

 private:
  static void take(std::string* events, ResponseStream& stream, const Choice& choice) {
    take_parts(events, stream, choice.parts());
    if (choice.done()) end_parts(events, stream, choice.finish_reason() == "length");
  }
  static ResponseStream& state(const Stamp& stamp) { return static_cast<ResponseStream&>(*stamp.state); }
};

void respond(Service& service, Call call) { service.generate(openai_responses(), std::move(call)); }

void fetch(Service& service, Call call) {
  const auto stored = service.stored().find(call.visitor.tenant, call.argument);
  call.exchange->answer(stored ? HttpAnswer{.body = stored->body}
                               : error_answer(StoredAnswers::unknown(call.argument)));
}

void forget(Service& service, Call call) {
  if (!service.stored().erase(call.visitor.tenant, call.argument))
    return call.exchange->answer(error_answer(StoredAnswers::unknown(call.argument)));
  call.exchange->answer(
      {.body = to_text(JsonObject{{"id", call.argument}, {"object", "response"}, {"deleted", true}})});
}

constexpr RouteBody kAsked = {"ResponsesRequest", kResponse, responses_bodies};

constexpr Route kRoutes[] = {
    {"POST", "/v1/responses", "an answer, as OpenAI's newer clients ask for it", respond, Access::key, kAsked},
    {"GET", "/v1/responses/{id}", "an answer that was kept", fetch},
    {"DELETE", "/v1/responses/{id}", "forgets it", forget},
};

}  // namespace

const Dialect& openai_responses() {
  static const Responses dialect;
  return dialect;
}

std::span<const Route> responses_routes() { return kRoutes; }

}  // namespace millrace
