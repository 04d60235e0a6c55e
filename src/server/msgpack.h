// MessagePack, as far as events need it: arrays, numbers, text, nothing. Appends; any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

class MsgPack {
 public:
  void array(size_t size) { sized(size, 0x90, 15, 0xDC); }
  void text(std::string_view text) {
    sized(text.size(), 0xA0, 31, text.size() < 256 ? 0xD9 : 0xDA);
    out_ += text;
  }
  void nothing() { byte(0xC0); }
  void number(uint64_t value) {
    if (value < 128) return byte(static_cast<uint8_t>(value));
    const int bytes = value < 256 ? 1 : value < 65536 ? 2 : value < (uint64_t{1} << 32) ? 4 : 8;
    byte(static_cast<uint8_t>(bytes == 1 ? 0xCC : bytes == 2 ? 0xCD : bytes == 4 ? 0xCE : 0xCF));
    big_endian(value, bytes);
  }
  void real(double value) {
    byte(0xCB);
    big_endian(std::bit_cast<uint64_t>(value), 8);
  }
  std::string take() { return std::move(out_); }

 private:
  void byte(uint8_t value) { out_ += static_cast<char>(value); }
  void big_endian(uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) byte(static_cast<uint8_t>(value >> shift));
  }
  // A short one has its size in the first byte; else the size follows in one, two or four.
  void sized(size_t size, uint8_t brief, size_t most, uint8_t longer) {
    if (size <= most) return byte(static_cast<uint8_t>(brief + size));
    if (longer == 0xD9) {
      byte(longer);
      return big_endian(size, 1);
    }
    byte(static_cast<uint8_t>(size < 65536 ? longer : longer + 1));
    big_endian(size, size < 65536 ? 2 : 4);
  }
  std::string out_;
};

}  // namespace millrace
