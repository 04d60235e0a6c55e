// Starting a process for an engine: this program again, with a socket for frames, one for files, and a shared page. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct SpawnedProcess {
  int id = 0;
  int socket = -1;  // frames, our end; reading and writing never wait
  int files = -1;   // files that frames speak of, our end
};

// `shared` is the file of a SharedPageFile. The process gets these three and the usual files, and no signal that is
// meant for the server.
Result<SpawnedProcess> spawn_engine(const std::vector<std::string>& words, int shared);

}  // namespace millrace
