#include "grammar/token_trie.h"

#include <algorithm>
#include <string_view>

#include "grammar/char_kinds.h"

namespace millrace {

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> texts) {
  std::erase_if(texts, [](const auto& text) { return text.first.size() > 255; });
  std::sort(texts.begin(), texts.end());
  std::vector<size_t> path;  // nodes on the way to the last text
  std::string_view last;
  std::vector<uint8_t> kinds;
  for (const auto& [text, id] : texts) {
    if (text.empty()) {
      empty_.push_back(id);
      continue;
    }
    size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    while (path.size() > common) {
      nodes_[path.back()].skip = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({static_cast<uint8_t>(text[i]), static_cast<uint8_t>(i), 0, 0, 0, 0});
      starts_.push_back(static_cast<uint32_t>(ids_.size()));
    }
    Node& node = nodes_[path.back()];
    if (node.count == 0) node.first = static_cast<uint32_t>(ids_.size());
    ids_.push_back(id);
    grammar::suffix_kinds(text, kinds);
    for (size_t i = 0; i < text.size(); ++i) nodes_[path[i]].below |= kinds[i + 1];
    ++node.count;
    last = text;
  }
  for (size_t index : path) nodes_[index].skip = static_cast<uint32_t>(nodes_.size());
}

}  // namespace millrace
