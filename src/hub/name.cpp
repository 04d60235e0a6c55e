#include "hub/name.h"

#include <algorithm>
#include <vector>

#include "hub/listing.h"

namespace millrace {
namespace {

constexpr size_t kLongestName = 1024;

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t slash = text.find('/');
    parts.push_back(text.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    text.remove_prefix(slash + 1);
  }
}

Error not_a_name(std::string_view text) {
  return error(Code::invalid,
               "'{}' names no model: expected OWNER/NAME[:QUANT] of a hub, NAME[:TAG] of Ollama's library, "
               "HOST/OWNER/NAME[:TAG] of another registry, or an address",
               text);
}

bool of_hub(std::string_view host) {
  return host == "hf.co" || host == "www.hf.co" || host == "huggingface.co" || host == "www.huggingface.co";
}

bool of_ollama(std::string_view host) {
  return host == "ollama.com" || host == "www.ollama.com" || host == "registry.ollama.ai" || host == "ollama.ai";
}

std::string_view host_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos) origin.remove_prefix(scheme + 3);
  return origin.substr(0, origin.find('/'));
}

// Letters, digits and ._-: what hosts, names, tags and branches are made of wherever models are kept.
bool is_word(std::string_view text) {
  return is_plain_part(text) && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
                  c == '-' || c == '+';
         });
}

bool is_host(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  return is_word(text.substr(0, colon)) && port.size() <= 5 && (colon == std::string_view::npos || !port.empty()) &&
         port.find_first_not_of("0123456789") == port.npos;
}

// NAME[:TAG][@REVISION].
Result<void> take_last(std::string_view last, ModelName& name) {
  if (const size_t at = last.find('@'); at != last.npos) {
    name.revision = last.substr(at + 1);
    last = last.substr(0, at);
    if (!is_word(name.revision)) return error(Code::invalid, "'{}' is no revision", name.revision);
  }
  if (const size_t colon = last.find(':'); colon != last.npos) {
    name.tag = last.substr(colon + 1);
    last = last.substr(0, colon);
    if (!is_word(name.tag)) return error(Code::invalid, "'{}' is no tag", name.tag);
  }
  name.name = last;
  return {};
}

// OWNER/NAME and perhaps resolve|blob|tree/REVISION/FILE, as a hub's addresses have it.
Result<ModelName> hub_name(ModelName name, const std::vector<std::string_view>& parts, std::string_view text) {
  if (parts.size() < 2) return not_a_name(text);
  name.source = ModelName::Source::hub;
  name.owner = parts[0];
  TRY_VOID(take_last(parts[1], name));
  size_t next = 2;
  if (parts.size() > 3 && (parts[2] == "resolve" || parts[2] == "blob" || parts[2] == "tree" || parts[2] == "raw")) {
    name.revision = parts[3];
    if (!is_word(name.revision)) return error(Code::invalid, "'{}' is no revision", name.revision);
    next = 4;
  }
  for (; next < parts.size(); ++next) {
    if (!is_plain_part(parts[next])) return not_a_name(text);
    name.file += fmt::format("{}{}", name.file.empty() ? "" : "/", parts[next]);
  }
  return name;
}

// [v2/]OWNER/NAME[:TAG] or v2/OWNER/NAME/manifests/TAG; NAME alone is in the library.
Result<ModelName> registry_name(ModelName name, std::vector<std::string_view> parts, std::string_view text) {
  name.source = ModelName::Source::registry;
  if (!parts.empty() && parts[0] == "v2") parts.erase(parts.begin());
  if (parts.size() == 4 && parts[2] == "manifests") {
    name.tag = parts[3];
    parts.resize(2);
  }
  if (parts.empty() || parts.size() > 2) return not_a_name(text);
  name.owner = parts.size() == 1 ? "library" : std::string(parts[0]);
  const std::string tag = name.tag;
  TRY_VOID(take_last(parts.back(), name));
  if (!tag.empty()) name.tag = tag;
  if (name.tag.empty()) name.tag = "latest";
  if (!name.revision.empty()) return error(Code::invalid, "'{}': a registry has tags (:TAG), no revisions", text);
  return name;
}

