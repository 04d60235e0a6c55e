#include "apps/run/chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "apps/cli/input.h"
#include "base/file.h"
#include "base/json.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongest = 64 << 10;    // of one text
constexpr size_t kMostBytes = 16 << 20;  // of the file

}  // namespace

ChatHistory ChatHistory::usual() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0') return ChatHistory(fs::path(state) / "millrace" / "chat_history");
  if (home != nullptr && *home != '\0') return ChatHistory(fs::path(home) / ".local/state/millrace/chat_history");
  return ChatHistory(fs::path());
}

std::vector<std::string> ChatHistory::load() const {
  std::vector<std::string> texts;
  if (file_.empty()) return texts;
  const auto whole = read_file(file_, kMostBytes);
  if (!whole.ok()) return texts;
  size_t lines = 0;
  for (std::string_view rest = *whole; !rest.empty();) {
    const size_t end = rest.find('\n');
    const auto json = parse_json(rest.substr(0, end));
    if (json.ok() && json->is_string()) texts.emplace_back(json->get_string().c_str(), json->get_string().size());
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    ++lines;
  }
  if (texts.size() > kMost) texts.erase(texts.begin(), texts.end() - static_cast<std::ptrdiff_t>(kMost));
  if (lines < 2 * kMost) return texts;
  if (auto out = AtomicFile::create(file_, 0600); out.ok()) {
    bool written = true;
    for (const std::string& text : texts) written = written && out->write(json_string(text) + "\n").ok();
    if (written) static_cast<void>(out->commit().ok());
  }
  return texts;
}

void ChatHistory::add(std::string_view text) const {
  if (file_.empty() || text.size() > kLongest) return;
  std::error_code failed;
  fs::create_directories(file_.parent_path(), failed);
  const int fd = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  struct stat state = {};
  const std::string line = json_string(text) + "\n";
  if (::fstat(fd, &state) == 0 && static_cast<size_t>(state.st_size) + line.size() <= kMostBytes) {
    const ssize_t written = ::write(fd, line.data(), line.size());  // one call: lines of two chats do not mix
    static_cast<void>(written);
  }
  ::close(fd);
}

}  // namespace millrace::apps
