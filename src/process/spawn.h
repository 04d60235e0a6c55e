// Starting a process for an engine: this program again, with a socket for frames, one for files, and a shared page. Any
// thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

struct SpawnedProcess {
  int id = 0;
  int socket = -1;  // frames, our end; reading and writing never wait
  int files = -1;   // files that frames speak of, our end
  int spare = -1;   // to the spare that it may leave (spare.h), our end
};

// Both ends of what a server and an engine's process speak over; closed in the end but for those that were given away.
struct EngineSockets {
  int socket = -1, its_socket = -1;
  int files = -1, its_files = -1;

  EngineSockets() = default;
  EngineSockets(EngineSockets&& other) noexcept;
  EngineSockets& operator=(EngineSockets&&) = delete;
  ~EngineSockets();
  static Result<EngineSockets> make();
  SpawnedProcess spawned(int id);  // gives our ends away
};

// `shared` is the file of a SharedPageFile. The process gets these three and the usual files, with `spare` also a
// socket for a spare of it, and no signal that is meant for the server.
Result<SpawnedProcess> spawn_engine(const std::vector<std::string>& words, int shared, bool spare);

}  // namespace millrace
