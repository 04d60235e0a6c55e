// Numbers as people read them in messages. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

std::string human_bytes(uint64_t bytes);  // "308.2 MiB"
std::string brief_bytes(uint64_t bytes);  // "2048 bytes" while that is short, "308.2 MiB" from 10,000,000 on
// "1 page", "2 pages", and with its own `plural` "2 matrices".
std::string counted(int64_t number, std::string_view noun, std::string_view plural = "");

}  // namespace millrace
