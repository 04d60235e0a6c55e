#include "cache/bulk_digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/philox.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr size_t kLeafBytes = size_t{4} << 20;
constexpr size_t kStretchBytes = 4096, kWords = kStretchBytes / 4, kHalf = kWords / 2;
constexpr size_t kKeys = 4;

// For each key, the words for both halves of a stretch.
struct NhKeys {
  alignas(64) uint32_t words[kKeys][2][kHalf];

  NhKeys() {
    uint32_t position = 0;
    for (auto& key : words) {
      for (auto& half : key) {
        const auto drawn = philox_words<static_cast<int>(kHalf)>(0x6d696c6c72616365, 0, position++, 0);
        std::copy(std::begin(drawn.high), std::end(drawn.high), std::begin(half));
      }
    }
  }
};

const NhKeys& nh_keys() {
  static const NhKeys keys;
  return keys;
}

// A word of the first half of a stretch is multiplied with its counterpart of the second, each after its key is added.
// Written so that compilers see sums of widening products.
void fold(const uint32_t* words, const NhKeys& keys, std::array<uint64_t, kKeys>& out) {
  uint64_t sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
  auto product = [&](size_t key, size_t i) {
    const uint32_t a = words[i] + keys.words[key][0][i], b = words[kHalf + i] + keys.words[key][1][i];
    return uint64_t{a} * b;
  };
  for (size_t i = 0; i < kHalf; ++i) {
    sum0 += product(0, i);
    sum1 += product(1, i);
    sum2 += product(2, i);
    sum3 += product(3, i);
  }
  out = {sum0, sum1, sum2, sum3};
}

Identity leaf_digest(std::span<const std::byte> leaf) {
  const NhKeys& keys = nh_keys();
  Digest digest;
  std::array<uint64_t, kKeys> folded;
  for (; !leaf.empty(); leaf = leaf.subspan(std::min(leaf.size(), kStretchBytes))) {
    alignas(64) uint32_t words[kWords];
    const size_t size = std::min(leaf.size(), kStretchBytes);
    if (size < kStretchBytes) std::fill(std::begin(words), std::end(words), 0);  // the length is in the root
    std::memcpy(words, leaf.data(), size);
    fold(words, keys, folded);
    digest.add(std::as_bytes(std::span(folded)));
  }
  return digest.finish();
}

}  // namespace

Identity bulk_digest(std::span<const std::byte> bytes) {
  Digest root;
  const std::array<uint64_t, 1> size = {bytes.size()};
  root.add(std::as_bytes(std::span(size)));
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kLeafBytes))) {
    root.add(leaf_digest(bytes.first(std::min(bytes.size(), kLeafBytes))));
  }
  return root.finish();
}

}  // namespace millrace
