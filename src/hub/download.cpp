#include "hub/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/human.h"
#include "hub/digest.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

FileDigest::Kind digest_kind(const RemoteFile& file) {
  return !file.sha256.empty() ? FileDigest::Kind::sha256
         : !file.git.empty()  ? FileDigest::Kind::git
                              : FileDigest::Kind::none;
}

// The bytes that are here already, and those that come behind them.
class PartialFile {
 public:
  explicit PartialFile(const Download& download)
      : download_(download), path_(part_path(download)), digest_(digest_kind(download.file), download.file.size) {}
  ~PartialFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t size() const { return size_; }
  const fs::path& path() const { return path_; }

  Result<void> open() {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return os_error(path_, "create");
    return read_again();
  }

  // A digest cannot be gone on from: it is made again from what lies here.
  Result<void> read_again() {
    std::vector<std::byte> buffer(1 << 20);
    for (;;) {
      const ssize_t got = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (got < 0) return os_error(path_, "read");
      if (got == 0) break;
      if (static_cast<uint64_t>(got) > download_.file.size - size_) return clear();  // more than there can be
      digest_.add({buffer.data(), static_cast<size_t>(got)});
      size_ += static_cast<uint64_t>(got);
      if (download_.go_on != nullptr && !download_.go_on()) return error(Code::cancelled, "interrupted");
    }
    return {};
  }

  Result<void> clear() {
    if (::ftruncate(fd_, 0) != 0) return os_error(path_, "shorten");
    size_ = 0;
    digest_ = FileDigest(digest_kind(download_.file), download_.file.size);
    return {};
  }

  Result<void> add(std::span<const std::byte> bytes) {
    if (bytes.size() > download_.file.size - size_)
      return error(Code::corrupt, "{} is longer than the {} that were announced", download_.url,
                   brief_bytes(static_cast<uint64_t>(download_.file.size)));
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(size_));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return os_error(path_, "write");
      digest_.add(bytes.subspan(done, static_cast<size_t>(put)));
      done += static_cast<size_t>(put);
      size_ += static_cast<uint64_t>(put);
    }
    if (download_.progress != nullptr) download_.progress(size_);
    return {};
  }

  // Whole: what it should be, and under its name. Wrong: gone, since going on from it would never help.
  Result<void> publish() {
    const RemoteFile& file = download_.file;
    const std::string wanted = !file.sha256.empty() ? file.sha256 : file.git, found = digest_.hex();
    if (found != wanted) {
      ::unlink(path_.c_str());
      return error(Code::corrupt, "{} came damaged: its {} is {}, not {}; it was thrown away, pull it again",
                   download_.url, file.sha256.empty() ? "git name" : "SHA-256", found, wanted);
    }
    if (::fsync(fd_) != 0) return os_error(path_, "write");
    if (::rename(path_.c_str(), download_.target.c_str()) != 0) return os_error(path_, "rename");
    return {};
  }

 private:
  const Download& download_;
  fs::path path_;
  FileDigest digest_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

// "bytes 100-199/200": the first number.
std::optional<uint64_t> range_start(const std::string& header) {
  if (!header.starts_with("bytes ")) return std::nullopt;
  uint64_t start = 0;
  const auto [end, failed] = std::from_chars(header.data() + 6, header.data() + header.size(), start);
  return failed == std::errc() ? std::optional(start) : std::nullopt;
}

// The digest a hub's headers state: quotes and a W/ before it are left off.
std::string stated_digest(const HttpHead& head) {
  std::string text = head.get(":x-linked-etag");
  if (text.empty()) text = head.get("x-linked-etag");
  std::erase(text, '"');
  if (text.starts_with("W/")) text.erase(0, 2);
  return text;
}

Result<void> check_head(const HttpHead& head, const Download& download, PartialFile& part) {
  const std::string stated = stated_digest(head);
  if (stated.size() == 64 && !download.file.sha256.empty() && stated != download.file.sha256)
    return error(Code::corrupt, "{}: the server has other content ({}) than it listed ({}); pull it again",
                 download.url, stated, download.file.sha256);
  if (part.size() == 0) return {};
  if (head.status != 206) return part.clear();  // it sends everything from the beginning
  if (const auto start = range_start(head.get("content-range")); start != part.size())
    return error(Code::corrupt, "{}: asked for what follows byte {}, the server sends '{}'", download.url, part.size(),
                 head.get("content-range"));
  return {};
}

Result<void> attempt(Transport& transport, const Download& download, PartialFile& part) {
  if (part.size() < download.file.size) {
    const auto on_head = [&](const HttpHead& head) { return check_head(head, download, part); };
    const auto on_body = [&](std::span<const std::byte> bytes) { return part.add(bytes); };
    auto got = transport.get({.url = download.url, .from = part.size()}, on_head, on_body);
    if (!got.ok()) return got.error();
  }
  if (part.size() < download.file.size)
    return error(Code::overloaded, "{}: {} of {} came", download.url, brief_bytes(static_cast<uint64_t>(part.size())),
                 brief_bytes(static_cast<uint64_t>(download.file.size)));
  return part.publish();
}

// Longer after every failure, and not longer than Ctrl-C takes.
bool pause(const Download& download, int failures) {
  using namespace std::chrono;
  const auto until = steady_clock::now() + std::min(seconds(30), seconds(1) * (1 << std::min(failures - 1, 5)));
  while (steady_clock::now() < until) {
    if (download.go_on != nullptr && !download.go_on()) return false;
    std::this_thread::sleep_for(milliseconds(50));
  }
  return true;
}

}  // namespace

fs::path part_path(const Download& download) {
  const std::string& digest = !download.file.sha256.empty() ? download.file.sha256 : download.file.git;
  return fmt::format("{}.{}.part", download.target.string(), digest.empty() ? "new" : digest.substr(0, 16));
}

uint64_t bytes_here(const Download& download) {
  std::error_code failed;
  uint64_t bytes = fs::file_size(download.target, failed);
  if (failed) bytes = fs::file_size(part_path(download), failed);
  return failed ? 0 : std::min<uint64_t>(bytes, download.file.size);
}

Result<void> fetch_file(Transport& transport, const Download& download) {
  std::error_code failed;
  if (fs::file_size(download.target, failed) == download.file.size && !failed) return {};  // published by us, checked
  PartialFile part(download);
  TRY_VOID(part.open());
  if (download.progress != nullptr) download.progress(part.size());
  for (int failures = 0;;) {
    const uint64_t before = part.size();
    auto done = attempt(transport, download, part);
    if (done.ok() || done.error().code != Code::overloaded) return done;
    if (part.size() > before) failures = 0;  // it goes on, if in pieces
    if (++failures > download.retries) return done;
    if (download.note != nullptr)
      download.note(fmt::format("{}; trying again ({} of {}), from byte {}", done.error().message, failures,
                                download.retries, part.size()));
    if (!pause(download, failures)) return error(Code::cancelled, "interrupted");
  }
}

}  // namespace millrace
