#include "server/own/own.h"

#include "server/live.h"
#include "server/metrics_text.h"
#include "server/openai/read_request.h"
#include "server/openai/writing.h"
#include "server/openapi.h"
#include "server/own/adapters.h"
#include "server/own/operate.h"
#include "server/service.h"
#include "server/shelf.h"

namespace millrace {
namespace {

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

void health(Service& service, Call call) {
  const auto served = service.model();
  if (served == nullptr) return call.exchange->answer(json_answer(JsonObject{{"status", "loading"}}));
  if (served->engine == nullptr) return call.exchange->answer(json_answer(JsonObject{{"status", "ok"}}));
  const EngineSnapshot snapshot = served->engine->snapshot();
  const double still = snapshot.now - snapshot.last_progress;
  const bool stuck = still > service.options().stuck_seconds;
  JsonObject said{{"status", stuck ? "stuck" : "ok"}, {"seconds_since_progress", still}};
  const auto failure = service.check_engine();
  if (failure) {
    said["status"] = "failing";
    said["message"] = failure->message;
  }
  HttpAnswer answer = json_answer(std::move(said));
  if (stuck || failure) answer.status = 503;
  call.exchange->answer(std::move(answer));
}

void ready(Service& service, Call call) {
  auto failure = service.check_ready();
  if (!failure) failure = service.check_engine();
  call.exchange->answer(failure ? error_answer(*failure) : json_answer(JsonObject{{"status", "ready"}}));
}

void version(Service& service, Call call) {
  call.exchange->answer(json_answer(JsonObject{{"version", service.options().version}, {"server", "millrace"}}));
}

void openapi(Service& service, Call call) {
  call.exchange->answer(json_answer(openapi_json(service.options().version)));
}

// What holds for a request that says nothing, under the names llama.cpp's server has for it.
void props(Service& service, Call call) {
  if (auto failure = service.check_ready()) return call.exchange->answer(error_answer(*failure));
  const auto model = service.model();
  const ServedModel& served = *model;
  JsonArray of_model;
  for (const std::string& name : served.defaults.of_model) of_model.emplace_back(name);
  call.exchange->answer(json_answer(JsonObject{
      {"default_generation_settings",
       JsonObject{{"n_ctx", served.context()}, {"params", sampling_json(served.defaults)}, {"of_model", of_model}}},
      {"total_slots", served.engine != nullptr ? served.engine->facts().limits.max_sequences
                                               : served.embeds->embedder().encoder().options().sequences},
      {"model_alias", served.name},
      {"build_info", service.options().version}}));
}

void metrics(Service& service, Call call) {
  HttpAnswer answer{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
  const bool all = call.visitor.oversees;
  std::vector<std::string> pages;
  for (const Shelf::Listed& each : models_of(service)) {
    if (each.service == nullptr) continue;
    if (!all)
      pages.push_back(share_text(each.served.get(), each.service->share_of(call.visitor.tenant)->snapshot()));
    else if (each.served != nullptr)
      pages.push_back(model_metrics_text(*each.served));
  }
  if (!pages.empty()) answer.body = joined_metrics(pages);
  if (all) answer.body += server_metrics_text(service.counters(), service.open()) + service.stored().metrics_text();
  call.exchange->answer(std::move(answer));
}

void live(Service& service, Call call) {
  if (auto failure = service.check_writes()) return call.exchange->answer(error_answer(*failure));
  LiveSource source{
      .model = [&service] { return service.model(); },
      .open = [&service,
               visitor = call.visitor] { return service.open_requests(visitor.oversees ? nullptr : &visitor.tenant); }};
  start_live(std::move(source), call.visitor.oversees ? nullptr : service.share_of(call.visitor.tenant),
             std::move(call.exchange));
}

HttpAnswer tokenize_answer(const Service& service, const JsonObject& body) {
  const auto served = service.model();
  const LoadedModel& model = *served->loaded;
  auto tokens = tokens_of_body(model, body);
  if (!tokens.ok()) return error_answer(from_error(tokens.error()));
  const Json* wanted = find(body, "with_pieces");
  const bool pieces = wanted != nullptr && wanted->get_bool();
  std::string list;
  for (Token token : *tokens) {
    if (!list.empty()) list += ',';
    list += pieces ? fmt::format(R"({{"id":{},"piece":{}}})", token, piece_of(model, token)) : fmt::format("{}", token);
  }
  return {.body = fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}}})", list, tokens->size(),
                              served->context())};
}

