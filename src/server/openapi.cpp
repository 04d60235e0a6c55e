#include "server/openapi.h"

#include "server/openai/bodies.h"
#include "server/route.h"

namespace millrace {
namespace {

std::string_view body_name(unsigned body) {
  switch (body) {
    case kChat:
      return "ChatRequest";
    case kCompletion:
      return "CompletionRequest";
    case kTokenize:
      return "TokenizeRequest";
    case kDetokenize:
      return "DetokenizeRequest";
    case kEmbed:
      return "EmbeddingRequest";
    case kRerank:
      return "RerankRequest";
    case kScore:
      return "ScoreRequest";
    case kLoadAdapter:
      return "LoadAdapterRequest";
    case kUnloadAdapter:
      return "UnloadAdapterRequest";
    default:
      return "TemplateRequest";
  }
}

JsonObject operation(const Route& route) {
  JsonObject failure = {{"description", "what is wrong and what to do"},
                        {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  JsonObject one = {{"summary", route.summary},
                    {"responses", {{"200", {{"description", "done"}}}, {"default", std::move(failure)}}}};
  if (route.access == Access::anybody) one["security"] = JsonArray();
  if (route.path.ends_with("{id}"))
    one["parameters"] = JsonArray{
        JsonObject{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", JsonObject{{"type", "string"}}}}};
  if (route.body != 0) {
    one["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json",
           {{"schema", {{"$ref", fmt::format("#/components/schemas/{}", body_name(route.body))}}}}}}}};
  }
  return one;
}

}  // namespace

Json openapi_json(std::string_view version) {
  JsonObject paths, schemas;
  for (const auto& table : route_tables()) {
    for (const Route& route : table) {
      std::string method(route.method);
      for (char& c : method) c = static_cast<char>(c + 32);
      paths[route.path] = JsonObject{{method, operation(route)}};
      if (route.body != 0) schemas[body_name(route.body)] = schema_json(openai_bodies(), route.body);
    }
  }
  const JsonObject text = {{"type", "string"}}, maybe = {{"type", JsonArray{"string", "null"}}};
  schemas["Error"] = {{"type", "object"},
                      {"properties",
                       {{"error",
                         {{"type", "object"},
                          {"properties", {{"message", text}, {"type", text}, {"param", maybe}, {"code", maybe}}}}}}}};
  return JsonObject{
      {"openapi", "3.1.0"},
      {"info", {{"title", "Millrace"}, {"version", version}}},
      {"security", JsonArray{JsonObject{{"key", JsonArray()}}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", std::move(schemas)}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace millrace
