// Any bytes as what a cache keeps: within its limits and written as it would be read, or an error of one line.
#include "base/check.h"
#include "model/kv_keep.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto keep = kv_keep_from({reinterpret_cast<const char*>(data), size});
  if (!keep.ok()) {
    CHECK(!keep.error().message.empty());
    return 0;
  }
  CHECK(keep->sinks >= 0 && keep->sinks <= kMostSinks && keep->window >= 1 && keep->window <= kMostWindow);
  CHECK(kv_keep_from(keep->name()).value() == *keep);
  return 0;
}
