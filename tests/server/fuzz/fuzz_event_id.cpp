// The Last-Event-ID of a request. What must hold: nothing crashes; what is opened, sealed again, is the same text; and
// what lies behind a right seal is read or refused.
#include <string>
#include <vector>

#include "base/check.h"
#include "server/event_id.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const SealKey key = {7};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto opened = open_place(text, key); opened.ok()) CHECK(seal_place(*opened, key) == text, "not the same again");
  // A place made of the bytes.
  EventPlace place;
  for (size_t i = 0; i + 5 <= size && place.sent.size() < 4096; i += 5) {
    const uint32_t taken = (data[i] | data[i + 1] << 8 | data[i + 2] << 16 | data[i + 3] << 24) & INT32_MAX;
    place.sent.push_back({taken, (data[i + 4] & 1) != 0, (data[i + 4] & 2) != 0});
  }
  place.seed = size > 0 ? uint64_t{data[0]} << 56 : 0;
  place.created = size > 1 ? data[1] : 0;
  place.first = size > 2 ? data[2] : 0;
  const std::string sealed = seal_place(place, key);
  auto again = open_place(sealed, key);
  CHECK(again.ok() == (sealed.size() <= (64 << 10)), "a place of ours is not read");
  if (again.ok()) CHECK(*again == place, "a place changes when it is read");
  return 0;
}
