#include "server/routes.h"

#include "server/live.h"
#include "server/metrics_text.h"
#include "server/openapi.h"

namespace millrace {
namespace {

constexpr Route kRoutes[] = {
    {"GET", "/health", "alive: the engine made progress of late", true},
    {"GET", "/ready", "a model is loaded and new work is taken", true},
    {"GET", "/v1/models", "the models there are"},
    {"POST", "/v1/chat/completions", "answers to a chat", false, kChat},
    {"POST", "/v1/completions", "continuations of a text", false, kCompletion},
    {"POST", "/tokenize", "a text or a chat as token ids", false, kTokenize},
    {"POST", "/detokenize", "token ids as text", false, kDetokenize},
    {"POST", "/apply-template", "a chat as the text the model gets", false, kTemplate},
    {"GET", "/metrics", "what the engine does, for Prometheus"},
    {"GET", "/live", "what the engine does, as events a few times a second"},
    {"GET", "/version", "what this server is"},
    {"GET", "/openapi.json", "this interface, for programs"},
};

HttpAnswer json_answer(const Json& json) { return {.body = to_text(json)}; }

// What tokenizing a body comes to: its messages through the template, or its text.
Result<std::vector<Token>> tokens_of_body(const LoadedModel& model, const JsonObject& body) {
  if (find(body, "messages") != nullptr) {
    TRY(ChatPrompt prompt, chat_prompt(model, messages_of(body), chat_options_of(body)));
    return std::move(prompt.tokens);
  }
  const Json* text = find(body, "content") != nullptr ? find(body, "content") : find(body, "prompt");
  if (text == nullptr || !text->is_string())
    return error(Code::invalid, "'content', 'prompt' or 'messages' is needed, the first two as a text");
#if MILLRACE_SESSION_TEXT
  const Json* special = find(body, "add_special");
  if (special != nullptr && !special->get_bool() && model.tokenizer() != nullptr)
    return model.tokenizer()->encode(text->get_string(), {.parse_special = true});
#endif
  return raw_prompt(model, text->get_string());
}

std::string piece_of(const LoadedModel& model, Token token) {
  std::string quoted;
#if MILLRACE_SESSION_TEXT
  append_quoted(quoted, model.tokenizer() != nullptr ? model.tokenizer()->token_bytes(token) : "");
#else
  static_cast<void>(model);
  static_cast<void>(token);
  append_quoted(quoted, "");
#endif
  return quoted;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Routes::Found Routes::find(const HttpRequest& request) {
  Found found;
  for (const Route& route : kRoutes) {
    if (route.path != request.path) continue;
    found.other_method = true;
    if (route.method == request.method || (route.method == "GET" && request.method == "HEAD")) found.route = &route;
  }
  return found;
}

void Routes::answer(Service& service, const Route& route, HttpRequest request, std::shared_ptr<Exchange> exchange,
                    const Service::Visitor& visitor) {
  const std::string_view path = route.path;
  if (route.body == kChat || route.body == kCompletion)
    return service.generate(static_cast<Body>(route.body), std::move(request), std::move(exchange), visitor);
  if (path == "/health") return exchange->answer(health(service));
  if (path == "/ready") return exchange->answer(ready(service));
  if (path == "/version") return exchange->answer(version(service));
  if (path == "/openapi.json") return exchange->answer(json_answer(openapi_json(service.options_.version)));
  if (path == "/v1/models") return exchange->answer(models(service));
  if (auto failure = service.check_ready(); failure && path != "/metrics")
    return exchange->answer(error_answer(*failure));
  if (path == "/metrics")
    return exchange->answer({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                             .body = metrics_text(service.model(), service.counters_, service.open())});
  if (path == "/live") return start_live(*service.model(), std::move(exchange));
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  service.prepare(
      [&service, path, shared] {
        return path == "/tokenize"     ? tokenize(service, *shared)
               : path == "/detokenize" ? detokenize(service, *shared)
                                       : apply_template(service, *shared);
      },
      std::move(exchange));
}

HttpAnswer Routes::health(const Service& service) {
  const ServedModel* served = service.model();
  if (served == nullptr) return json_answer(JsonObject{{"status", "loading"}});
  const Engine::Snapshot snapshot = served->engine->snapshot();
  const double still = snapshot.now - snapshot.last_progress;
  HttpAnswer answer = json_answer(JsonObject{{"status", still > service.options_.stuck_seconds ? "stuck" : "ok"},
                                             {"seconds_since_progress", still}});
  if (still > service.options_.stuck_seconds) answer.status = 503;
  return answer;
}

HttpAnswer Routes::ready(const Service& service) {
  if (auto failure = service.check_ready()) return error_answer(*failure);
  return json_answer(JsonObject{{"status", "ready"}});
}

HttpAnswer Routes::version(const Service& service) {
  return json_answer(JsonObject{{"version", service.options_.version}, {"server", "millrace"}});
}

HttpAnswer Routes::models(const Service& service) {
  JsonArray list;
  if (const ServedModel* served = service.model()) {
    list.push_back(JsonObject{{"id", served->name},
                              {"object", "model"},
                              {"created", served->created},
                              {"owned_by", "millrace"},
                              {"max_model_len", served->engine->options().limits.context},
                              {"meta", JsonObject{{"n_vocab", served->engine->executor().vocab()}}}});
  }
  return json_answer(JsonObject{{"object", "list"}, {"data", std::move(list)}});
}

HttpAnswer Routes::tokenize(const Service& service, const HttpRequest& request) {
  JsonObject body;
  if (auto failure = read_body(request.body, kTokenize, service.options_.body, body)) return error_answer(*failure);
  const LoadedModel& model = *service.model()->loaded;
  auto tokens = tokens_of_body(model, body);
  if (!tokens.ok()) return error_answer(from_error(tokens.error()));
  const Json* wanted = millrace::find(body, "with_pieces");
  const bool pieces = wanted != nullptr && wanted->get_bool();
  std::string list;
  for (Token token : *tokens) {
    if (!list.empty()) list += ',';
    list += pieces ? fmt::format(R"({{"id":{},"piece":{}}})", token, piece_of(model, token)) : fmt::format("{}", token);
  }
  return {.body = fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}}})", list, tokens->size(),
                              service.model()->engine->options().limits.context)};
}

HttpAnswer Routes::detokenize(const Service& service, const HttpRequest& request) {
  JsonObject body;
  if (auto failure = read_body(request.body, kDetokenize, service.options_.body, body)) return error_answer(*failure);
#if MILLRACE_SESSION_TEXT
  if (const Tokenizer* tokenizer = service.model()->loaded->tokenizer()) {
    const std::string text = tokenizer->decode(tokens_of(*millrace::find(body, "tokens")));
    return json_answer(JsonObject{{"content", text}, {"prompt", text}});
  }
#endif
  return error_answer(not_built("tokens", "this model has no tokenizer, so there is no text"));
}

HttpAnswer Routes::apply_template(const Service& service, const HttpRequest& request) {
  JsonObject body;
  if (auto failure = read_body(request.body, kTemplate, service.options_.body, body)) return error_answer(*failure);
  if (millrace::find(body, "messages") == nullptr) return error_answer(bad_field("messages", "'messages' is missing"));
  auto text = render_chat(*service.model()->loaded, messages_of(body), chat_options_of(body));
  if (!text.ok()) return error_answer(from_error(text.error()));
  return json_answer(JsonObject{{"prompt", *text}});
}

}  // namespace millrace
