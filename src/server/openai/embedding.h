// Vectors and scores of texts over HTTP: OpenAI's /v1/embeddings, and /v1/rerank and /score as Jina's, Cohere's and
// vLLM's clients know them. A body becomes an EmbedWork on a worker; what the model gives becomes the answer on the
// queue's thread. Pure functions; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"
#include "server/request_body.h"
#include "session/embedder.h"

namespace millrace {

// A request that was read: what is computed, and the answer that it becomes.
struct EmbedWork {
  std::string model;  // as the client calls it; empty: whichever there is
  std::vector<EncodeInput> inputs;
  int64_t tokens = 0;
  std::function<std::string(std::vector<std::vector<float>> rows)> answer;  // a body
  std::vector<std::pair<std::string, std::string>> headers;
};

struct EmbedSetting {
  const Embedder* embedder = nullptr;
  std::string name;  // of the model, as answers have it
  BodyLimits limits;
};

// Texts that become vectors: the field they are in, whether too long ones are cut, and how many numbers are wanted; 0:
// all.
struct VectorsAsked {
  std::string_view field;
  bool truncate = false;
  int32_t dimensions = 0;
};
std::optional<ApiError> read_vector_inputs(const EmbedSetting& setting, const JsonObject& body,
                                           const VectorsAsked& asked, EmbedWork& out);
// A vector as a list of numbers, or as the bytes of its float32 ones.
void append_vector(std::string& out, const std::vector<float>& vector, bool base64);

using ReadEmbedWork = std::optional<ApiError> (*)(const EmbedSetting& setting, const HttpRequest& request,
                                                  EmbedWork& out);
std::optional<ApiError> read_embeddings(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out);
std::optional<ApiError> read_rerank(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out);
std::optional<ApiError> read_score(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out);

}  // namespace millrace
