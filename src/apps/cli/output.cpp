#include "apps/cli/output.h"

#include <system_error>

#include "apps/cli/terminal.h"

namespace millrace::apps {

namespace fs = std::filesystem;

Flag force_flag(std::string_view help) { return {.name = "force", .help = help}; }

Result<void> check_absent(const fs::path& target, std::string_view insist) {
  std::error_code failed;
  if (!fs::exists(target, failed)) return {};
  const auto bytes = fs::file_size(target, failed);
  return error(Code::invalid, "{}: is there already{}; {} replaces it", target.string(),
               failed ? "" : fmt::format(" ({})", human_bytes(bytes)), insist);
}

Result<void> check_outputs(const Arguments& arguments, std::initializer_list<std::string_view> flags) {
  if (arguments.toggle("force")) return {};
  for (const std::string_view flag : flags) {
    if (arguments.given(flag)) TRY_VOID(check_absent(arguments.text(flag)));
  }
  return {};
}

}  // namespace millrace::apps
