// Pages kept outside (cache/page_tier.h): a prompt that would take long to compute waits, for half of that time at the
// most, for what others have computed of it; prompts that were computed are offered. Engine thread but for the answers,
// which come back to it.
#include <algorithm>

#include "engine/engine.h"

namespace millrace {
namespace {

constexpr size_t kMostOffered = 1 << 16;  // chains remembered
constexpr size_t kMostAtOnce = 256;       // nodes offered at the end of a request
constexpr double kLongestWait = 1;        // seconds

// Of computing the tokens [first, end).
double compute_seconds(const CacheCosts& costs, int64_t first, int64_t end) {
  const auto tokens = static_cast<double>(end - first);
  return tokens * (costs.token + costs.context * static_cast<double>(first + end) / 2);
}

std::vector<Identity> chains_of(const Request& request, int node_tokens) {
  std::vector<Identity> chains;
  Identity last = request.root;
  const std::span<const Token> prompt = request.prompt;
  for (size_t at = 0; at + static_cast<size_t>(node_tokens) < prompt.size(); at += static_cast<size_t>(node_tokens))
    chains.push_back(last = chain_of(last, prompt.subspan(at, static_cast<size_t>(node_tokens))));
  return chains;
}

}  // namespace

// True: it is answered for when the tier has answered.
bool Engine::ask_tier(Inbox::Item& item) {
  PageTier* tier = parts_.options.tier.get();
  if (tier == nullptr || item.asked_tier || !item.request || item.request->again) return false;
  const Request& request = *item.request;
  const CacheLayout& layout = parts_.cache->layout();
  const int64_t node = layout.node_tokens;
  const int64_t whole = (std::ssize(request.prompt) - 1) / node;
  const int64_t first = (parts_.cache->cached(request.root, request.prompt) + parts_.cache->look_back()) / node;
  if (whole <= first || request.prompt.size() > static_cast<size_t>(parts_.options.limits.context)) return false;
  const double computing = compute_seconds(parts_.cache->tree().costs(), first * node, whole * node);
  const int64_t node_bytes = layout.page_bytes * layout.pages_for(layout.node_tokens);
  if (tier->expected_seconds(whole - first, node_bytes) > computing / 2) {
    tier->skip();
    return false;
  }
  std::vector<Identity> chains = chains_of(request, layout.node_tokens);
  chains.erase(chains.begin(), chains.begin() + static_cast<ptrdiff_t>(first));
  held_.insert(item.id);
  item.asked_tier = true;
  auto waiting = std::make_shared<Inbox::Item>(std::move(item));
  tier->get(std::move(chains), std::min(computing / 2, kLongestWait),
            [this, waiting, first](std::vector<TierNode> nodes) {
              auto come = std::make_shared<std::vector<TierNode>>(std::move(nodes));
              post_change([this, waiting, first, come] {
                if (held_.erase(waiting->id) == 0) return;  // cancelled meanwhile
                if (!come->empty()) take_in(*waiting->request, static_cast<int>(first), *come);
                admit(*waiting);
              });
            });
  return true;
}

// Puts what came into the tree and its bytes into the store. No step runs.
void Engine::take_in(const Request& request, int first, std::span<const TierNode> nodes) {
  KvCache& cache = *parts_.cache;
  PrefixTree& tree = cache.tree();
  Store& store = parts_.executor->store();
  if (cache.has_moves()) return;
  const int node_tokens = cache.layout().node_tokens;
  std::span<const Token> tokens = request.prompt;
  const FoundPrefix found = tree.find(request.root, tokens.first(static_cast<size_t>(first * node_tokens)));
  if (std::ssize(found.path) < first) return;  // what it would stand on has gone meanwhile
  NodeId parent = first == 0 ? kNoNode : found.path[static_cast<size_t>(first) - 1];
  if (parent != kNoNode && tree.node(parent).away) return;
  for (const TierNode& node : nodes) {
    const auto count = std::count(node.present.begin(), node.present.end(), 1);
    if (std::ssize(node.present) != tree.slots(static_cast<int>(cache.layout().groups.size()) - 1).first +
                                        tree.slots(static_cast<int>(cache.layout().groups.size()) - 1).second ||
        std::ssize(node.pages) != count * store.page_bytes())
      return;
    if (parent != kNoNode) tree.pin(parent);
    while (cache.pool().free() < count && tree.evict()) carry_out_now();
    NodeId made = kNoNode;
    const auto stretch =
        tokens.subspan(static_cast<size_t>(first) * static_cast<size_t>(node_tokens), static_cast<size_t>(node_tokens));
    const std::vector<PageId> pages = cache.restore(request.root, parent, stretch, node.present, made);
    if (parent != kNoNode) tree.unpin(parent);
    if (made == kNoNode || tree.node(made).away) return;
    const auto size = static_cast<size_t>(store.page_bytes());
    for (size_t i = 0; i < pages.size(); ++i) {
      if (pages[i] == kNoPage) continue;
      store.write(std::as_bytes(std::span(node.pages)).subspan(i * size, size),
                  store.base() + pages[i] * store.page_bytes());
    }
    parts_.scheduler->note_from_store(node_tokens);
    offered_.insert(node.chain);
    parent = made;
    ++first;
  }
}

// Moves that making room has asked for. No step runs, so they need not wait for one.
void Engine::carry_out_now() {
  const std::vector<PageMove> moves = parts_.cache->take_moves();
  if (moves.empty()) return;
  std::vector<uint8_t> failed;
  carry_out(moves, parts_.executor->store(), parts_.second.get(), failed);
  parts_.cache->settle(moves, failed);
}

// A request has ended: the nodes of its prompt that nobody was offered yet. Pages of whole nodes are never written
// again, so they may be read while a step runs.
void Engine::offer(const Request& request) {
  PageTier* tier = parts_.options.tier.get();
  if (tier == nullptr) return;
  const PrefixTree& tree = parts_.cache->tree();
  const Store& store = parts_.executor->store();
  const auto size = static_cast<size_t>(store.page_bytes());
  if (offered_.size() > kMostOffered) offered_.clear();
  std::vector<TierNode> nodes;
  for (NodeId id : tree.find(request.root, request.prompt).path) {
    const TreeNode& node = tree.node(id);
    if (node.away || node.unsettled > 0 || nodes.size() >= kMostAtOnce) break;
    if (!offered_.insert(node.chain).second) continue;
    TierNode one{.chain = node.chain};
    for (PageId page : node.pages) {
      one.present.push_back(page != kNoPage);
      if (page == kNoPage) continue;
      const size_t at = one.pages.size();
      one.pages.resize(at + size);
      store.read(store.base() + page * store.page_bytes(),
                 std::as_writable_bytes(std::span(one.pages)).subspan(at, size));
    }
    nodes.push_back(std::move(one));
  }
  if (!nodes.empty()) tier->put(std::move(nodes));
}

void Engine::tell_changes() {
  if (changes_.empty()) return;
  std::vector<CacheChange> changes = std::exchange(changes_, {});
  if (cached_) cached_(std::move(changes));
}

}  // namespace millrace
