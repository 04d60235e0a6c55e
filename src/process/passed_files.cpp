#include "process/passed_files.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace millrace {
namespace {

// A message of one byte, with room beside it for files.
struct Message {
  char byte = 'f';
  iovec part = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostPassedFiles)> room = {};
  msghdr head = {};

  explicit Message(size_t files) {
    CHECK(files > 0 && files <= kMostPassedFiles, "{} files", files);
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = room.data();
    head.msg_controllen = CMSG_SPACE(sizeof(int) * files);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

}  // namespace

Result<void> send_files(int socket, std::span<const int> files, bool waits) {
  Message message(files.size());
  cmsghdr* const head = CMSG_FIRSTHDR(&message.head);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(head), files.data(), files.size_bytes());
  while (::sendmsg(socket, &message.head, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) != 1) {
    if (errno != EINTR) return error(Code::io, "the other process takes no file: {}", std::strerror(errno));
  }
  return {};
}

Result<void> receive_files(int socket, std::span<int> files, bool waits) {
  Message message(files.size());
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message.head, MSG_CMSG_CLOEXEC | (waits ? 0 : MSG_DONTWAIT));
  } while (count < 0 && errno == EINTR);
  const cmsghdr* const head = count == 1 ? CMSG_FIRSTHDR(&message.head) : nullptr;
  const bool any = head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
                   head->cmsg_len > CMSG_LEN(0);
  const size_t came = any ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
  if (came == files.size() && (message.head.msg_flags & MSG_CTRUNC) == 0) {
    std::memcpy(files.data(), CMSG_DATA(head), files.size_bytes());
    return {};
  }
  for (size_t i = 0; i < came; ++i) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    ::close(file);
  }
  return error(Code::corrupt, "{} open files came where {} were to come", came, files.size());
}

}  // namespace millrace
