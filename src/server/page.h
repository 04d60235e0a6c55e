// The page that comes with the server: the files of web/dist, embedded when the server is built. They live as long as
// the program; any thread.
#pragma once

#include <span>

#include "server/service.h"

namespace millrace {

std::span<const StaticFile> page_files();

}  // namespace millrace
