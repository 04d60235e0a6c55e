#include "server/keys.h"

#include <openssl/rand.h>

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

constexpr size_t kShortestKey = 8;
constexpr size_t kLongestKey = 512;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

Result<void> read_limit(std::string_view word, TenantLimits& limits) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals), text = equals < word.size() ? word.substr(equals + 1) : "";
  uint32_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty())
    return error(Code::invalid,
                 "after the key come limits like rpm=60 (there are rpm, tpm and concurrent) and the word operator");
  if (name == "rpm") {
    limits.requests_per_minute = value;
  } else if (name == "tpm") {
    limits.tokens_per_minute = value;
  } else if (name == "concurrent" && value <= 1'000'000) {
    limits.concurrent = static_cast<int>(value);
  } else {
    return error(Code::invalid, "there is no limit '{}'; there are rpm, tpm and concurrent", name);
  }
  return {};
}

}  // namespace

Keys::Keys() { CHECK(RAND_bytes(secret_.data(), static_cast<int>(secret_.size())) == 1, "no random numbers"); }

Identity Keys::digest(std::string_view key) const {
  Digest digest(secret_);
  digest.add_sized(key);
  return digest.finish();
}

Result<void> Keys::add(std::string name, std::string_view key, const TenantLimits& limits, bool oversees) {
  if (key.size() < kShortestKey || key.size() > kLongestKey)
    return error(Code::invalid, "the key of '{}' has {} characters; it must have {} to {}", name, key.size(),
                 kShortestKey, kLongestKey);
  Entry entry{.name = std::move(name), .digest = digest(key), .limits = limits, .oversees = oversees};
  for (const Entry& other : entries_) {
    if (other.name == entry.name) return error(Code::invalid, "there are two keys named '{}'", entry.name);
    if (other.digest == entry.digest)
      return error(Code::invalid, "'{}' and '{}' have the same key", other.name, entry.name);
  }
  entries_.push_back(std::move(entry));
  return {};
}

Result<void> Keys::add_lines(std::string_view text) {
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    auto at_line = [&](Error failure) { return within(fmt::format("line {}", number), std::move(failure)); };
    if (words.size() < 2) return at_line(error(Code::invalid, "a name and a key are needed"));
    TenantLimits limits;
    bool oversees = false;
    for (size_t i = 2; i < words.size(); ++i) {
      if (words[i] == "operator") {
        oversees = true;
      } else if (auto read = read_limit(words[i], limits); !read.ok()) {
        return at_line(read.error());
      }
    }
    if (auto added = add(std::string(words[0]), words[1], limits, oversees); !added.ok()) return at_line(added.error());
  }
  return {};
}

const Keys::Entry* Keys::find(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";  // in letters of any size
  if (authorization.size() < kScheme.size()) return nullptr;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != kScheme[i]) return nullptr;
  }
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
  const Identity given = digest(authorization);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    unsigned differs = 0;
    for (size_t i = 0; i < given.bytes.size(); ++i)
      differs |= static_cast<unsigned>(given.bytes[i] ^ entry.digest.bytes[i]);
    if (differs == 0) found = &entry;
  }
  return found;
}

}  // namespace millrace
