// Ollama's interface: chats, single prompts and vectors, and what there is. Constant; any thread.
#pragma once

#include <span>

#include "server/api_error.h"
#include "server/dialect.h"
#include "server/openai/embedding.h"
#include "server/route.h"

namespace millrace {

const Dialect& ollama_chat();
const Dialect& ollama_generate();
std::span<const Route> ollama_routes();

std::optional<ApiError> read_ollama_embed(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out);
std::optional<ApiError> read_ollama_embeddings(const EmbedSetting& setting, const HttpRequest& request, EmbedWork& out);

// What there is, as /api/tags, /api/ps and /api/show tell it.
struct ServedModel;
JsonObject ollama_model(const ServedModel& served);
JsonObject ollama_running(const ServedModel& served);
JsonObject ollama_unloaded(const std::string& name, int64_t bytes);  // one that waits to be asked for
JsonObject ollama_details(const ServedModel& served);

}  // namespace millrace
