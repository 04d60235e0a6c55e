#include "hub/listing.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "hub/name.h"

namespace millrace {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = size_t{16} << 20, .max_depth = 32};
constexpr size_t kMostFiles = 10'000;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<uint64_t> size_in(const Json& object) {
  TRY(const int64_t size, get_int(object, "size", -1));
  if (size < 0 || static_cast<uint64_t>(size) > kMostBytes)
    return error(Code::corrupt, "a file's size is {}, which cannot be", size);
  return static_cast<uint64_t>(size);
}

// cardData.license, or the tag "license:...".
std::string license_in(const Json& json) {
  if (const Json* card = find(json, "cardData")) {
    if (auto license = get_string(*card, "license", ""); license.ok() && !license->empty()) return *license;
  }
  const Json* tags = find(json, "tags");
  if (tags == nullptr || !tags->is_array()) return "";
  for (const Json& tag : tags->get_array()) {
    const auto* value = tag.if_string();
    if (value == nullptr) continue;
    const std::string_view text(value->data(), value->size());
    if (text.starts_with("license:")) return std::string(text.substr(8));
  }
  return "";
}

Result<std::optional<RemoteFile>> tree_entry(const Json& entry) {
  TRY(const std::string type, get_string(entry, "type", "file"));
  if (type != "file") return std::optional<RemoteFile>();
  RemoteFile file;
  TRY(file.path, get_string(entry, "path", ""));
  TRY(file.size, size_in(entry));
  TRY(file.git, get_string(entry, "oid", ""));
  if (!is_hex(file.git, 40)) file.git.clear();
  if (const Json* large = find(entry, "lfs")) {
    TRY(file.sha256, get_string(*large, "oid", ""));
    if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
    if (!is_hex(file.sha256, 64))
      return error(Code::corrupt, "the hub gives no SHA-256 for a large file, '{}'", file.path.substr(0, 100));
    file.git.clear();  // it names the pointer, not the content
    TRY(file.size, size_in(*large));
  }
  return std::optional(std::move(file));
}

// What a layer of a registry's manifest is called here; nothing for those no model here needs.
std::optional<std::string> layer_name(std::string_view kind) {
  constexpr std::string_view kPrefix = "application/vnd.ollama.image.";
  if (!kind.starts_with(kPrefix)) return std::nullopt;
  kind.remove_prefix(kPrefix.size());
  if (kind == "model") return "model.gguf";
  if (kind == "template") return "template.txt";
  if (kind == "params") return "params.json";
  if (kind == "system") return "system.txt";
  if (kind == "license") return "LICENSE";
  return std::nullopt;
}

}  // namespace

bool is_plain_path(std::string_view path) {
  for (size_t parts = 1; parts <= 8; ++parts) {
    const size_t slash = path.find('/');
    if (!is_plain_part(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;
}

Result<HubModel> parse_hub_model(std::string_view text) {
  TRY(const Json json, parse_json(text, kLimits));
  if (!json.is_object()) return error(Code::corrupt, "the hub's description of the model is no JSON object");
  HubModel model;
  TRY(model.commit, get_string(json, "sha", ""));
  if (!model.commit.empty() && !is_hex(model.commit, 40) && !is_hex(model.commit, 64))
    return error(Code::corrupt, "the hub's commit '{}' is none", model.commit.substr(0, 80));
  model.license = license_in(json);
  if (const Json* gated = find(json, "gated"))
    model.gated = gated->is_string() || (gated->is_bool() && gated->get_bool());
  return model;
}

Result<HubTree> parse_hub_tree(std::string_view text) {
  TRY(const Json json, parse_json(text, kLimits));
  if (!json.is_array()) return error(Code::corrupt, "the hub's list of files is no JSON array");
  HubTree tree;
  for (const Json& entry : json.get_array()) {
    TRY(auto file, tree_entry(entry));
    if (!file) continue;
    if (!is_plain_path(file->path)) {
      ++tree.skipped;
      continue;
    }
    if (tree.files.size() >= kMostFiles) return error(Code::corrupt, "the hub lists more than {} files", kMostFiles);
    tree.files.push_back(std::move(*file));
  }
  return tree;
}

std::optional<std::string> next_page(std::string_view link) {
  while (!link.empty()) {
    const size_t open = link.find('<');
    const size_t close = link.find('>', open == link.npos ? link.size() : open);
    if (open == link.npos || close == link.npos) return std::nullopt;
    const size_t comma = link.find(',', close);
    const std::string_view says = link.substr(close, comma == link.npos ? link.npos : comma - close);
    if (says.find("rel=\"next\"") != says.npos) return std::string(link.substr(open + 1, close - open - 1));
    if (comma == link.npos) return std::nullopt;
    link.remove_prefix(comma + 1);
  }
  return std::nullopt;
}

Result<std::vector<RemoteFile>> parse_registry_manifest(std::string_view text) {
  TRY(const Json json, parse_json(text, kLimits));
  const Json* layers = find(json, "layers");
  if (layers == nullptr || !layers->is_array()) return error(Code::corrupt, "the registry's manifest has no layers");
  std::vector<RemoteFile> files;
  std::set<std::string> names;
  for (const Json& layer : layers->get_array()) {
    TRY(const std::string kind, get_string(layer, "mediaType", ""));
    if (kind.ends_with(".projector") || kind.ends_with(".adapter")) {
      return error(Code::unsupported,
                   "the model has a layer of kind '{}', which is not understood: pull the plain model",
                   kind.substr(0, 80));
    }
    const auto name = layer_name(kind);
    if (!name) continue;
    if (!names.insert(*name).second) {
      if (*name != "model.gguf") continue;  // several licences: the first
      return error(Code::unsupported, "the model lies in several layers, which is not understood");
    }
    RemoteFile file{.path = *name};
    TRY(file.size, size_in(layer));
    TRY(file.sha256, get_string(layer, "digest", ""));
    if (!file.sha256.starts_with("sha256:") || !is_hex(std::string_view(file.sha256).substr(7), 64))
      return error(Code::corrupt, "the registry's layer '{}' has no SHA-256", kind.substr(0, 80));
    file.sha256.erase(0, 7);
    files.push_back(std::move(file));
  }
  if (!names.contains("model.gguf"))
    return error(Code::unsupported, "the registry's manifest has no layer with a model");
  return files;
}

}  // namespace millrace
