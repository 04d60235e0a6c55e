// Files that verbs write for people, by one rule: what is there already is replaced only if that was asked for. Main
// thread.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "apps/cli/cli.h"

namespace millrace::apps {

Flag force_flag(std::string_view help = "replace the file if it is there already");

// Refused if it is there; `insist` is what replaces it.
Result<void> check_absent(const std::filesystem::path& target, std::string_view insist = "--force");

// Of a verb with --force, the files that these flags name. Asked before the work, which may take long.
Result<void> check_outputs(const Arguments& arguments, std::initializer_list<std::string_view> flags);

}  // namespace millrace::apps
