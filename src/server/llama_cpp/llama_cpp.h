// llama.cpp's own interface: completions and filling in. Constant; any thread.
#pragma once

#include <span>

#include "server/dialect.h"
#include "server/route.h"

namespace millrace {

const Dialect& llama_completion();
const Dialect& llama_infill();
std::span<const Route> llama_routes();

}  // namespace millrace
