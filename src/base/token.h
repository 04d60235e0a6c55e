// A token id, as every layer of the house passes it.
#pragma once

#include <cstdint>

namespace millrace {

using Token = int32_t;

}  // namespace millrace
