#include "model/known_digests.h"

#include <chrono>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/slots.h"

namespace millrace {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{1} << 20;  // less is hashed sooner than looked up
constexpr size_t kMostKept = 64;                     // the newest
constexpr int64_t kGrain = 2'000'000'000;            // nanoseconds
// Raised when the same files come to give another digest: other tensors, another order, another way to hash.
constexpr int kVersion = 1;

// The files as they were when opened, and what is taken of them.
Identity key_of(const ModelSource& source) {
  const Checkpoint& checkpoint = source.checkpoint();
  Digest digest;
  digest.add_sized(fmt::format("digest {}", kVersion));
  for (size_t i = 0; i < checkpoint.files(); ++i) {
    const FileState& state = checkpoint.state_of_file(i);
    digest.add_sized(
        fmt::format("{} {} {} {} {}", state.device, state.inode, state.size, state.written, state.changed));
  }
  for (const Slot& slot : slots(source.spec())) {
    const std::string_view type = slot.weight && slot.kind == SlotKind::matrix ? format(source.type_of(slot)).name : "";
    digest.add_sized(fmt::format("{} {} {} {} {} {}", slot.name, type, slot.rows, slot.cols, slot.experts, slot.bias));
  }
  return digest.finish();
}

bool settled(const Checkpoint& checkpoint) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(  // of the same clock as files' times
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  for (size_t i = 0; i < checkpoint.files(); ++i) {
    if (checkpoint.state_of_file(i).changed > now - kGrain) return false;
  }
  return true;
}

std::string hexadecimal(const Identity& identity) { return fmt::format("{:02x}", fmt::join(identity.bytes, "")); }

std::optional<Identity> from_hexadecimal(std::string_view text) {
  Identity identity;
  if (text.size() != 2 * identity.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = std::string_view("0123456789abcdef").find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    identity.bytes[i / 2] = static_cast<uint8_t>(identity.bytes[i / 2] * 16 + digit);
  }
  return identity;
}

struct Row {
  std::string key, digest;
};

// Newest first; whatever is not a row is left out.
std::vector<Row> read_rows(const std::filesystem::path& path) {
  std::vector<Row> rows;
  const auto text = read_file(path, size_t{1} << 16);
  if (!text.ok()) return rows;
  const auto json = parse_json(*text);
  const auto* list = json.ok() ? json->if_array() : nullptr;
  if (list == nullptr) return rows;
  for (const Json& each : *list) {
    const Json *key = find(each, "files"), *digest = find(each, "digest");
    if (key == nullptr || digest == nullptr || !key->is_string() || !digest->is_string()) continue;
    rows.push_back({std::string(key->get_string()), std::string(digest->get_string())});
  }
  return rows;
}

}  // namespace

KnownDigests::KnownDigests(const std::filesystem::path& folder, const ModelSource& source) {
  if (folder.empty() || source.checkpoint().file_bytes() < kLeastBytes || !settled(source.checkpoint())) return;
  path_ = folder / "digests.json";
  key_ = key_of(source);
}

std::optional<Identity> KnownDigests::find() const {
  if (path_.empty()) return std::nullopt;
  const std::string key = hexadecimal(key_);
  for (const Row& row : read_rows(path_)) {
    if (row.key == key) return from_hexadecimal(row.digest);
  }
  return std::nullopt;
}

void KnownDigests::keep(const Identity& digest) const {
  if (path_.empty()) return;
  const std::string key = hexadecimal(key_);
  JsonArray rows = {Json{{"files", key}, {"digest", hexadecimal(digest)}}};
  for (const Row& row : read_rows(path_)) {
    if (row.key != key && rows.size() < kMostKept) rows.push_back(Json{{"files", row.key}, {"digest", row.digest}});
  }
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  auto file = AtomicFile::create(path_);
  if (file.ok() && file->write(to_pretty_text(rows) + "\n").ok()) (void)file->commit().ok();
}

}  // namespace millrace
