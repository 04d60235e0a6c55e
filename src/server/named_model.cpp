// Which model a body is for, found without reading the body.
#include "server/glance.h"
#include "server/shelf.h"

namespace millrace {

std::string named_model(const HttpRequest& request) {
  std::string asked = query_value(request.query, "model");
  if (!asked.empty()) return asked;
  // Older Ollama clients say name.
  if (auto model = string_at_a_glance(request.body, "model")) return *std::move(model);
  return string_at_a_glance(request.body, "name").value_or("");
}

}  // namespace millrace
