// What there is, in Ollama's words.
#include <map>

#include "server/generation.h"
#include "server/ollama/ollama.h"
#include "server/ollama/writing.h"

namespace millrace {
namespace {

// "14M", "8.0B"
std::string count_text(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", static_cast<double>(count) / 1e6);
  return fmt::format("{}", count);
}

int64_t bytes_of(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

// The format most of its bytes have.
std::string quantisation(const Checkpoint& checkpoint) {
  std::map<DType, size_t> bytes;
  for (const StoredTensor& tensor : checkpoint.tensors()) bytes[tensor.type] += tensor.bytes.size();
  std::string name = "unknown";
  size_t most = 0;
  for (const auto& [type, size] : bytes)
    if (size > most) most = size, name = format(type).name;
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return name;
}

JsonObject facts(const ServedModel& served) {
  const Checkpoint& checkpoint = served.loaded->checkpoint();
  const std::string& family = served.loaded->model().spec().architecture;
  return {{"parent_model", ""},
          {"format", checkpoint.kind() == Checkpoint::Kind::gguf ? "gguf" : "safetensors"},
          {"family", family},
          {"families", JsonArray{Json(family)}},
          {"parameter_size", count_text(served.loaded->model().parameters())},
          {"quantization_level", quantisation(checkpoint)}};
}

JsonArray capabilities(const ServedModel& served) {
  JsonArray list;
  if (served.embeds != nullptr) list.emplace_back("embedding");
  if (served.engine == nullptr) return list;
  list.emplace_back("completion");
#if MILLRACE_SESSION_TEXT
  if (const Tokenizer* tokenizer = served.loaded->tokenizer()) {
    const SpecialTokens& special = tokenizer->special();
    if (special.fill_prefix >= 0 && special.fill_suffix >= 0 && special.fill_middle >= 0) list.emplace_back("insert");
  }
  if (const ChatTemplate* chat_template = served.loaded->chat_template()) {
    const auto abilities = chat_template->abilities(true);
    if (abilities.ok() && abilities->tools) list.emplace_back("tools");
    if (served.loaded->calls().thinks()) list.emplace_back("thinking");
  }
#endif
  return list;
}

}  // namespace

JsonObject ollama_model(const ServedModel& served) {
  return {{"name", served.name},
          {"model", served.name},
          {"modified_at", rfc3339(served.created)},
          {"size", bytes_of(served.loaded->checkpoint())},
          {"digest", served.fingerprint},
          {"details", facts(served)}};
}

JsonObject ollama_unloaded(const std::string& name, int64_t bytes) {
  return {{"name", name},  {"model", name}, {"modified_at", rfc3339(0)},
          {"size", bytes}, {"digest", ""},  {"details", JsonObject()}};
}

JsonObject ollama_running(const ServedModel& served) {
  JsonObject one = ollama_model(served);
  one["expires_at"] = "9999-12-31T23:59:59Z";  // it stays
  one["size_vram"] = 0;
  one["context_length"] = served.context();
  return one;
}

JsonObject ollama_details(const ServedModel& served) {
  const std::string& family = served.loaded->model().spec().architecture;
  return {{"modelfile", ""},
          {"parameters", ""},
          {"template", ""},
          {"modified_at", rfc3339(served.created)},
          {"details", facts(served)},
          {"model_info", JsonObject{{"general.architecture", family},
                                    {"general.parameter_count", served.loaded->model().parameters()},
                                    {family + ".context_length", served.context()},
                                    {family + ".vocab_size", served.loaded->vocab()}}},
          {"capabilities", capabilities(served)}};
}

}  // namespace millrace
