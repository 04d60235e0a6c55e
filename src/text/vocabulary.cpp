#include "text/vocabulary.h"

#include <algorithm>
#include <random>

namespace millrace {

Vocabulary::Vocabulary() : slots_(16), seed_(std::random_device{}()) {}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  bytes_.reserve(bytes);
  spans_.reserve(tokens);
  size_t slots = slots_.size();
  while (slots < tokens * 2) slots *= 2;
  if (slots > slots_.size()) {
    slots_.resize(slots / 2);
    grow();
  }
}

size_t Vocabulary::slot_of(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.id == kNoToken) return at;
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && this->text(slot.id) == text) return at;
  }
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id == kNoToken) continue;
    std::string_view words = text(slot.id);
    slots_[slot_of(words, hash_bytes(words.data(), words.size(), seed_))] = slot;
  }
}

Result<void> Vocabulary::add(std::string_view words, Token id) {
  if (id < 0 || id >= kMostTokens) {
    return error(Code::invalid, "token '{}' has id {}, outside of 0 to {}", words.substr(0, 80), id, kMostTokens - 1);
  }
  if (words.size() > kLongestToken) {
    return error(Code::invalid, "token {} has {} bytes, more than the limit of {}", id, words.size(), kLongestToken);
  }
  if (bytes_.size() + words.size() >= kHole) return error(Code::invalid, "the vocabulary has more than 4 GiB of text");
  if (count_ * 2 >= slots_.size()) grow();
  const auto index = static_cast<size_t>(id);
  if (index >= spans_.size()) spans_.resize(index + 1);
  if (spans_[index].begin == kHole) {
    spans_[index] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(words.size())};
    bytes_.append(words);
  } else if (text(id) != words) {
    return error(Code::invalid, "token {} is both '{}' and '{}'", id, text(id).substr(0, 80), words.substr(0, 80));
  }
  const uint64_t hash = hash_bytes(words.data(), words.size(), seed_);
  Slot& slot = slots_[slot_of(words, hash)];
  if (slot.id == kNoToken) ++count_;
  slot = {id, static_cast<uint32_t>(hash >> 32)};
  longest_ = std::max(longest_, words.size());
  return {};
}

Token Vocabulary::find(std::string_view words) const {
  return slots_[slot_of(words, hash_bytes(words.data(), words.size(), seed_))].id;
}

void Vocabulary::find_all(std::span<const std::string_view> texts, std::span<Token> found) const {
  constexpr size_t kAtOnce = 64;
  uint64_t hash[kAtOnce];
  const size_t mask = slots_.size() - 1;
  for (size_t first = 0; first < texts.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, texts.size() - first);
    for (size_t i = 0; i < count; ++i) {
      std::string_view words = texts[first + i];
      hash[i] = hash_bytes(words.data(), words.size(), seed_);
      __builtin_prefetch(&slots_[hash[i] & mask]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (Token id = slots_[hash[i] & mask].id; id != kNoToken) __builtin_prefetch(&spans_[static_cast<size_t>(id)]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (Token id = slots_[hash[i] & mask].id; id != kNoToken) __builtin_prefetch(text(id).data());
    }
    for (size_t i = 0; i < count; ++i) found[first + i] = slots_[slot_of(texts[first + i], hash[i])].id;
  }
}

std::string_view Vocabulary::text(Token id) const {
  if (!has(id)) return {};
  const Place& place = spans_[static_cast<size_t>(id)];
  return {bytes_.data() + place.begin, place.size};
}

}  // namespace millrace
