// Ctrl-C. Outside an Interruptible the first SIGINT ends the process with exit code 130. Inside one it only raises a
// flag, which the job polls so that it can put things in order (remove a half-written file, stop a stream); a second
// SIGINT ends the process anyway. Made on the main thread; interrupted() may be asked from any.
#pragma once

#include "base/result.h"

namespace millrace::apps {

void install_signal_handlers();

class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  static bool interrupted();
  void clear();  // the job has heeded it and goes on (a chat stops an answer, not itself)
};

// What a job returns when it was stopped so; main turns it into an exit code without a message.
Error interrupted_error();

// 128 and the number of the signal that was raised, as shells have it.
int interrupted_exit_code();

}  // namespace millrace::apps
