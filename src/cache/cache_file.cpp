#include "cache/cache_file.h"

#include <cstring>
#include <set>
#include <type_traits>

#include "base/checked.h"
#include "base/file.h"

namespace millrace {
namespace {

constexpr std::string_view kMagic = "MRCACHE2";
constexpr uint32_t kNoParent = 0xFFFFFFFF;
constexpr size_t kDigestBytes = 32;

// Takes bytes from the front; once too few were left, everything it gives is zero and it is not ok.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }
  std::span<const std::byte> take(uint64_t count) {
    if (count > rest_.size()) ok_ = false;
    if (!ok_) return {};
    auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <class T>
  T number() {
    uint64_t value = 0;
    auto bytes = take(sizeof(T));
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
    return static_cast<T>(value);
  }
  Identity identity() {
    Identity read;
    auto bytes = take(read.bytes.size());
    if (!bytes.empty()) std::memcpy(read.bytes.data(), bytes.data(), bytes.size());
    return read;
  }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

template <class T>
requires std::is_arithmetic_v<T>
void put(std::vector<std::byte>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
}
void put(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
void put(std::vector<std::byte>& out, const Identity& value) { put(out, std::as_bytes(std::span(value.bytes))); }

int slots_of(const KvCache& cache) {
  auto [first, count] = cache.tree().slots(static_cast<int>(cache.layout().groups.size()) - 1);
  return first + count;
}

Result<SavedNode> parse_node(Reader& reader, const SavedTree& tree) {
  SavedNode node;
  uint32_t parent = reader.number<uint32_t>();
  node.parent = parent == kNoParent ? -1 : int64_t{parent};
  if (node.parent < 0) node.root = reader.identity();
  uint32_t tokens = reader.number<uint32_t>();
  if (!reader.ok() || node.parent >= static_cast<int64_t>(tree.nodes.size()) || tokens < 1 ||
      tokens > static_cast<uint32_t>(tree.node_tokens) || tokens > reader.left() / 4)
    return error(Code::corrupt, "node {} is damaged", tree.nodes.size());
  if (node.parent >= 0 &&
      static_cast<int>(tree.nodes[static_cast<size_t>(node.parent)].tokens.size()) != tree.node_tokens)
    return error(Code::corrupt, "node {} continues one that is not whole", tree.nodes.size());
  for (uint32_t i = 0; i < tokens; ++i) node.tokens.push_back(reader.number<Token>());
  uint64_t pages = 0;
  for (std::byte flag : reader.take(static_cast<uint64_t>(tree.slots))) {
    if (std::to_integer<int>(flag) > 1) return error(Code::corrupt, "node {} is damaged", tree.nodes.size());
    node.present.push_back(std::to_integer<uint8_t>(flag));
    pages += node.present.back();
  }
  Checked bytes = Checked(pages) * Checked(tree.page_bytes);
  if (!reader.ok() || !bytes.within(reader.left()))
    return error(Code::corrupt, "node {} is cut off", tree.nodes.size());
  node.pages = reader.take(*bytes.get());
  return node;
}

}  // namespace

Identity cache_identity(const Identity& model, const CacheLayout& layout) {
  Digest digest;
  digest.add(kMagic);
  digest.add(std::as_bytes(std::span(model.bytes)));
  std::string text = fmt::format("{} {} {}", layout.page_bytes, layout.node_tokens, layout.layers.size());
  for (const auto& group : layout.groups) {
    text += fmt::format(" | {} {} {} {} {} {}:", static_cast<int>(group.spec.kind), group.spec.bytes[0],
                        group.spec.bytes[1], group.spec.window, group.page_tokens, group.layer_bytes);
    if (group.spec.kept > 0) text += fmt::format(" keeps {}:", group.spec.kept);
    for (int layer : group.layers) text += fmt::format(" {}", layer);
  }
  digest.add(text);
  return digest.finish();
}

Result<SavedTree> parse_cache_file(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  SavedTree tree;
  auto magic = reader.take(kMagic.size());
  if (!reader.ok() || std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    return error(Code::corrupt, "this is no cache of this version");
  tree.identity = reader.identity();
  uint64_t page_bytes = reader.number<uint64_t>();
  uint32_t node_tokens = reader.number<uint32_t>(), slots = reader.number<uint32_t>();
  if (!reader.ok() || page_bytes > uint64_t{1} << 40 || node_tokens > 1 << 20 || slots > 1 << 20)
    return error(Code::corrupt, "its header promises more than {} bytes can hold", bytes.size());
  tree.page_bytes = static_cast<int64_t>(page_bytes);
  tree.node_tokens = static_cast<int>(node_tokens);
  tree.slots = static_cast<int>(slots);
  for (;;) {
    const auto more = reader.number<uint8_t>();
    if (!reader.ok() || more > 1) return error(Code::corrupt, "it is cut off after {} nodes", tree.nodes.size());
    if (more == 0) break;
    TRY(SavedNode node, parse_node(reader, tree));
    tree.nodes.push_back(std::move(node));
  }
  if (reader.left() != kDigestBytes)
    return error(Code::corrupt, "{} bytes are where its digest should be", reader.left());
  return tree;
}

void CacheSaver::begin(const Store& store, std::vector<std::byte>& out) {
  for (NodeId id : cache_.tree().all())
    if (cache_.tree().node(id).parent != kNoNode) order_.push_back({id, cache_.tree().node(id).birth});
  put(out, std::as_bytes(std::span(kMagic)));
  put(out, cache_identity(model_, cache_.layout()));
  put(out, static_cast<uint64_t>(store.page_bytes()));
  put(out, static_cast<uint32_t>(cache_.layout().node_tokens));
  put(out, static_cast<uint32_t>(slots_of(cache_)));
  begun_ = true;
}

// A node keeps its parent as long as it lives, so one that is still there has all that was before it.
bool CacheSaver::may_save(const Place& place, const Store* second) const {
  const TreeNode& node = cache_.tree().node(place.id);
  if (node.birth != place.birth || node.unsettled > 0 || (node.away && second == nullptr)) return false;
  return cache_.tree().node(node.parent).parent == kNoNode || index_.contains(node.parent);
}

void CacheSaver::append(NodeId id, const Store& holder, std::vector<std::byte>& out) {
  const TreeNode& node = cache_.tree().node(id);
  const bool first = cache_.tree().node(node.parent).parent == kNoNode;
  index_.emplace(id, static_cast<uint32_t>(index_.size()));
  put(out, uint8_t{1});
  put(out, first ? kNoParent : index_.at(node.parent));
  if (first) put(out, cache_.tree().key(node.root));
  put(out, static_cast<uint32_t>(node.tokens.size()));
  for (Token token : node.tokens) put(out, static_cast<uint32_t>(token));
  for (PageId page : node.pages) put(out, static_cast<uint8_t>(page != kNoPage));
  const auto bytes = static_cast<size_t>(holder.page_bytes());
  for (PageId page : node.pages) {
    if (page == kNoPage) continue;
    out.resize(out.size() + bytes);
    holder.read(holder.page(page).data(), std::span(out).last(bytes));
    ++summary_.pages;
  }
  ++summary_.nodes;
  summary_.tokens += static_cast<int64_t>(node.tokens.size());
}

bool CacheSaver::next(const Store& store, const Store* second, size_t most, std::vector<std::byte>& out) {
  const size_t before = out.size();
  if (!begun_) begin(store, out);
  for (; at_ < order_.size(); ++at_) {
    if (!may_save(order_[at_], second)) continue;
    if (out.size() - before >= most) return true;
    const bool away = cache_.tree().node(order_[at_].id).away;
    append(order_[at_].id, away ? *second : store, out);
  }
  put(out, uint8_t{0});
  return false;
}

Result<CacheFileSummary> save_cache(const KvCache& cache, const Identity& model, const Store& store,
                                    const Store* second, const std::filesystem::path& path) {
  constexpr size_t kPart = size_t{1} << 20;
  TRY(AtomicFile file, AtomicFile::create(path, 0600));
  CacheSaver saver(cache, model);
  Digest digest;
  std::vector<std::byte> part;
  for (bool more = true; more;) {
    part.clear();
    more = saver.next(store, second, kPart, part);
    digest.add(part);
    TRY_VOID(file.write(part));
  }
  const Identity end = digest.finish();
  TRY_VOID(file.write(std::as_bytes(std::span(end.bytes))));
  CacheFileSummary summary = saver.summary();
  summary.bytes = static_cast<int64_t>(file.written());
  TRY_VOID(file.commit());
  return summary;
}

Result<CacheFileSummary> restore_cache(KvCache& cache, const Identity& model, Store& store,
                                       const std::filesystem::path& path) {
  TRY(auto file, MappedFile::open(path));
  std::span<const std::byte> bytes = file->bytes();
  auto parsed = parse_cache_file(bytes);
  if (!parsed) return within(path.string(), parsed.error());
  if (parsed->identity != cache_identity(model, cache.layout()) || parsed->page_bytes != store.page_bytes() ||
      parsed->node_tokens != cache.layout().node_tokens || parsed->slots != slots_of(cache))
    return error(Code::invalid, "{}: is the cache of another model or of pages of another shape; delete it",
                 path.string());
  Digest digest;
  digest.add(bytes.first(bytes.size() - kDigestBytes));
  Identity found = digest.finish();
  if (std::memcmp(found.bytes.data(), bytes.last(kDigestBytes).data(), kDigestBytes) != 0)
    return error(Code::corrupt, "{}: is damaged: its digest is wrong; delete it", path.string());

  CacheFileSummary summary;
  summary.bytes = static_cast<int64_t>(bytes.size());
  std::vector<NodeId> made(parsed->nodes.size(), kNoNode);
  for (size_t index = 0; index < parsed->nodes.size(); ++index) {
    const SavedNode& saved = parsed->nodes[index];
    NodeId parent = saved.parent < 0 ? kNoNode : made[static_cast<size_t>(saved.parent)];
    if (saved.parent >= 0 && parent == kNoNode) continue;
    std::vector<PageId> pages = cache.restore(saved.root, parent, saved.tokens, saved.present, made[index]);
    int64_t filled = 0;
    for (size_t page = 0; page < pages.size(); ++page) {
      if (pages[page] == kNoPage) continue;
      auto from =
          saved.pages.subspan(page * static_cast<size_t>(store.page_bytes()), static_cast<size_t>(store.page_bytes()));
      store.write(from, store.page(pages[page]).data());
      ++filled;
    }
    summary.pages += filled;
    summary.nodes += filled > 0;
    if (filled > 0) summary.tokens += static_cast<int64_t>(saved.tokens.size());
  }
  // Between copies of states nodes have no pages, and are of use only for what follows them.
  std::set<NodeId> gone;  // a file may have a node twice
  for (auto id = made.rbegin(); id != made.rend(); ++id) {
    if (*id == kNoNode || gone.contains(*id)) continue;
    const TreeNode& node = cache.tree().node(*id);
    const bool empty = std::all_of(node.pages.begin(), node.pages.end(), [](PageId page) { return page == kNoPage; });
    if (!empty || node.away || node.users > 0 || !node.children.empty()) continue;
    cache.tree().remove(*id);
    gone.insert(*id);
  }
  TRY_VOID(file->unchanged());
  return summary;
}

// From the leaves up; a root goes with its last child.
int forget_unused(KvCache& cache) {
  int count = 0;
  const std::vector<NodeId> all = cache.tree().all();
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    const TreeNode& node = cache.tree().node(*id);
    if (node.parent == kNoNode || node.users > 0 || node.unsettled > 0 || !node.children.empty()) continue;
    cache.tree().remove(*id);
    ++count;
  }
  return count;
}

}  // namespace millrace
