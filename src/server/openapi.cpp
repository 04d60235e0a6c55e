#include "server/openapi.h"

#include "server/route.h"

namespace millrace {
namespace {

JsonObject operation(const Route& route) {
  JsonObject failure = {{"description", "what is wrong and what to do"},
                        {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  JsonObject one = {{"summary", route.summary},
                    {"responses", {{"200", {{"description", "done"}}}, {"default", std::move(failure)}}}};
  if (route.access == Access::anybody) one["security"] = JsonArray();
  if (route.path.ends_with("{id}"))
    one["parameters"] = JsonArray{
        JsonObject{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", JsonObject{{"type", "string"}}}}};
  if (route.body.kind != 0) {
    one["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json", {{"schema", {{"$ref", fmt::format("#/components/schemas/{}", route.body.name)}}}}}}}};
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
      Json& path = paths[route.path];
      if (!path.is_object()) path = JsonObject();
      path.get_object()[method] = operation(route);
      if (route.body.kind != 0) schemas[route.body.name] = schema_json(route.body.table(), route.body.kind);
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
