#include "apps/serve/batch_files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <utility>

#include "apps/cli/interrupt.h"
#include "base/human.h"

namespace millrace::apps {
namespace {

constexpr size_t kReadAtOnce = size_t{256} << 10;

std::string why() { return std::strerror(errno); }

}  // namespace

Result<BatchInput> BatchInput::open(const std::string& in, const std::string& out) {
  struct stat source = {}, target = {};
  if (::stat(in.c_str(), &source) != 0) return error(Code::io, "{}: cannot be read: {}", in, why());
  if (S_ISDIR(source.st_mode)) return error(Code::invalid, "{}: this is a folder; -i takes a file of requests", in);
  const bool same = ::stat(out.c_str(), &target) == 0 && S_ISREG(source.st_mode) && source.st_dev == target.st_dev &&
                    source.st_ino == target.st_ino;
  if (same) return error(Code::invalid, "{} and {} are the same file: give the answers another with -o", in, out);
  BatchInput input;
  input.path_ = in;
  input.fd_ = ::open(in.c_str(), O_RDONLY | O_CLOEXEC);
  if (input.fd_ < 0) return error(Code::io, "{}: cannot be read: {}", in, why());
  if (S_ISREG(source.st_mode)) input.bytes_ = static_cast<uint64_t>(source.st_size);
  return input;
}

BatchInput::BatchInput(BatchInput&& other) noexcept
    : path_(std::move(other.path_)),
      read_(std::move(other.read_)),
      begin_(other.begin_),
      looked_(other.looked_),
      bytes_(other.bytes_),
      position_(other.position_),
      fd_(std::exchange(other.fd_, -1)),
      ended_(other.ended_) {}

BatchInput::~BatchInput() {
  if (fd_ >= 0) ::close(fd_);
}

bool BatchInput::take(std::string& line) {
  const size_t end = read_.find('\n', looked_);
  looked_ = read_.size();
  if (end == std::string::npos && (!ended_ || begin_ == read_.size())) return false;
  const size_t stop = end == std::string::npos ? read_.size() : end;
  line.assign(read_, begin_, stop - begin_);
  position_ += line.size() + 1;
  begin_ = looked_ = std::min(stop + 1, read_.size());
  return true;
}

Result<BatchInput::Next> BatchInput::next(std::string& line, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!take(line)) {
    if (ended_) return Next::end;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready = {.fd = fd_, .events = POLLIN, .revents = 0};
    const int found = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (found == 0 || (found < 0 && errno == EINTR)) return Next::nothing_yet;
    read_.erase(0, std::exchange(begin_, 0));
    if (read_.size() > kLongestBatchLine + 1) {  // what follows is thrown away as it comes
      position_ += read_.size() - kLongestBatchLine - 1;
      read_.resize(kLongestBatchLine + 1);
    }
    looked_ = read_.size();
    read_.resize(looked_ + kReadAtOnce);
    const ssize_t got = ::read(fd_, read_.data() + looked_, kReadAtOnce);
    read_.resize(looked_ + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) return Next::nothing_yet;
    if (got < 0) return error(Code::io, "{}: cannot be read: {}", path_, why());
    ended_ = got == 0;
  }
  return Next::line;
}

Result<BatchOutput> BatchOutput::open(const std::string& path, BatchRecord& record) {
  struct stat what = {};
  BatchOutput output;
  output.path_ = path;
  output.regular_ = ::stat(path.c_str(), &what) != 0 || S_ISREG(what.st_mode);
  // Only a file has rows to go on with. Open for reading, too, a pipe would never notice that its reader went away.
  const int how = output.regular_ ? O_RDWR | O_CREAT | O_APPEND : O_WRONLY;
  output.fd_ = ::open(path.c_str(), how | O_CLOEXEC, 0644);
  if (output.fd_ < 0) return error(Code::io, "{}: {}", path, why());
  if (!output.regular_) return output;
  if (::flock(output.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return error(Code::invalid,
                 "{}: another batch is writing its answers there: wait until it ends, or give another file with -o",
                 path);
  }
  TRY_VOID(output.resume(record));
  return output;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), regular_(other.regular_), rows_(other.rows_) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) ::close(fd_);
}

// What an earlier run answered need not be asked again; a row it could not finish is taken back.
Result<void> BatchOutput::resume(BatchRecord& record) {
  std::ifstream before(path_, std::ios::binary);
  std::string row;
  off_t whole = 0;
  for (int64_t number = 1; std::getline(before, row); ++number) {
    const bool finished = !before.eof();
    auto added = finished ? record.add_row(row) : Result<void>();
    if (!added.ok() || (!finished && !BatchRecord::looks_like_row(row)))
      return error(Code::invalid, "{}: line {} is no answer of a batch; give another file with -o", path_, number);
    if (finished) whole += static_cast<off_t>(row.size()) + 1;
    rows_ += finished;
  }
  if (::ftruncate(fd_, whole) != 0) return error(Code::io, "{}: {}", path_, why());
  return {};
}

// A pipe whose reader is slow is waited for, but not against a signal.
Result<void> BatchOutput::wait_for_room() const {
  pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
  while (::poll(&ready, 1, 200) <= 0) {
    if (Interruptible::interrupted()) return interrupted_error();
  }
  return {};
}

Result<void> BatchOutput::write(std::string row) {
  row += '\n';
  for (std::string_view rest = row; !rest.empty();) {
    if (!regular_) TRY_VOID(wait_for_room());
    const ssize_t written = ::write(fd_, rest.data(), regular_ ? rest.size() : std::min<size_t>(rest.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return error(Code::io,
                   "{}: cannot write the answers: {}; {} there. Make room, and the same command goes on with what is "
                   "missing",
                   path_, why(), counted(rows_, "row is", "rows are"));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  ++rows_;
  return {};
}

}  // namespace millrace::apps
