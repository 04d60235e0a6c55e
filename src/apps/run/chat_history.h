// What was typed into chats before, across runs: one JSON text a line in $XDG_STATE_HOME/millrace/chat_history or
// ~/.local/state/millrace/chat_history, for its owner only. Several chats may write at once. Main thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::apps {

class ChatHistory {
 public:
  // Without a home there is none.
  static ChatHistory usual();
  explicit ChatHistory(std::filesystem::path file) : file_(std::move(file)) {}

  // Oldest first, at most kMost; a file that has grown to twice that is shortened.
  static constexpr size_t kMost = 1000;
  std::vector<std::string> load() const;
  // That it cannot be written is no matter.
  void add(std::string_view text) const;

 private:
  std::filesystem::path file_;
};

}  // namespace millrace::apps
