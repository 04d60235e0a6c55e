#include "server/ollama/ollama.h"

#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/ollama/read_ollama.h"
#include "server/ollama/writing.h"
#include "server/service.h"
#include "server/shelf.h"

namespace millrace {
namespace {

class Ollama : public Dialect {
 public:
  explicit Ollama(OllamaBody kind) : kind_(kind) {}

  std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits, const SamplingDefaults& defaults,
                               RequestBody& out) const override {
    return read_ollama(request.body, kind_, limits, out, defaults);
  }
  std::optional<HttpAnswer> at_once(const RequestBody& asked, std::string_view model) const override {
    if (!asked.messages.empty() || !asked.prompts.empty()) return {};
    return HttpAnswer{.body = loaded_line(model, kind_ == kOllamaChat)};
  }
  HttpAnswer refuse(const ApiError& failure) const override { return ollama_refusal(failure); }

  void begin(Stamp& stamp) const override {
    auto state = std::make_unique<OllamaStream>();
    state->in_message = kind_ == kOllamaChat;
    stamp.event = state->in_message ? R"(,"message":{"role":"assistant","content":)" : R"(,"response":)";
    stamp.state = std::move(state);
  }
  HttpAnswer whole(const Stamp& stamp, const LoadedModel& model, std::span<const Choice> choices,
                   const Usage& usage) const override {
    HttpAnswer answer;
    append_ollama_line(answer.body, stamp, model, &choices[0], ollama_reason(choices[0]), &usage);
    return answer;
  }

  HttpAnswer head() const override { return {.content_type = "application/x-ndjson", .idle = ""}; }
  void append_first(std::string&, const Stamp&, size_t) const override {}
  void append_choice(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice& choice,
                     size_t) const override {
    auto& stream = static_cast<OllamaStream&>(*stamp.state);
    if (!choice.empty()) append_ollama_line(out, stamp, model, &choice, "", nullptr);
    if (choice.done()) stream.done_reason = ollama_reason(choice);
    stream.model = &model;
  }
  void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const override {
    const auto& stream = static_cast<OllamaStream&>(*stamp.state);
    append_ollama_line(out, stamp, *stream.model, nullptr, stream.done_reason, &usage);
  }
  void append_error(std::string& out, const Stamp&, const ApiError& failure) const override {
    append_ollama_error(out, failure);
  }

 private:
  const OllamaBody kind_;
};

void chat(Service& service, Call call) { service.generate(ollama_chat(), std::move(call)); }
void generate(Service& service, Call call) { service.generate(ollama_generate(), std::move(call)); }
void embed(Service& service, Call call) { service.embed(read_ollama_embed, std::move(call), &ollama_refusal); }
void embeddings(Service& service, Call call) {
  service.embed(read_ollama_embeddings, std::move(call), &ollama_refusal);
}

void list(Service& service, Call& call, JsonObject (*describe)(const ServedModel&), bool awake) {
  JsonArray models;
  for (const Shelf::Listed& each : models_of(service)) {
    if (each.served != nullptr && (!awake || each.state == ModelState::awake))
      models.push_back(describe(*each.served));
    else if (each.served == nullptr && !awake && !each.name.empty())
      models.push_back(ollama_unloaded(each.name, each.bytes));
  }
  call.exchange->answer({.body = to_text(JsonObject{{"models", std::move(models)}})});
}
void tags(Service& service, Call call) { list(service, call, ollama_model, false); }
void running(Service& service, Call call) { list(service, call, ollama_running, true); }

void version(Service& service, Call call) {
  call.exchange->answer({.body = to_text(JsonObject{{"version", service.options().version}})});
}

HttpAnswer show_answer(const Service& service, const HttpRequest& request) {
  JsonObject body;
  Ignored ignored;
  if (auto failure = read_checked(request.body, ollama_bodies(), kOllamaShow, service.options().body, body, ignored))
    return ollama_refusal(*failure);
  const FieldReader read(body);
  const std::string name = bare_model(read.has("model") ? read.text("model") : read.text("name"));
  if (name != service.model()->name) return ollama_refusal(Service::no_such_model(name));
  HttpAnswer answer{.body = to_text(ollama_details(*service.model()))};
  add_ignored(ignored, answer);
  return answer;
}

void show(Service& service, Call call) {
  if (auto failure = service.check_ready()) return call.exchange->answer(ollama_refusal(*failure));
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  service.prepare([&service, request] { return show_answer(service, *request); }, std::move(call.exchange));
}

void not_here(Service&, Call call) {
  call.exchange->answer(ollama_refusal(
      {.status = 501, .message = "this server has the model it was started with: give another to `millrace serve`"}));
}

constexpr RouteBody kChat = {"OllamaChatRequest", kOllamaChat, ollama_bodies};
constexpr RouteBody kGenerate = {"OllamaGenerateRequest", kOllamaGenerate, ollama_bodies};
constexpr RouteBody kEmbed = {"OllamaEmbedRequest", kOllamaEmbed, ollama_bodies};
constexpr RouteBody kEmbeddings = {"OllamaEmbeddingsRequest", kOllamaEmbeddings, ollama_bodies};
constexpr RouteBody kShow = {"OllamaShowRequest", kOllamaShow, ollama_bodies};
constexpr auto kRefuse = &ollama_refusal;

constexpr Route kRoutes[] = {
    {"POST", "/api/chat", "an answer to a chat, as Ollama's clients ask for it", chat, Access::key, kChat, kRefuse},
    {"POST", "/api/generate", "an answer to a prompt", generate, Access::key, kGenerate, kRefuse},
    {"POST", "/api/embed", "texts as vectors", embed, Access::key, kEmbed, kRefuse},
    {"POST", "/api/embeddings", "a text as a vector", embeddings, Access::key, kEmbeddings, kRefuse},
    {"POST", "/api/show", "what the model is", show, Access::key, kShow, kRefuse},
    {"GET", "/api/tags", "the models there are", tags, Access::key, {}, kRefuse},
    {"GET", "/api/ps", "the models that are loaded", running, Access::key, {}, kRefuse},
    {"GET", "/api/version", "what this server is", version, Access::key, {}, kRefuse},
    {"POST", "/api/pull", "not done here", not_here, Access::key, {}, kRefuse},
    {"POST", "/api/push", "not done here", not_here, Access::key, {}, kRefuse},
    {"POST", "/api/create", "not done here", not_here, Access::key, {}, kRefuse},
    {"POST", "/api/copy", "not done here", not_here, Access::key, {}, kRefuse},
    {"DELETE", "/api/delete", "not done here", not_here, Access::key, {}, kRefuse},
};

}  // namespace

const Dialect& ollama_chat() {
  static const Ollama dialect(kOllamaChat);
  return dialect;
}

const Dialect& ollama_generate() {
  static const Ollama dialect(kOllamaGenerate);
  return dialect;
}

std::span<const Route> ollama_routes() { return kRoutes; }

}  // namespace millrace
