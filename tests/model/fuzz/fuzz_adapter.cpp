// Any bytes as an adapter for a small model: a GGUF file, or (two bytes of length, that many of adapter_config.json,
// then adapter_model.safetensors). It gives changes of that model's matrices in their shapes, or an error of one line.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "base/check.h"
#include "model/adapter.h"
#include "model/architecture.h"
#include "model/slots.h"

namespace {

using namespace millrace;

const ModelSpec& small_model() {
  static const ModelSpec spec = [] {
    const Json json = parse_json(R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 12,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64})")
                          .value();
    auto config = Config::from_json("config.json", json).value();
    return describe(config).value();
  }();
  return spec;
}

void look_at(const Adapter& adapter) {
  CHECK(!adapter.parts.empty());
  for (const AdapterPart& part : adapter.parts) {
    bool known = part.slot == "output";
    for (const Slot& slot : slots(small_model())) {
      if (slot.name != part.slot) continue;
      known = true;
      const auto rank = static_cast<size_t>(part.rank), rows = static_cast<size_t>(slot.rows),
                 cols = static_cast<size_t>(slot.cols);
      CHECK(part.down.size() == rank * (part.table ? rows : cols));
      CHECK(part.up.size() == rank * (part.table ? cols : rows));
    }
    CHECK(known && part.rank > 0 && std::isfinite(part.scale));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size), config;
  if (!text.starts_with("GGUF")) {
    if (size < 2) return 0;
    const size_t length = data[0] | data[1] << 8;
    if (length + 2 > size) return 0;
    config = text.substr(2, length);
    text.remove_prefix(2 + length);
  }
  const int file = ::memfd_create("adapter", 0);
  CHECK(file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  const auto settings = parse_json(config);
  const auto checkpoint = Checkpoint::open("/proc/self/fd/" + std::to_string(file));
  if (checkpoint.ok()) {
    const auto read = read_adapter(*checkpoint, settings.ok() ? *settings : Json(), small_model());
    if (read.ok()) {
      look_at(*read);
    } else {
      CHECK(!read.error().message.empty());
    }
  }
  ::close(file);
  return 0;
}
