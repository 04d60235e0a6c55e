#include "server/anthropic/anthropic.h"

#include "server/anthropic/read_messages.h"
#include "server/anthropic/writing.h"
#include "server/service.h"

namespace millrace {
namespace {

class Messages : public Dialect {
 public:
  std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits, const SamplingDefaults& defaults,
                               RequestBody& out) const override {
    return read_messages(request.body, kMessagesBody, limits, out, defaults);
  }
  HttpAnswer refuse(const ApiError& failure) const override { return anthropic_refusal(failure); }

  void begin(Stamp& stamp) const override {
    stamp.id = "msg_" + stamp.name;
    stamp.state = std::make_unique<MessageStream>();
  }
  HttpAnswer whole(const Stamp& stamp, const LoadedModel&, std::span<const Choice> choices,
                   const Usage& usage) const override {
    return {.body = message_json(stamp, choices[0], usage)};
  }

  HttpAnswer head() const override {
    return {.content_type = "text/event-stream",
            .headers = {{"Cache-Control", "no-cache"}},
            .idle = "event: ping\ndata: {\"type\":\"ping\"}\n\n"};
  }
  void append_first(std::string& out, const Stamp& stamp, size_t) const override { append_message_start(out, stamp); }
  void append_choice(std::string& out, const Stamp& stamp, const LoadedModel&, const Choice& choice,
                     size_t) const override {
    append_message_parts(out, state(stamp), choice.parts());
    if (choice.done()) end_message_parts(out, state(stamp), choice);
  }
  void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const override {
    append_message_end(out, state(stamp), usage);
  }
  void append_error(std::string& out, const Stamp&, const ApiError& failure) const override {
    append_message_error(out, failure);
  }

 private:
  static MessageStream& state(const Stamp& stamp) { return static_cast<MessageStream&>(*stamp.state); }
};

HttpAnswer count_answer(const Service& service, const HttpRequest& request) {
  RequestBody asked;
  if (auto failure = read_messages(request.body, kCountBody, service.options().body, asked))
    return anthropic_refusal(*failure);
  const auto model = service.model();
  const ServedModel& served = *model;
  if (!asked.model.empty() && asked.model != served.name) return anthropic_refusal(Service::no_such_model(asked.model));
  auto prompt = chat_prompt(*served.loaded, asked.messages, asked.chat_options);
  if (!prompt.ok()) return anthropic_refusal(prompt_error(*served.loaded, prompt.error()));
  HttpAnswer answer{.body = fmt::format(R"({{"input_tokens":{}}})", prompt->tokens.size())};
  add_ignored(asked.ignored, answer);
  return answer;
}

void messages(Service& service, Call call) { service.generate(anthropic_messages(), std::move(call)); }

void count_tokens(Service& service, Call call) {
  if (auto failure = service.check_ready()) return call.exchange->answer(anthropic_refusal(*failure));
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  service.prepare([&service, request] { return count_answer(service, *request); }, std::move(call.exchange));
}

constexpr RouteBody kAsked = {"MessagesRequest", kMessagesBody, anthropic_bodies};
constexpr RouteBody kCounted = {"CountTokensRequest", kCountBody, anthropic_bodies};

constexpr Route kRoutes[] = {
    {"POST", "/v1/messages", "an answer, as Anthropic's clients ask for it", messages, Access::key, kAsked,
     &anthropic_refusal},
    {"POST", "/v1/messages/count_tokens", "how many tokens that would take", count_tokens, Access::key, kCounted,
     &anthropic_refusal},
};

}  // namespace

const Dialect& anthropic_messages() {
  static const Messages dialect;
  return dialect;
}

std::span<const Route> anthropic_routes() { return kRoutes; }

}  // namespace millrace