HttpAnswer detokenize_answer(const Service& service, const JsonObject& body) {
  const auto served = service.model();
  const LoadedModel& model = *served->loaded;
  const std::vector<Token> tokens = tokens_of(*find(body, "tokens"));
  for (Token token : tokens) {
    if (token < model.vocab()) continue;
    return error_answer(
        bad_field("tokens", fmt::format("there is no token {}: the model knows 0 to {}", token, model.vocab() - 1)));
  }
#if MILLRACE_SESSION_TEXT
  if (const Tokenizer* tokenizer = model.tokenizer()) {
    const std::string text = tokenizer->decode(tokens);
    return json_answer(JsonObject{{"content", text}, {"prompt", text}});
  }
#endif
  return error_answer(not_built("tokens", "this model has no tokenizer, so there is no text"));
}

HttpAnswer apply_template_answer(const Service& service, const JsonObject& body) {
  auto text = render_chat(*service.model()->loaded, messages_of(body), chat_options_of(body));
  if (!text.ok()) return error_answer(from_error(text.error()));
  return json_answer(JsonObject{{"prompt", *text}});
}

// Reads the body on a worker and answers with what comes of it, told what was ignored.
void read_and_answer(Service& service, Call call, Body kind, HttpAnswer (*answer)(const Service&, const JsonObject&)) {
  if (auto failure = service.check_ready()) return call.exchange->answer(error_answer(*failure));
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  service.prepare(
      [&service, kind, answer, request]() -> HttpAnswer {
        JsonObject body;
        Ignored ignored;
        if (auto failure = read_body(request->body, kind, service.options().body, body, ignored))
          return error_answer(*failure);
        HttpAnswer given = answer(service, body);
        add_ignored(ignored, given);
        return given;
      },
      std::move(call.exchange));
}

void tokenize(Service& service, Call call) { read_and_answer(service, std::move(call), kTokenize, tokenize_answer); }
void detokenize(Service& service, Call call) {
  read_and_answer(service, std::move(call), kDetokenize, detokenize_answer);
}
void apply_template(Service& service, Call call) {
  read_and_answer(service, std::move(call), kTemplate, apply_template_answer);
}

constexpr RouteBody kLoadAdapterBody = {"LoadAdapterRequest", kLoadAdapter, openai_bodies};
constexpr RouteBody kUnloadAdapterBody = {"UnloadAdapterRequest", kUnloadAdapter, openai_bodies};
constexpr RouteBody kUpdateWeightsBody = {"UpdateWeightsRequest", kUpdateWeights, openai_bodies};
constexpr RouteBody kTokenizeBody = {"TokenizeRequest", kTokenize, openai_bodies};
constexpr RouteBody kDetokenizeBody = {"DetokenizeRequest", kDetokenize, openai_bodies};
constexpr RouteBody kTemplateBody = {"TemplateRequest", kTemplate, openai_bodies};

constexpr Route kRoutes[] = {
    {"GET", "/health", "alive: the engine made progress of late", health, Access::anybody},
    {"GET", "/ready", "a model is loaded and new work is taken", ready, Access::anybody},
    {"POST", "/tokenize", "a text or a chat as token ids", tokenize, Access::key, kTokenizeBody},
    {"POST", "/detokenize", "token ids as text", detokenize, Access::key, kDetokenizeBody},
    {"POST", "/apply-template", "a chat as the text the model gets", apply_template, Access::key, kTemplateBody},
    {"GET", "/lora-adapters", "the adapters that are loaded", list_adapters},
    {"POST", "/v1/load_lora_adapter", "load an adapter; for operators", load_adapter, Access::key, kLoadAdapterBody},
    {"POST", "/v1/unload_lora_adapter", "unload one; answers that have it end with it; for operators", unload_adapter,
     Access::key, kUnloadAdapterBody},
    {"POST", "/pause", "nothing is computed; for operators", pause_server},
    {"POST", "/resume", "and goes on; for operators", resume_server},
    {"GET", "/is_paused", "whether it is so", is_paused},
    {"POST", "/sleep", "the engine gives its memory back; for operators", sleep_server},
    {"POST", "/wake_up", "and takes it again; for operators", wake_server},
    {"GET", "/is_sleeping", "whether it is so", is_sleeping},
    {"POST", "/reset_prefix_cache", "forget prefixes that nobody uses; for operators", reset_prefix_cache},
    {"POST", "/flush_cache", "the same, by SGLang's name", reset_prefix_cache},
    {"POST", "/update_weights_from_disk", "other weights of the same shapes; for operators", update_weights,
     Access::key, kUpdateWeightsBody},
    {"GET", "/props", "what holds for a request that says nothing", props},
    {"GET", "/metrics", "what the engine does, for Prometheus", metrics, Access::metrics},
    {"GET", "/live", "what the engine does, as events a few times a second", live},
    {"GET", "/version", "what this server is", version},
    {"GET", "/openapi.json", "this interface, for programs", openapi},
};

}  // namespace

std::span<const Route> own_routes() { return kRoutes; }

}  // namespace millrace
