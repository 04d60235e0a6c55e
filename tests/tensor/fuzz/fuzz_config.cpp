// Any text as the JSON files of a Hugging Face directory.
#include "base/check.h"
#include "tensor/hugging_face.h"
#include "tensor/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = parse_config(text); config.ok()) {
    if (const auto method = quantisation_of(*config)) CHECK(!method->empty());
    chat_template_of(*config);
    CHECK(config->is_object());
  }
  if (const auto index = parse_shard_index(text); index.ok()) {
    for (const auto& [name, file] : index->tensors) {
      CHECK(file < index->files.size() && index->files[file].find('/') == std::string::npos);
    }
  }
  return 0;
}
