// Any text as a config.json: it gives a spec that keeps its promises, or an error.
#include "base/check.h"
#include "model/architecture.h"
#include "model/slots.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto json = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  auto config = Config::from_json("config.json", *json);
  if (!config.ok()) return 0;
  config->set_wanted_context(size % 2 == 0 ? 0 : 100000);
  const auto spec = describe(*config);
  if (!spec.ok()) {
    CHECK(!spec.error().message.empty());
    return 0;
  }
  for (const Slot& slot : slots(*spec)) {
    CHECK(slot.rows > 0 && slot.cols > 0 && slot.values() > 0);
    CHECK(slot.kind == SlotKind::norm || slot.heads == 0 || slot.rows % slot.heads == 0);
  }
  return 0;
}
