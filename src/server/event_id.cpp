#include "server/event_id.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint8_t kVersion = 1;
constexpr size_t kSealBytes = 12;
constexpr size_t kMostChoices = 4096;
constexpr size_t kMostText = 64 << 10;

class Writer {
 public:
  void byte(uint8_t value) { bytes_.push_back(value); }
  void all(std::span<const uint8_t> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Seven bits a byte, the lowest first.
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<uint8_t>(value | 0x80));
    byte(static_cast<uint8_t>(value));
  }
  void sent(const SentSoFar& one) { number(uint64_t{one.taken} << 2 | (one.begun ? 2U : 0U) | (one.told ? 1U : 0U)); }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : rest_(bytes) {}
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }

  uint8_t byte() {
    if (rest_.empty()) return fail();
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  template <size_t N>
  void all(std::array<uint8_t, N>& out) {
    for (uint8_t& each : out) each = byte();
  }
  uint64_t number(uint64_t most) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t next = byte();
      const uint64_t part = next & 0x7FU;
      if (shift == 63 && part > 1) return fail();
      value |= part << shift;
      if ((next & 0x80) == 0) return value <= most ? value : fail();
    }
    return fail();
  }
  SentSoFar sent() {
    const uint64_t value = number(uint64_t{INT32_MAX} << 2 | 3U);
    return {static_cast<uint32_t>(value >> 2), (value & 2) != 0, (value & 1) != 0};
  }

 private:
  uint8_t fail() {
    good_ = false;
    rest_ = {};
    return 0;
  }
  std::span<const uint8_t> rest_;
  bool good_ = true;
};

std::string as_text(std::span<const uint8_t> bytes) {
  std::string out;
  uint32_t held = 0;
  int bits = 0;
  for (uint8_t byte : bytes) {
    held = held << 8 | byte;
    for (bits += 8; bits >= 6; bits -= 6) out += kLetters[held >> (bits - 6) & 63U];
  }
  if (bits > 0) out += kLetters[held << (6 - bits) & 63U];
  return out;
}

// Nothing if there is a letter that does not belong there.
std::vector<uint8_t> as_bytes(std::string_view text) {
  std::vector<uint8_t> out;
  uint32_t held = 0;
  int bits = 0;
  for (char c : text) {
    const size_t value = kLetters.find(c);
    if (value == std::string_view::npos) return {};
    held = held << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out.push_back(static_cast<uint8_t>(held >> bits));
  }
  return out;
}

std::array<uint8_t, kSealBytes> seal_of(std::span<const uint8_t> bytes, const SealKey& key) {
  Digest digest(key);
  digest.add(std::as_bytes(bytes));
  const Identity whole = digest.finish();
  std::array<uint8_t, kSealBytes> seal;
  std::copy_n(whole.bytes.begin(), seal.size(), seal.begin());
  return seal;
}

// In a time that does not tell where they differ.
bool equal(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  uint8_t differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differs |= static_cast<uint8_t>(a[i] ^ b[i]);
  return differs == 0;
}

constexpr uint64_t kMostCount = uint64_t{1} << 53;  // sums of some of them stay far from overflow

bool read_place(Reader& in, EventPlace& place) {
  if (in.byte() != kVersion) return false;
  in.all(place.model);
  in.all(place.body);
  in.all(place.answer);
  in.all(place.name);
  place.created = static_cast<int64_t>(in.number(kMostCount));
  place.seed = in.number(UINT64_MAX);
  place.cached = static_cast<int64_t>(in.number(kMostCount));
  place.first = static_cast<int64_t>(in.number(kMostCount));
  place.told = static_cast<int64_t>(in.number(kMostCount));
  const uint64_t choices = in.number(kMostChoices);
  place.choice = static_cast<uint32_t>(in.number(choices));
  place.after = in.sent();
  for (uint64_t i = 0; i < choices && in.good(); ++i) place.sent.push_back(in.sent());
  return in.good() && in.at_end();
}

}  // namespace

Mark mark_of(const Identity& identity) {
  Mark mark;
  std::copy_n(identity.bytes.begin(), mark.size(), mark.begin());
  return mark;
}

std::string seal_place(const EventPlace& place, const SealKey& key) {
  Writer out;
  out.byte(kVersion);
  out.all(place.model);
  out.all(place.body);
  out.all(place.answer);
  out.all(place.name);
  out.number(static_cast<uint64_t>(place.created));
  out.number(place.seed);
  out.number(static_cast<uint64_t>(place.cached));
  out.number(static_cast<uint64_t>(place.first));
  out.number(static_cast<uint64_t>(place.told));
  out.number(place.sent.size());
  out.number(place.choice);
  out.sent(place.after);
  for (const SentSoFar& one : place.sent) out.sent(one);
  out.all(seal_of(out.bytes(), key));
  return as_text(out.bytes());
}

Result<EventPlace> open_place(std::string_view text, const SealKey& key) {
  const std::vector<uint8_t> bytes = text.size() <= kMostText ? as_bytes(text) : std::vector<uint8_t>();
  if (bytes.size() <= kSealBytes || as_text(bytes) != text)
    return error(Code::invalid, "the Last-Event-ID is not one of ours: send the last id of the stream as it came");
  const auto said = std::span(bytes).first(bytes.size() - kSealBytes);
  if (!equal(seal_of(said, key), std::span(bytes).last(kSealBytes)))
    return error(Code::invalid,
                 "the Last-Event-ID was changed, or given to somebody else: send the last id of the stream as it came, "
                 "with the key it was asked with");
  EventPlace place;
  Reader in(said);
  if (!read_place(in, place)) return error(Code::invalid, "the Last-Event-ID is of another version: ask anew");
  return place;
}

}  // namespace millrace
