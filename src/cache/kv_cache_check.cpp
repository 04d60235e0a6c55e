// What the cache uses, and the check that it is what its users hold.
#include <algorithm>

#include "cache/kv_cache.h"

namespace millrace {

int KvCache::missing(const SequencePages& sequence, int upto, int chunk) const {
  int pages = 0;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    pages += std::clamp(group.pages_for(upto) - sequence.tables[index].size(), 0, group.peak_pages_for(upto, chunk));
  }
  return pages;
}

int KvCache::most_pages(int tokens, int chunk, bool checkpoints) const {
  return layout_.peak_pages_for(tokens, chunk) + (checkpoints ? static_cast<int>(recurrent_.size()) : 0);
}

KvUse KvCache::use(const SequencePages& sequence, int computed) const {
  KvUse use;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    const PageTable& table = sequence.tables[index];
    int64_t bytes = (group.spec.bytes[0] + group.spec.bytes[1]) * static_cast<int64_t>(group.layers.size());
    if (group.recurrent()) {
      use.reserved_bytes += bytes * table.size();
      use.used_bytes += bytes * table.size();
      continue;
    }
    int64_t held = int64_t{table.size() - table.gap()} * group.page_tokens;
    use.reserved_bytes += bytes * held;
    use.used_bytes += bytes * std::clamp<int64_t>(computed - int64_t{table.gap()} * group.page_tokens, 0, held);
  }
  return use;
}

// A page is at one place (group and entry) whoever holds it, and one that will still be written is held once.
Result<void> KvCache::check_sequence(const Holder& holder, std::vector<int>& counts,
                                     std::vector<std::pair<int, int>>& places) const {
  const SequencePages& sequence = *holder.sequence;
  int64_t owner = sequence.owner;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    const PageTable& table = sequence.tables[index];
    for (int entry = 0; entry < table.size(); ++entry) {
      PageId page = table[entry];
      if (page == kNoPage && (entry < table.pinned() || entry >= table.first()))
        return error(Code::internal, "sequence {}: entry {} of group {} is missing", owner, entry, index);
      if (page == kNoPage) continue;
      ++counts[static_cast<size_t>(page)];
      auto& place = places[static_cast<size_t>(page)];
      std::pair<int, int> here = {static_cast<int>(index), group.recurrent() ? -1 : entry};
      if (place.first >= 0 && (place != here || group.recurrent()))
        return error(Code::internal, "page {} is entry {} of group {} and entry {} of group {}", page, place.second,
                     place.first, entry, index);
      place = here;
      bool written = group.recurrent() || (entry + 1) * group.page_tokens > holder.computed;
      if (written && !pool_.alone(page))
        return error(Code::internal, "sequence {} would write to page {} that {} hold", owner, page,
                     pool_.holders(page));
    }
    if (holder.computed > 0 && table.first() > group.first_needed(holder.computed) && table.size() > 0)
      return error(Code::internal, "sequence {}: group {} lost entry {} of its window", owner, index,
                   table.first() - 1);
  }
  for (size_t index = 0; index < sequence.path.size(); ++index) {
    const TreeNode& node = tree_.node(sequence.path[index]);
    if (node.birth == 0 || node.away || node.start != static_cast<int>(index) * layout_.node_tokens || node.users < 1)
      return error(Code::internal, "sequence {}: node {} of its path is not there", owner, index);
  }
  for (PageId page : sequence.saved.pages) ++counts[static_cast<size_t>(page)];
  for (const auto& state : sequence.snapshots)
    for (PageId page : state.pages) ++counts[static_cast<size_t>(page)];
  return {};
}

Result<void> KvCache::check(std::span<const Holder> holders) const {
  std::vector<int> here(static_cast<size_t>(pool_.pages()), 0), away(static_cast<size_t>(second_.pages()), 0);
  std::vector<std::pair<int, int>> places(static_cast<size_t>(pool_.pages()), {-1, -1});
  std::vector<int> users(static_cast<size_t>(tree_.ids()), 0);
  for (const Holder& holder : holders) {
    TRY_VOID(check_sequence(holder, here, places));
    for (NodeId id : holder.sequence->path) ++users[static_cast<size_t>(id)];
  }
  TRY_VOID(tree_.check(here, away, users));
  TRY_VOID(pool_.check(&here));
  return second_.check(&away);
}

}  // namespace millrace
