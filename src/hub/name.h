// What a person types for a model that lies elsewhere, taken apart: a repository of a Hugging Face-compatible hub, or a
// model of a registry that speaks like Ollama's. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

inline constexpr std::string_view kHub = "https://huggingface.co";
inline constexpr std::string_view kRegistry = "https://registry.ollama.ai";

struct ModelName {
  enum class Source : uint8_t { hub, registry };
  Source source = Source::hub;
  std::string origin;       // what addresses begin with: "https://huggingface.co"
  std::string host;         // as names and folders have it: "hf.co", "ollama.com", "example.org:8443"
  std::string owner, name;  // "unsloth", "Qwen3-0.6B-GGUF"
  std::string tag;          // a quantisation of a hub's repository, a registry's tag; empty: whatever is usual there
  std::string revision;     // of a hub: a branch, tag or commit; empty: main
  std::string file;         // of a hub: one GGUF file of the repository; empty: chosen by tag
};

// OWNER/NAME[:QUANT][@REVISION], hf.co/OWNER/NAME..., a hub's address (also of one file), NAME[:TAG] and
// ollama.com/OWNER/NAME[:TAG] of Ollama's registry, HOST/OWNER/NAME[:TAG] of another one. `hub` is the address of the
// hub that OWNER/NAME means.
Result<ModelName> parse_name(std::string_view text, std::string_view hub = kHub);

// As `list` shows it: OWNER/NAME:TAG of the usual hub, NAME:TAG of Ollama's library, else with the host before.
// A tag "latest" is not shown.
std::string shown_name(std::string_view host, std::string_view owner, std::string_view name, std::string_view tag);

// Whether a text may be one part of a path below the models folder: no separator, not "." or "..", not hidden, no
// control characters, not too long.
bool is_plain_part(std::string_view part);

// "https://host:port" of an address.
std::string origin_of(const std::string& url);

}  // namespace millrace
