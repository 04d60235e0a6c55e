#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace millrace {

Error os_error(const std::filesystem::path& path, std::string_view what) {
  int number = errno;
  return error(number == ENOENT ? Code::not_found : Code::io, "{}: cannot {}: {}", path.string(), what,
               std::strerror(number));
}

Result<FileState> state_of(const std::filesystem::path& path, int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return os_error(path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return error(Code::invalid, "{}: is {}, not a file", path.string(),
                 S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
  }
  auto nanoseconds = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return FileState{.device = static_cast<uint64_t>(info.st_dev),
                   .inode = static_cast<uint64_t>(info.st_ino),
                   .size = static_cast<uint64_t>(info.st_size),
                   .links = static_cast<uint64_t>(info.st_nlink),
                   .written = nanoseconds(info.st_mtim),
                   .changed = nanoseconds(info.st_ctim)};
}

Result<void> unchanged(const std::filesystem::path& path, const FileState& before, const FileState& now) {
  if (now.size != before.size) {
    return error(Code::io, "{}: changed while it was read, from {} to {} bytes: use it once it is complete",
                 path.string(), before.size, now.size);
  }
  if (now != before)
    return error(Code::io, "{}: was written to while it was read: use it once it is complete", path.string());
  // Who writes to a file can set back when it was written, not when its entry changed. Links come and go harmlessly.
  if (now.changed != before.changed && now.links == before.links) {
    return error(Code::io,
                 "{}: its entry changed while it was read: its owner or permissions did, or it was written to and its "
                 "time set back. Whether its bytes are the same cannot be told: load it again",
                 path.string());
  }
  return {};
}

Result<OpenedFile> open_regular(const std::filesystem::path& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not wait for a writer
  if (fd < 0) return os_error(path, "open");
  auto state = state_of(path, fd);
  if (!state.ok()) {
    ::close(fd);
    return state.error();
  }
  return OpenedFile{fd, *state};
}

Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  TRY(OpenedFile file, open_regular(path));
  if (file.state.size > max_bytes) {
    ::close(file.fd);
    return error(Code::invalid, "{}: {} bytes, more than the {} allowed for such a file", path.string(),
                 file.state.size, max_bytes);
  }
  std::string text(file.state.size, '\0');
  size_t got = 0;
  while (got < text.size()) {
    ssize_t count = ::read(file.fd, text.data() + got, text.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      Error failure = os_error(path, "read");
      ::close(file.fd);
      return failure;
    }
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  const auto now = state_of(path, file.fd);
  ::close(file.fd);
  if (!now.ok()) return now.error();
  TRY_VOID(unchanged(path, file.state, *now));
  return text;
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& target, unsigned mode) {
  AtomicFile file;
  file.target_ = target;
  file.temporary_ = target.string() + "." + std::to_string(::getpid()) + ".tmp";
  file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file.fd_ < 0) return os_error(file.temporary_, "create");
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return os_error(temporary_, "write");
    bytes = bytes.subspan(static_cast<size_t>(count));
    written_ += static_cast<uint64_t>(count);
  }
  return {};
}

Result<void> AtomicFile::commit() {
  if (::fsync(fd_) != 0) return os_error(temporary_, "sync");
  if (::close(std::exchange(fd_, -1)) != 0) return os_error(temporary_, "close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    Error failure = os_error(target_, "rename to");
    ::unlink(temporary_.c_str());
    return failure;
  }
  return {};
}

}  // namespace millrace
