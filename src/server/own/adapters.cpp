#include "server/own/adapters.h"

#include <set>

#include "server/openai/read_request.h"
#include "server/service.h"
#include "tensor/side_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

HttpAnswer said(std::string text) { return {.content_type = "text/plain; charset=utf-8", .body = std::move(text)}; }

// Whoever may change what all tenants find.
std::optional<ApiError> check_may_change(Service& service, const Call& call) {
  if (auto failure = service.check_writes()) return failure;
  if (!call.visitor.oversees)
    return ApiError{.status = 403,
                    .message = "adapters are loaded and unloaded with an operator's key only",
                    .type = "permission_error",
                    .code = "operator_only"};
  if (service.options().adapter_folder.empty())
    return ApiError{.status = 403,
                    .message = "this server loads no adapters while it runs; start it with --lora-dir DIR",
                    .type = "permission_error",
                    .code = "not_enabled"};
  return {};
}

using Change = std::optional<ApiError> (*)(Service& service, const JsonObject& body, const Noted& answer);

std::optional<ApiError> start_load(Service& service, const JsonObject& body, const Noted& answer) {
  const auto model = service.model();
  const ServedModel& served = *model;
  AdapterAsk ask;
  ask.name = std::string(find(body, "lora_name")->get_string());
  if (ask.name.empty() || ask.name == served.name)
    return bad_field("lora_name", fmt::format("'{}' is no name for an adapter", shortened(ask.name)));
  if (const Json* scale = find(body, "lora_scale")) ask.strength = static_cast<float>(scale->to_number<double>());
  auto path = path_within(service.options().adapter_folder, find(body, "lora_path")->get_string());
  if (!path.ok()) {
    ApiError failure = from_error(path.error());
    failure.param = "lora_path";
    return failure;
  }
  ask.path = path->string();
  served.engine->load_adapter(ask, [answer, name = ask.name](Result<AdapterInfo> loaded) {
    answer(loaded.ok() ? said(fmt::format("Success: LoRA adapter '{}' added successfully.", name))
                       : error_answer(from_error(loaded.error())));
  });
  return {};
}

std::optional<ApiError> start_unload(Service& service, const JsonObject& body, const Noted& answer) {
  const std::string name(find(body, "lora_name")->get_string());
  service.model()->engine->unload_adapter(name, [answer, name](Result<void> unloaded) {
    answer(unloaded.ok() ? said(fmt::format("Success: LoRA adapter '{}' removed successfully.", name))
                         : error_answer(from_error(unloaded.error())));
  });
  return {};
}

// Reads the body on a worker; whoever carries it out answers.
void change(Service& service, Call call, Body kind, Change start) {
  if (auto failure = check_may_change(service, call)) return call.exchange->answer(error_answer(*failure));
  auto request = std::make_shared<HttpRequest>(std::move(call.request));
  service.work(
      [&service, kind, start, request, exchange = call.exchange] {
        JsonObject body;
        Ignored ignored;
        auto failure = read_body(request->body, kind, service.options().body, body, ignored);
        const Noted answer = noting(ignored, exchange);
        if (!failure) failure = start(service, body, answer);
        if (failure) answer(error_answer(*failure));
      },
      call.exchange);
}

// What is read together with a file or folder: all in a folder, or the parts of a file in parts.
std::vector<fs::path> files_of(const fs::path& found, std::error_code& code) {
  const bool folder = fs::is_directory(found, code);
  if (!folder && found.filename().string().find("-of-") == std::string::npos) return {};
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder ? found : found.parent_path(), code), end; !code && it != end;
       it.increment(code))
    if (folder || it->path().extension() == found.extension()) files.push_back(it->path());
  return files;
}

// No file of it, and of folders in it, is a link to what lies outside of the root.
Result<void> check_links(const fs::path& root, const fs::path& found) {
  std::vector<fs::path> waiting = {found};
  std::set<fs::path> seen;
  while (!waiting.empty()) {
    const fs::path at = waiting.back();
    waiting.pop_back();
    std::error_code code;
    const std::vector<fs::path> files = files_of(at, code);
    if (code)
      return error(Code::io, "{} cannot be looked through: {}", at.lexically_relative(root).string(), code.message());
    for (const fs::path& file : files) {
      if (!fs::exists(file, code)) continue;
      const fs::path target = fs::canonical(file, code);
      if (code || !lies_in(root, target))
        return error(Code::invalid, "{} is a link that leads out of the folder: put a copy in its place",
                     file.lexically_relative(root).string());
      if (fs::is_directory(target, code) && seen.insert(target).second) waiting.push_back(target);
    }
  }
  return {};
}

}  // namespace

Noted noting(const Ignored& ignored, const std::shared_ptr<Exchange>& exchange) {
  return [ignored, exchange](HttpAnswer answer) {
    add_ignored(ignored, answer);
    exchange->answer(std::move(answer));
  };
}

Result<fs::path> path_within(const fs::path& folder, std::string_view asked, std::string_view what) {
  std::error_code code;
  const fs::path root = fs::canonical(folder, code);
  if (code) return error(Code::not_found, "the folder of {} is not there", what);
  const fs::path found = fs::canonical(root / fs::path(asked), code);
  // What lies elsewhere is not even said to be there.
  if (code || !lies_in(root, found))
    return error(Code::not_found, "there is no '{}' in the folder of {}", shortened(asked), what);
  if (auto inside = check_links(root, found); !inside.ok())
    return within(fmt::format("the folder of {}", what), std::move(inside).error());
  return found;
}

void list_adapters(Service& service, Call call) {
  if (auto failure = service.check_writes()) return call.exchange->answer(error_answer(*failure));
  JsonArray list;
  const std::vector<AdapterInfo> loaded = service.model()->engine->adapters();
  for (const AdapterInfo& info : loaded) {
    JsonObject one = {{"id", list.size()}, {"name", info.name}, {"scale", info.strength}, {"rank", info.rank}};
    if (call.visitor.oversees) one["path"] = info.path;
    list.push_back(std::move(one));
  }
  call.exchange->answer({.body = to_text(list)});
}

void load_adapter(Service& service, Call call) { change(service, std::move(call), kLoadAdapter, start_load); }
void unload_adapter(Service& service, Call call) { change(service, std::move(call), kUnloadAdapter, start_unload); }

}  // namespace millrace
