#include "shrink/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/file.h"
#include "cache/identity.h"

namespace millrace {
namespace {

constexpr std::string_view kMagic = "millrace journal 1\n";
constexpr size_t kDigest = 32;

void put(std::string& out, uint64_t number) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}
void put(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

std::string digest_of(std::string_view body) {
  Digest digest;
  digest.add(body);
  const Identity made = digest.finish();
  return {reinterpret_cast<const char*>(made.bytes.data()), made.bytes.size()};
}

std::string written(const JournalRecord& record) {
  std::string body;
  put(body, record.what);
  put(body, static_cast<uint64_t>(record.figures.size()));
  for (double figure : record.figures) {
    uint64_t bits = 0;
    std::memcpy(&bits, &figure, sizeof(bits));
    put(body, bits);
  }
  put(body, static_cast<uint64_t>(record.changes.size()));
  for (const JournalRecord::Change& change : record.changes) {
    put(body, change.slot);
    put(body, static_cast<uint64_t>(change.expert));
    put(body, std::string_view(format(change.type).name));
    put(body, {reinterpret_cast<const char*>(change.bytes.data()), change.bytes.size()});
  }
  std::string out;
  put(out, static_cast<uint64_t>(body.size()));
  return out + digest_of(body) + body;
}

// Takes numbers and texts off the front; after anything that is not there, everything is empty and ok is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(uint64_t count) {
    if (!ok || count > bytes_.size()) {
      ok = false;
      return {};
    }
    const std::string_view out = bytes_.substr(0, static_cast<size_t>(count));
    bytes_.remove_prefix(static_cast<size_t>(count));
    return out;
  }
  uint64_t number() {
    const std::string_view raw = take(8);
    uint64_t out = 0;
    for (size_t i = raw.size(); i-- > 0;) out = out << 8 | static_cast<uint8_t>(raw[i]);
    return out;
  }
  std::string_view text() { return take(number()); }
  size_t left() const { return bytes_.size(); }

  bool ok = true;

 private:
  std::string_view bytes_;
};

std::optional<JournalRecord> read_record(std::string_view body) {
  Reader in(body);
  JournalRecord record;
  record.what = in.text();
  for (uint64_t count = in.number(); in.ok && count > 0; --count) {
    const uint64_t bits = in.number();
    double figure = 0;
    std::memcpy(&figure, &bits, sizeof(figure));
    record.figures.push_back(figure);
  }
  for (uint64_t count = in.number(); in.ok && count > 0; --count) {
    JournalRecord::Change change;
    change.slot = in.text();
    change.expert = static_cast<int64_t>(in.number());
    const std::optional<DType> type = dtype_from_name(in.text());
    const std::string_view raw = in.text();
    if (!in.ok || !type || change.expert < 0) return std::nullopt;
    change.type = *type;
    const auto bytes = std::as_bytes(std::span(raw.data(), raw.size()));
    change.bytes.assign(bytes.begin(), bytes.end());
    record.changes.push_back(std::move(change));
  }
  if (!in.ok || in.left() != 0) return std::nullopt;
  return record;
}

Result<void> write_all(const std::filesystem::path& path, int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return os_error(path, "write");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return {};
}

Result<std::string> read_all(const std::filesystem::path& path, int fd) {
  std::string out;
  std::vector<char> room(size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(fd, room.data(), room.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path, "read");
    if (got == 0) return out;
    out.append(room.data(), static_cast<size_t>(got));
  }
}

}  // namespace

Result<JournalBytes> read_journal(std::string_view bytes, std::string_view of) {
  Reader in(bytes);
  const bool ours = in.take(kMagic.size()) == kMagic;
  const std::string_view made_of = in.text();
  if (!ours || !in.ok) return error(Code::corrupt, "is no journal of a run that was interrupted");
  if (made_of != of) return error(Code::invalid, "was begun with another model, text or other flags");
  JournalBytes out;
  for (;;) {
    out.end = bytes.size() - in.left();
    const uint64_t size = in.number();
    const std::string_view digest = in.take(kDigest), body = in.take(size);
    if (!in.ok || digest != digest_of(body)) return out;
    std::optional<JournalRecord> record = read_record(body);
    if (!record) return out;
    out.records.push_back(std::move(*record));
  }
}

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& path, std::string_view of) {
  std::string head(kMagic);
  put(head, of);
  std::unique_ptr<Journal> out(new Journal(path, std::move(head)));
  out->fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (out->fd_ < 0 && errno == ENOENT) return out;
  if (out->fd_ < 0) return os_error(path, "open");
  TRY(const std::string bytes, read_all(path, out->fd_));
  // A process that ended while it wrote the head has decided nothing.
  if (bytes.size() < out->head_.size() && std::string_view(out->head_).starts_with(bytes)) {
    if (::ftruncate(out->fd_, 0) != 0 || ::lseek(out->fd_, 0, SEEK_SET) < 0) return os_error(path, "shorten");
    TRY_VOID(write_all(path, out->fd_, out->head_));
    return out;
  }
  auto read = read_journal(bytes, of);
  if (!read.ok())
    return error(read.error().code, "{}: {}; remove it to begin anew", path.string(), read.error().message);
  if (::ftruncate(out->fd_, static_cast<off_t>(read->end)) != 0 || ::lseek(out->fd_, 0, SEEK_END) < 0)
    return os_error(path, "shorten");
  out->records_ = std::move(read->records);
  out->found_ = out->records_.size();
  std::reverse(out->records_.begin(), out->records_.end());
  return out;
}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::optional<JournalRecord>> Journal::next(std::string_view what) {
  if (records_.empty()) return std::optional<JournalRecord>();
  if (records_.back().what != what) {
    return error(Code::corrupt, "{}: the next step is {} and the file has {}; remove it to begin anew", path_.string(),
                 what, records_.back().what);
  }
  std::optional<JournalRecord> out = std::move(records_.back());
  records_.pop_back();
  return out;
}

Result<void> Journal::add(const JournalRecord& record) {
  if (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return os_error(path_, "create");
    TRY_VOID(write_all(path_, fd_, head_));
  }
  return write_all(path_, fd_, written(record));
}

void Journal::remove() {
  if (fd_ < 0) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

Result<JournalRecord::Change> change_of(const ModelSource& source, const Slot& slot, int64_t expert) {
  std::vector<std::byte> room;
  TRY(const HostMatrix matrix, source.matrix(slot, expert, room));
  return JournalRecord::Change{slot.name, expert, matrix.type, {matrix.bytes.begin(), matrix.bytes.end()}};
}

Result<void> put_change(ModelSource& source, const JournalRecord::Change& change) {
  for (const Slot& slot : slots(source.spec())) {
    if (slot.name != change.slot || slot.kind != SlotKind::matrix) continue;
    if (change.expert >= slot.matrices() || slot.cols % format(change.type).group != 0 ||
        static_cast<int64_t>(change.bytes.size()) != bytes_of(change.type, slot.rows * slot.cols))
      break;
    source.put_matrix(slot, change.expert, change.type, change.bytes);
    return {};
  }
  return error(Code::corrupt, "the journal changes {}, which the model does not have so; remove it to begin anew",
               change.slot);
}

}  // namespace millrace
