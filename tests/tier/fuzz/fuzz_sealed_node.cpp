// Bytes from a store that anybody may have written to. What must hold: nothing crashes, nothing that was not sealed is
// taken, and what is behind a right seal is read as it was written.
#include <string>

#include "base/check.h"
#include "tier/redis_tier.h"
#include "tier/sealed_node.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::array<uint8_t, 32> secret = {3};
  const NodeSeal seal = make_seal(Identity(), secret, 4, 8);
  CHECK(!open_node(seal, Identity(), bytes).ok(), "what nobody sealed is taken");
  (void)parse_redis_url(bytes);
  TierNode node;
  for (size_t i = 0; i < 4; ++i) node.present.push_back(size > i ? data[i] & 1 : 0);
  for (uint8_t there : node.present)
    if (there != 0) node.pages += std::string(8, size > 4 ? static_cast<char>(data[4]) : 'x');
  const auto back = open_node(seal, Identity(), seal_node(seal, node));
  CHECK(back.ok() && back->pages == node.pages && back->present == node.present, "a node changes in the store");
  return 0;
}
