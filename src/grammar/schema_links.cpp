#include "grammar/schema_links.h"

#include <utility>

namespace millrace::grammar {

namespace {

// An address against a base, as far as documents that never leave themselves need it: whole addresses, absolute paths,
// names beside the base, fragments.
std::string join(const std::string& base, std::string_view reference) {
  if (reference.empty()) return base;
  const size_t colon = reference.find(':');
  const size_t slash = reference.find('/');
  if (colon != reference.npos && (slash == reference.npos || colon < slash)) return std::string(reference);
  const size_t authority = base.find("://");
  const size_t path = authority == base.npos ? 0 : std::min(base.find('/', authority + 3), base.size());
  if (reference[0] == '/') return base.substr(0, path) + std::string(reference);
  const size_t last = base.rfind('/');
  if (last == base.npos || last < path) {
    return base.substr(0, path) + (path > 0 ? "/" : "") + std::string(reference);
  }
  return base.substr(0, last + 1) + std::string(reference);
}

std::string unescaped(std::string_view step) {
  std::string plain;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%' && i + 2 < step.size()) {
      const auto value = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
      plain.push_back(static_cast<char>(value(step[i + 1]) * 16 + value(step[i + 2])));
      i += 2;
    } else {
      plain.push_back(step[i]);
    }
  }
  std::string out;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '~' && i + 1 < plain.size()) {
      out.push_back(plain[++i] == '1' ? '/' : '~');
    } else {
      out.push_back(plain[i]);
    }
  }
  return out;
}

const Json* step_into(const Json& json, const std::string& key) {
  if (const auto* object = json.if_object()) return object->if_contains(key);
  const auto* array = json.if_array();
  if (array == nullptr || key.empty() || key.size() > 6) return nullptr;
  size_t index = 0;
  for (char c : key) {
    if (c < '0' || c > '9') return nullptr;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index < array->size() ? &(*array)[index] : nullptr;
}

}  // namespace

std::string pointer_step(std::string_view pointer, std::string_view key) {
  std::string out = std::string(pointer) + "/";
  for (char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

SchemaLinks::SchemaLinks(const Json& document) {
  if (const auto* object = document.if_object()) {
    const Json* dialect = object->if_contains("$schema");
    const std::string_view name = dialect && dialect->is_string() ? std::string_view(dialect->get_string()) : "";
    if (name.find("draft-07") != name.npos) draft_ = Draft::seven;
    if (name.find("draft-06") != name.npos) draft_ = Draft::six;
    for (const char* old : {"draft-03", "draft-04", "draft-05"}) {
      if (name.find(old) != name.npos) draft_ = Draft::four;
    }
  }
  resources_.push_back({"", &document, ""});
  by_uri_.emplace("", 0);
  struct Todo {
    const Json* json;
    std::string pointer;
    size_t resource;
  };
  std::vector<Todo> todo{{&document, "", 0}};
  while (!todo.empty()) {
    Todo now = std::move(todo.back());
    todo.pop_back();
    note(*now.json, now.pointer, now.resource);
    owner_[now.json] = now.resource;
    if (const auto* object = now.json->if_object()) {
      for (const auto& [key, value] : *object) {
        const bool data = key == "enum" || key == "const" || key == "default" || key == "examples";
        if (!data && (value.is_object() || value.is_array())) {
          todo.push_back({&value, pointer_step(now.pointer, key), now.resource});
        }
      }
    } else if (const auto* array = now.json->if_array()) {
      for (size_t i = 0; i < array->size(); ++i) {
        todo.push_back({&(*array)[i], pointer_step(now.pointer, std::to_string(i)), now.resource});
      }
    }
  }
}

void SchemaLinks::note(const Json& json, const std::string& pointer, size_t& resource) {
  const auto* object = json.if_object();
  if (object == nullptr) return;
  const auto text = [&](std::string_view key) -> std::string_view {
    const Json* value = object->if_contains(key);
    return value && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
  };
  std::string_view id = text("$id");
  if (id.empty() && draft_ == Draft::four) id = text("id");
  if (draft_ != Draft::latest && object->contains("$ref")) id = {};
  const size_t hash = id.find('#');
  const std::string_view anchor = hash == id.npos ? std::string_view() : id.substr(hash + 1);
  if (hash != id.npos) id = id.substr(0, hash);
  if (!id.empty()) {
    const std::string uri = join(resources_[resource].uri, id);
    resources_.push_back({uri, &json, pointer});
    resource = resources_.size() - 1;
    if (!by_uri_.emplace(uri, resource).second) twice_.insert(uri);
  }
  for (std::string_view name : {anchor, text("$anchor"), text("$dynamicAnchor")}) {
    if (!name.empty() && name[0] != '/') {
      anchors_.try_emplace(resources_[resource].uri + "#" + std::string(name), SchemaPlace{&json, pointer, resource});
    }
  }
}

size_t SchemaLinks::resource_of(const Json* json, size_t otherwise) const {
  auto found = owner_.find(json);
  return found == owner_.end() ? otherwise : found->second;
}

Result<SchemaPlace> SchemaLinks::resolve(std::string_view reference, const SchemaPlace& from) const {
  const size_t hash = reference.find('#');
  const std::string_view address = reference.substr(0, hash);
  const std::string_view fragment = hash == reference.npos ? std::string_view() : reference.substr(hash + 1);
  const std::string uri = join(resources_[from.resource].uri, address);
  auto resource = by_uri_.find(uri);
  if (resource == by_uri_.end()) {
    return error(Code::unsupported,
                 "{}: $ref '{}' leads out of the document, and nothing is fetched; put it into $defs",
                 from.pointer.empty() ? "/" : from.pointer, reference);
  }
  if (twice_.contains(uri)) {
    return error(Code::unsupported, "{}: $ref '{}' names an $id that two schemas have", from.pointer, reference);
  }
  const Resource& target = resources_[resource->second];
  if (fragment.empty()) return SchemaPlace{target.json, target.pointer, resource->second};
  if (fragment[0] != '/') {
    auto found = anchors_.find(uri + "#" + unescaped(fragment));
    if (found == anchors_.end()) {
      return error(Code::invalid, "{}: $ref '{}' names an anchor that is not there", from.pointer, reference);
    }
    return found->second;
  }
  auto place = follow(target, resource->second, fragment);
  if (!place.ok()) return error(Code::invalid, "{}: $ref '{}' leads nowhere", from.pointer, reference);
  return place;
}

Result<SchemaPlace> SchemaLinks::follow(const Resource& resource, size_t index, std::string_view pointer) const {
  SchemaPlace place{resource.json, resource.pointer, index};
  pointer.remove_prefix(1);
  for (;;) {
    const size_t slash = pointer.find('/');
    const std::string key = unescaped(pointer.substr(0, slash));
    place.json = step_into(*place.json, key);
    if (place.json == nullptr) return error(Code::not_found, "no such place");
    place.pointer = pointer_step(place.pointer, key);
    place.resource = resource_of(place.json, place.resource);
    if (slash == pointer.npos) return place;
    pointer.remove_prefix(slash + 1);
  }
}

}  // namespace millrace::grammar
