// Numbers as people read them in messages. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

std::string human_bytes(uint64_t bytes);  // "308.2 MiB"

}  // namespace millrace
