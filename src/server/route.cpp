#include "server/route.h"

#include "server/anthropic/anthropic.h"
#include "server/llama_cpp/llama_cpp.h"
#include "server/ollama/ollama.h"
#include "server/openai/openai.h"
#include "server/own/own.h"
#include "server/responses/responses.h"

namespace millrace {
namespace {

constexpr std::string_view kArgument = "{id}";

// Whether the path is the route's; {id} stands for the rest of a path, slashes included, as names of models have them.
bool matches(const Route& route, std::string_view path, std::string& argument) {
  if (!route.path.ends_with(kArgument)) return route.path == path;
  const std::string_view before = route.path.substr(0, route.path.size() - kArgument.size());
  if (!path.starts_with(before) || path.size() == before.size()) return false;
  argument = percent_decoded(path.substr(before.size()));
  return true;
}

}  // namespace

std::span<const std::span<const Route>> route_tables() {
  static const std::span<const Route> tables[] = {own_routes(),       openai_routes(), responses_routes(),
                                                  anthropic_routes(), ollama_routes(), llama_routes()};
  return tables;
}

FoundRoute find_route(std::string_view method, std::string_view path) {
  FoundRoute found;
  for (const auto& table : route_tables()) {
    for (const Route& route : table) {
      if (!matches(route, path, found.argument)) continue;
      found.other_method = true;
      if (route.method == method || (route.method == "GET" && method == "HEAD")) found.route = &route;
      if (found.route != nullptr) return found;
    }
  }
  return found;
}

bool takes_body(std::string_view method, std::string_view path) {
  const FoundRoute found = find_route(method, path);
  return found.route != nullptr && found.route->method == "POST" && found.route->access == Access::key;
}

}  // namespace millrace
