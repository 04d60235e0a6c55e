// Bytes from the other side of the engine's socket. What must hold: nothing but whole frames is read, and a frame that
// is read, written and read again is written the same.
#include <string>

#include "base/check.h"
#include "process/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  FrameBuffer buffer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  buffer.add(text.substr(0, size / 2));
  buffer.add(text.substr(size / 2));
  for (;;) {
    auto bytes = buffer.next();
    if (!bytes.ok() || !*bytes) return 0;
    auto frame = read_frame(**bytes);
    if (!frame.ok()) continue;
    std::string once, twice;
    append_frame(*frame, once);
    auto again = read_frame(std::string_view(once).substr(4));
    CHECK(again.ok(), "a frame of ours is not read");
    append_frame(*again, twice);
    CHECK(once == twice, "a frame changes when it is read");
  }
}