Result<ModelName> of_address(std::string_view scheme, std::string_view rest, std::string_view hub,
                             std::string_view text) {
  rest = rest.substr(0, rest.find_first_of("?#"));
  while (rest.ends_with('/')) rest.remove_suffix(1);
  std::vector<std::string_view> parts = parts_of(rest);
  ModelName name;
  name.host = parts.front();
  name.origin = fmt::format("{}://{}", scheme, name.host);
  if (!is_host(name.host)) return not_a_name(text);
  parts.erase(parts.begin());
  if (of_ollama(name.host)) {
    name.host = "ollama.com";
    name.origin = kRegistry;
    return registry_name(std::move(name), std::move(parts), text);
  }
  if (!parts.empty() && parts[0] == "v2") return registry_name(std::move(name), std::move(parts), text);
  if (name.host == host_of(hub)) {
    name.origin = hub;
  } else if (of_hub(name.host)) {
    name.origin = kHub;
  }
  if (of_hub(name.host)) name.host = "hf.co";
  return hub_name(std::move(name), parts, text);
}

Result<ModelName> of_words(std::string_view text, std::string_view hub) {
  std::vector<std::string_view> parts = parts_of(text);
  if (parts.size() >= 2 && (of_hub(parts[0]) || of_ollama(parts[0]))) return of_address("https", text, hub, text);
  ModelName name;
  if (parts.size() == 1) {
    name.host = "ollama.com";
    name.origin = kRegistry;
    return registry_name(std::move(name), std::move(parts), text);
  }
  // A host has a dot or a port; owners of a hub have neither, and a third part is a file only after them.
  const bool host = parts.size() >= 3 && parts[0].find_first_of(".:") != std::string_view::npos;
  if (host) {
    name.host = parts[0];
    name.origin = fmt::format("https://{}", name.host);
    if (!is_host(name.host)) return not_a_name(text);
    parts.erase(parts.begin());
    return registry_name(std::move(name), std::move(parts), text);
  }
  name.origin = hub;
  name.host = of_hub(host_of(hub)) ? "hf.co" : std::string(host_of(hub));
  return hub_name(std::move(name), parts, text);
}

}  // namespace

std::string origin_of(const std::string& url) {
  const size_t scheme = url.find("://");
  return scheme == url.npos ? "" : url.substr(0, url.find_first_of("/?#", scheme + 3));
}

bool is_plain_part(std::string_view part) {
  if (part.empty() || part.size() > 200 || part[0] == '.') return false;
  return std::none_of(part.begin(), part.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/' || c == '\\' || c == ':'; });
}

Result<ModelName> parse_name(std::string_view text, std::string_view hub) {
  if (text.size() > kLongestName) return error(Code::invalid, "a model's name of {} bytes is too long", text.size());
  while (hub.ends_with('/')) hub.remove_suffix(1);
  const size_t scheme = text.find("://");
  Result<ModelName> name = not_a_name(text);
  if (scheme == std::string_view::npos) {
    name = of_words(text, hub);
  } else if (text.substr(0, scheme) == "https" || text.substr(0, scheme) == "http") {
    name = of_address(text.substr(0, scheme), text.substr(scheme + 3), hub, text);
  }
  if (!name.ok()) return name;
  // As owners these would be taken for something else when the name is typed again.
  if (of_hub(name->owner) || of_ollama(name->owner) || name->owner == "v2") return not_a_name(text);
  if (!is_word(name->owner) || !is_word(name->name) || (!name->tag.empty() && !is_word(name->tag)))
    return not_a_name(text);
  if (!name->file.empty() && !is_plain_path(name->file)) return not_a_name(text);
  if (!name->file.empty() && !name->file.ends_with(".gguf"))
    return error(Code::unsupported, "'{}': of single files only GGUF is a model; name the repository instead", text);
  return name;
}

std::string shown_name(std::string_view host, std::string_view owner, std::string_view name, std::string_view tag) {
  const std::string end = tag.empty() || tag == "latest" ? "" : fmt::format(":{}", tag);
  if (host == "hf.co") return fmt::format("{}/{}{}", owner, name, end);
  if (host == "ollama.com" && owner == "library") return fmt::format("{}{}", name, end);
  return fmt::format("{}/{}/{}{}", host, owner, name, end);
}

}  // namespace millrace
