// Saying what a file is that is not a model we can open: people hand over Git LFS pointers, web pages and pickles, and
// deserve to be told. Looks at the first bytes only. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// An error that says what these bytes seem to be and what to do about it.
Error unknown_file(std::span<const std::byte> file);

// True if the file is a Git LFS pointer, which may stand in place of any file of a checkout.
bool is_lfs_pointer(std::string_view text);

// A name from a file, fit to stand in a message: in quotes, control characters escaped, cut where it gets long.
std::string in_quotes(std::string_view name);

}  // namespace millrace
