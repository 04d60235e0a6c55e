#include "server/openai/openai.h"

#include "server/openai/read_request.h"
#include "server/openai/writing.h"
#include "server/service.h"
#include "server/shelf.h"

namespace millrace {
namespace {

class OpenAi : public Dialect {
 public:
  explicit OpenAi(Body kind) : kind_(kind) {}

  std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits, const SamplingDefaults& defaults,
                               RequestBody& out) const override {
    return read_request_body(request.body, kind_, limits, out, defaults);
  }
  HttpAnswer refuse(const ApiError& failure) const override { return error_answer(failure); }

  void begin(Stamp& stamp) const override {
    stamp.id = (stamp.chat ? "chatcmpl-" : "cmpl-") + stamp.name;
    stamp.event = event_opening(stamp);
  }
  HttpAnswer whole(const Stamp& stamp, const LoadedModel& model, std::span<const Choice> choices,
                   const Usage& usage) const override {
    std::string list;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) list += ',';
      list += choice_json(model, stamp, choices[i], i);
    }
    return {.body = answer_json(stamp, list, usage)};
  }

  HttpAnswer head() const override {
    return {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
  }
  void append_first(std::string& out, const Stamp& stamp, size_t index) const override {
    if (stamp.chat) append_role_event(out, stamp, index);
  }
  void append_choice(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice& choice,
                     size_t index) const override {
    append_choice_event(out, model, stamp, choice, index);
  }
  void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const override {
    if (stamp.include_usage) append_usage_event(out, stamp, usage);
    append_done_event(out);
  }
  void append_error(std::string& out, const Stamp&, const ApiError& failure) const override {
    append_error_event(out, failure);
    append_done_event(out);
  }

 private:
  const Body kind_;
};

JsonObject model_json(const ServedModel& served) {
  return {{"id", served.name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "millrace"},
          {"max_model_len", served.context()},
          {"meta", JsonObject{{"n_vocab", served.loaded->vocab()}}}};
}

// An adapter is listed as a model whose parent is the one it changes.
JsonObject adapter_json(const ServedModel& served, const AdapterInfo& info) {
  JsonObject one = model_json(served);
  one["id"] = info.name;
  one["root"] = info.name;
  one["parent"] = served.name;
  one["meta"].get_object()["lora_rank"] = info.rank;
  return one;
}

// Models and their adapters; where there are several models, with what became of each.
JsonArray listed(Service& service) {
  JsonArray list;
  for (const Shelf::Listed& each : models_of(service)) {
    if (each.served == nullptr && service.options().shelf == nullptr) continue;
    JsonObject one = each.served != nullptr
                         ? model_json(*each.served)
                         : JsonObject{{"id", each.name}, {"object", "model"}, {"created", 0}, {"owned_by", "millrace"}};
    if (service.options().shelf != nullptr) one["status"] = JsonObject{{"value", state_name(each.state)}};
    list.push_back(std::move(one));
    if (each.served == nullptr || each.served->engine == nullptr) continue;
    for (const AdapterInfo& info : each.served->engine->adapters()) list.push_back(adapter_json(*each.served, info));
  }
  return list;
}

void models(Service& service, Call call) {
  call.exchange->answer({.body = to_text(JsonObject{{"object", "list"}, {"data", listed(service)}})});
}

void model(Service& service, Call call) {
  for (const Json& each : listed(service))
    if (each.at("id").as_string() == call.argument) return call.exchange->answer({.body = to_text(each)});
  call.exchange->answer(error_answer(Service::no_such_model(call.argument)));
}

void chat(Service& service, Call call) { service.generate(openai_chat(), std::move(call)); }
void completion(Service& service, Call call) { service.generate(openai_completion(), std::move(call)); }

void embeddings(Service& service, Call call) { service.embed(read_embeddings, std::move(call)); }
void rerank(Service& service, Call call) { service.embed(read_rerank, std::move(call)); }
void score(Service& service, Call call) { service.embed(read_score, std::move(call)); }

constexpr RouteBody kChatBody = {"ChatRequest", kChat, openai_bodies};
constexpr RouteBody kCompletionBody = {"CompletionRequest", kCompletion, openai_bodies};
constexpr RouteBody kEmbedBody = {"EmbeddingRequest", kEmbed, openai_bodies};
constexpr RouteBody kRerankBody = {"RerankRequest", kRerank, openai_bodies};
constexpr RouteBody kScoreBody = {"ScoreRequest", kScore, openai_bodies};

constexpr Route kRoutes[] = {
    {"GET", "/v1/models", "the models there are", models},
    {"GET", "/v1/models/{id}", "one of them", model},
    {"POST", "/v1/chat/completions", "answers to a chat", chat, Access::key, kChatBody},
    {"POST", "/v1/completions", "continuations of a text", completion, Access::key, kCompletionBody},
    {"POST", "/v1/embeddings", "texts as vectors", embeddings, Access::key, kEmbedBody},
    {"POST", "/v1/rerank", "documents in the order they answer a query", rerank, Access::key, kRerankBody},
    {"POST", "/rerank", "the same", rerank, Access::key, kRerankBody},
    {"POST", "/score", "how well pairs of texts go together", score, Access::key, kScoreBody},
    {"POST", "/v1/score", "the same", score, Access::key, kScoreBody},
};

}  // namespace

const Dialect& openai_chat() {
  static const OpenAi dialect(kChat);
  return dialect;
}

const Dialect& openai_completion() {
  static const OpenAi dialect(kCompletion);
  return dialect;
}

std::span<const Route> openai_routes() { return kRoutes; }

}  // namespace millrace
