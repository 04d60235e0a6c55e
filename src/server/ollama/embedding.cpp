// Vectors of texts, as Ollama's clients ask for them.
#include <chrono>

#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/ollama/ollama.h"
#include "server/ollama/read_ollama.h"
#include "server/quoted.h"

namespace millrace {
namespace {

std::optional<ApiError> begin(const EmbedSetting& setting, const HttpRequest& request, OllamaBody kind,
                              JsonObject& body, EmbedWork& out) {
  Ignored ignored;
  if (auto failure = read_checked(request.body, ollama_bodies(), kind, setting.limits, body, ignored)) return failure;
  HttpAnswer noted;
  add_ignored(ignored, noted);
  out.headers = std::move(noted.headers);
  out.model = bare_model(FieldReader(body).text("model"));
  return {};
}

}  // namespace

std::optional<ApiError> read_ollama_embed(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out) {
  const auto began = std::chrono::steady_clock::now();
  JsonObject body;
  if (auto failure = begin(setting, request, kOllamaEmbed, body, out)) return failure;
  const FieldReader read(body);
  const int32_t dimensions = read.integer("dimensions", 0);
  if (auto failure = read_vector_inputs(setting, body, {"input", read.flag("truncate", true), dimensions}, out))
    return failure;
  out.answer = [embedder = setting.embedder, dimensions, tokens = out.tokens, name = setting.name,
                began](std::vector<std::vector<float>> rows) {
    std::string list;
    for (std::vector<float>& row : rows) {
      embedder->finish(row, dimensions);
      if (!list.empty()) list += ',';
      append_vector(list, row, false);
    }
    const auto took = std::chrono::steady_clock::now() - began;
    return fmt::format(
        R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
        quoted_text(name), list, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count(), tokens);
  };
  return {};
}

std::optional<ApiError> read_ollama_embeddings(const EmbedSetting& setting, const HttpRequest& request,
                                               EmbedWork& out) {
  JsonObject body;
  if (auto failure = begin(setting, request, kOllamaEmbeddings, body, out)) return failure;
  if (auto failure = read_vector_inputs(setting, body, {"prompt", true, 0}, out)) return failure;
  out.answer = [embedder = setting.embedder](std::vector<std::vector<float>> rows) {
    std::string list;
    embedder->finish(rows[0], 0);
    append_vector(list, rows[0], false);
    return fmt::format(R"({{"embedding":{}}})", list);
  };
  return {};
}

}  // namespace millrace
