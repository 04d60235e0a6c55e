// The user's folder for what can be found out again: the machine's ceilings, digests of files. $XDG_CACHE_HOME/millrace
// or ~/.cache/millrace. It may not exist. Any thread.
#pragma once

#include <filesystem>

namespace millrace {

std::filesystem::path cache_folder();

}  // namespace millrace
