#include "cache/identity.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace millrace {
namespace {

constexpr std::array<uint32_t, 8> kInitial = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                              0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
constexpr uint8_t kOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

void mix(std::array<uint32_t, 16>& v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 7);
}

}  // namespace

Digest::Digest(std::span<const uint8_t> key) : state_(kInitial) {
  CHECK(key.size() <= 32, "a key of {} bytes", key.size());
  state_[0] ^= 0x01010000u ^ static_cast<uint32_t>(key.size() << 8) ^ 32u;
  if (key.empty()) return;
  std::transform(key.begin(), key.end(), buffer_.begin(), [](uint8_t byte) { return std::byte{byte}; });
  buffered_ = buffer_.size();  // the key, padded with zeros, is the first 64 bytes
}

void Digest::compress(bool last) {
  total_ += buffered_;
  std::array<uint32_t, 16> words, v;
  for (size_t i = 0; i < 16; ++i) {
    words[i] = 0;
    for (size_t byte = 4; byte-- > 0;) words[i] = words[i] << 8 | std::to_integer<uint32_t>(buffer_[4 * i + byte]);
  }
  std::copy(state_.begin(), state_.end(), v.begin());
  std::copy(kInitial.begin(), kInitial.end(), v.begin() + 8);
  v[12] ^= static_cast<uint32_t>(total_);
  v[13] ^= static_cast<uint32_t>(total_ >> 32);
  if (last) v[14] = ~v[14];
  for (const auto& order : kOrder) {
    for (int i = 0; i < 4; ++i) mix(v, i, 4 + i, 8 + i, 12 + i, words[order[2 * i]], words[order[2 * i + 1]]);
    for (int i = 0; i < 4; ++i)
      mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[order[8 + 2 * i]], words[order[9 + 2 * i]]);
  }
  for (size_t i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
}

void Digest::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // The last 64 bytes wait for finish(), so a full buffer is compressed only once more follows.
    if (buffered_ == buffer_.size()) {
      compress(false);
      buffered_ = 0;
    }
    size_t count = std::min(bytes.size(), buffer_.size() - buffered_);
    std::copy_n(bytes.begin(), count, buffer_.begin() + static_cast<ptrdiff_t>(buffered_));
    buffered_ += count;
    bytes = bytes.subspan(count);
  }
}

void Digest::add_sized(std::string_view text) {
  uint64_t size = text.size();
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(size >> (8 * i));
  add(bytes);
  add(text);
}

Identity Digest::finish() {
  std::fill(buffer_.begin() + static_cast<ptrdiff_t>(buffered_), buffer_.end(), std::byte{0});
  compress(true);
  Identity identity;
  for (size_t i = 0; i < 32; ++i) identity.bytes[i] = static_cast<uint8_t>(state_[i / 4] >> (8 * (i % 4)));
  return identity;
}

Identity root_key(std::span<const uint8_t, 32> secret, const PrefixRoot& root) {
  Digest digest(secret);
  digest.add(root.model);
  for (const std::string_view part : {root.tenant, root.salt, root.adapter, root.rule}) digest.add_sized(part);
  return digest.finish();
}

}  // namespace millrace
