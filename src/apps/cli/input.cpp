#include "apps/cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/cli/terminal.h"
#include "base/file.h"

namespace millrace::apps {

Result<std::string> read_standard_input(std::string_view instead) {
  if (::isatty(STDIN_FILENO) == 1)
    return error(Code::invalid, "nothing to work on: give {}, or pipe the text in", instead);
  std::string text;
  char buffer[65536];
  while (true) {
    ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error(Code::io, "cannot read standard input: {}", std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

Result<std::string> read_input(const std::string& file) {
  if (file == "-") return read_standard_input("a file name instead of -");
  return read_file(file, size_t{4} << 30);
}

Result<void> for_each_line(std::string_view text, std::string_view name,
                           const std::function<Result<void>(const Json&)>& each) {
  for (size_t number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    auto json = parse_json(text.substr(0, end));
    Result<void> done = json.ok() ? each(*json) : Result<void>(std::move(json).error());
    if (!done.ok()) return within(fmt::format("{}: line {}", name, number), std::move(done).error());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return {};
}

std::string json_string(std::string_view text) { return to_text(Json(valid_utf8(text))); }

}  // namespace millrace::apps
