// SHA-256, for goldens that store the hash of numbers instead of the numbers. One thread.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace millrace::test {

// The first 32 bits of the fraction of a root of the n-th prime: square roots to start from, cube roots as constants.
inline uint32_t prime_root(int n, bool cube) {
  int prime = 2;
  for (int found = 0;; ++prime) {
    bool is_prime = true;
    for (int d = 2; d * d <= prime; ++d) is_prime = is_prime && prime % d != 0;
    if (is_prime && found++ == n) break;
  }
  const long double root =
      cube ? std::cbrt(static_cast<long double>(prime)) : std::sqrt(static_cast<long double>(prime));
  return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

inline std::string sha256(const void* data, size_t size) {
  std::array<uint32_t, 64> constants;
  std::array<uint32_t, 8> state;
  for (int i = 0; i < 64; ++i) constants[static_cast<size_t>(i)] = prime_root(i, true);
  for (int i = 0; i < 8; ++i) state[static_cast<size_t>(i)] = prime_root(i, false);
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), data, size);
  bytes.push_back(0x80);
  while (bytes.size() % 64 != 56) bytes.push_back(0);
  for (int i = 7; i >= 0; --i) bytes.push_back(static_cast<uint8_t>(uint64_t{size} * 8 >> (8 * i)));
  for (size_t at = 0; at < bytes.size(); at += 64) {
    std::array<uint32_t, 64> w = {};
    for (size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | bytes[at + i];
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> s = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = s[4], a = s[0];
      const uint32_t one = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                           constants[i] + w[i];
      const uint32_t two =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
  std::string text;
  for (const uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace millrace::test
