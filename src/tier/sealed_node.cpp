#include "tier/sealed_node.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace millrace {
namespace {

constexpr std::string_view kMagic{"MRPAGE1\0", 8};
constexpr size_t kSealBytes = 32;

std::string hex(std::span<const uint8_t> bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string_view text(const Identity& identity) {
  return {reinterpret_cast<const char*>(identity.bytes.data()), identity.bytes.size()};
}

// Everything before the pages but which of them there are.
std::string head(const NodeSeal& seal, const Identity& chain) {
  std::string out(kMagic);
  out += text(seal.identity);
  out += text(chain);
  put(out, static_cast<uint64_t>(seal.slots), 4);
  return out;
}

Identity digest_of(const NodeSeal& seal, std::string_view bytes) {
  Digest digest(seal.key);
  digest.add(bytes);
  return digest.finish();
}

}  // namespace

NodeSeal make_seal(const Identity& identity, std::span<const uint8_t, 32> secret, int slots, int64_t page_bytes) {
  Digest digest(secret);
  digest.add_sized("pages");
  return {.identity = identity, .key = digest.finish().bytes, .slots = slots, .page_bytes = page_bytes};
}

std::string node_key(const NodeSeal& seal, const Identity& chain) {
  return fmt::format("mr1:{}:{}", hex(std::span(seal.identity.bytes).first(16)), hex(chain.bytes));
}

std::string seal_node(const NodeSeal& seal, const TierNode& node) {
  std::string out = head(seal, node.chain);
  for (uint8_t there : node.present) out += static_cast<char>(there);
  put(out, static_cast<uint64_t>(seal.page_bytes), 8);
  out += node.pages;
  out += text(digest_of(seal, out));
  return out;
}

size_t sealed_lead(const NodeSeal& seal) {
  return kMagic.size() + 2 * sizeof(Identity::bytes) + 4 + static_cast<size_t>(seal.slots) + 8;
}

size_t most_sealed_bytes(const NodeSeal& seal) {
  return sealed_lead(seal) + static_cast<size_t>(seal.slots) * static_cast<size_t>(seal.page_bytes) + kSealBytes;
}

std::optional<SealedHead> sealed_head(const NodeSeal& seal, std::string_view bytes) {
  if (bytes.size() < sealed_lead(seal)) return {};
  SealedHead out;
  std::memcpy(out.chain.bytes.data(), bytes.data() + kMagic.size() + out.chain.bytes.size(), out.chain.bytes.size());
  const std::string begin = head(seal, out.chain);
  if (!bytes.starts_with(begin)) return {};
  const std::string_view present = bytes.substr(begin.size(), static_cast<size_t>(seal.slots));
  const auto pages = static_cast<size_t>(std::ranges::count(present, 1));
  out.bytes = sealed_lead(seal) + pages * static_cast<size_t>(seal.page_bytes) + kSealBytes;
  return out;
}

Result<TierNode> open_node(const NodeSeal& seal, const Identity& chain, std::string_view bytes) {
  const auto wrong = [] { return error(Code::corrupt, "a stored page is not what was put there"); };
  const std::string begin = head(seal, chain);
  const size_t slots = static_cast<size_t>(seal.slots), lead = begin.size() + slots + 8;
  if (bytes.size() < lead + kSealBytes || !bytes.starts_with(begin)) return wrong();
  TierNode node{.chain = chain};
  for (char there : bytes.substr(begin.size(), slots)) {
    if (there != 0 && there != 1) return wrong();
    node.present.push_back(static_cast<uint8_t>(there));
  }
  std::string size;
  put(size, static_cast<uint64_t>(seal.page_bytes), 8);
  const auto pages = static_cast<uint64_t>(std::count(node.present.begin(), node.present.end(), 1));
  const auto whole = (Checked(pages) * Checked(seal.page_bytes) + Checked(lead) + Checked(kSealBytes)).get();
  if (bytes.substr(begin.size() + slots, 8) != size || whole != bytes.size()) return wrong();
  const Identity made = digest_of(seal, bytes.substr(0, bytes.size() - kSealBytes));
  uint8_t differs = 0;
  for (size_t i = 0; i < kSealBytes; ++i)
    differs |= static_cast<uint8_t>(made.bytes[i] ^ static_cast<uint8_t>(bytes[bytes.size() - kSealBytes + i]));
  if (differs != 0) return wrong();
  node.pages = bytes.substr(lead, bytes.size() - lead - kSealBytes);
  return node;
}

}  // namespace millrace
