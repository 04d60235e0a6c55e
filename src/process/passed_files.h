// Open files from one process to another, over a socket of theirs: both ends see the same open file.
#pragma once

#include <span>

#include "base/result.h"

namespace millrace {

inline constexpr size_t kMostPassedFiles = 8;

// Waits: until the other side has room, or has sent. Otherwise that is an error.
Result<void> send_files(int socket, std::span<const int> files, bool waits);
// Exactly so many, or an error and none; whoever gets them closes them. They are closed when a program is started.
Result<void> receive_files(int socket, std::span<int> files, bool waits);

}  // namespace millrace
