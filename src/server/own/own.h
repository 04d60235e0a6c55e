// The routes that belong to no other interface: whether the server is well, what it does, and the small ones around
// tokens and templates. Constant; any thread.
#pragma once

#include <span>

#include "server/route.h"

namespace millrace {

std::span<const Route> own_routes();

}  // namespace millrace
