#include "cache/spec.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace millrace {
namespace {

constexpr int kMaxPageTokens = 4096;
constexpr int64_t kMaxPageBytes = int64_t{1} << 40;

bool keeps_nothing(const CacheSpec& spec) { return spec.bytes[0] == 0 && spec.bytes[1] == 0; }

int64_t aligned(int64_t bytes) { return (bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment; }

int tokens_in(const CacheSpec& spec, int page_tokens) { return spec.kind == CacheKind::recurrent ? 1 : page_tokens; }

int64_t layer_bytes(const CacheSpec& spec, int page_tokens) {
  int tokens = tokens_in(spec, page_tokens);
  return aligned(spec.bytes[0] * tokens) + aligned(spec.bytes[1] * tokens);
}

Result<void> check_spec(const CacheSpec& spec, size_t layer, int page_tokens) {
  int tokens = tokens_in(spec, page_tokens);
  for (int64_t bytes : spec.bytes)
    if (bytes < 0 || !(Checked(bytes) * Checked(tokens)).within(kMaxPageBytes / 2))
      return error(Code::invalid, "layer {}: a cache of {} bytes for each of {} tokens a page is out of range", layer,
                   bytes, tokens);
  if ((spec.kind == CacheKind::windowed) != (spec.window > 0))
    return error(Code::invalid, "layer {}: a window of {} tokens does not go with this kind of cache", layer,
                 spec.window);
  return {};
}

// Equal needs together, in order of their first layer.
std::vector<CacheGroup> group_equal(std::span<const CacheSpec> layers, int page_tokens) {
  std::vector<CacheGroup> groups;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (keeps_nothing(layers[layer])) continue;
    auto same = std::find_if(groups.begin(), groups.end(), [&](auto& group) { return group.spec == layers[layer]; });
    if (same == groups.end()) {
      same = groups.insert(groups.end(), CacheGroup{.spec = layers[layer], .layers = {}, .page_tokens = page_tokens});
      same->layer_bytes = layer_bytes(layers[layer], page_tokens);
    }
    same->layers.push_back(static_cast<int>(layer));
  }
  return groups;
}

int64_t group_bytes(const CacheGroup& group) { return group.layer_bytes * static_cast<int64_t>(group.layers.size()); }

// Cuts groups so that none is much larger than the smallest (but a layer is never cut).
std::vector<CacheGroup> even_out(std::vector<CacheGroup> groups) {
  int64_t target = std::numeric_limits<int64_t>::max(), largest_layer = 0;
  for (const auto& group : groups) {
    target = std::min(target, group_bytes(group));
    largest_layer = std::max(largest_layer, group.layer_bytes);
  }
  target = std::max(target, largest_layer);
  std::vector<CacheGroup> even;
  for (const auto& group : groups) {
    int64_t count = static_cast<int64_t>(group.layers.size());
    int64_t pieces = (count + target / group.layer_bytes - 1) / (target / group.layer_bytes);
    int64_t each = (count + pieces - 1) / pieces;
    for (int64_t begin = 0; begin < count; begin += each) {
      CacheGroup piece = group;
      piece.layers.assign(group.layers.begin() + begin, group.layers.begin() + std::min(begin + each, count));
      even.push_back(std::move(piece));
    }
  }
  return even;
}

// Small groups hold more tokens a page, as far as the common size allows.
void fill_pages(std::vector<CacheGroup>& groups, int64_t page_bytes) {
  for (auto& group : groups) {
    if (group.recurrent()) continue;
    for (int tokens = group.page_tokens * 2; tokens <= kMaxPageTokens; tokens *= 2) {
      int64_t bytes = layer_bytes(group.spec, tokens);
      if (bytes * static_cast<int64_t>(group.layers.size()) > page_bytes) break;
      group.page_tokens = tokens;
      group.layer_bytes = bytes;
    }
  }
}

}  // namespace

int CacheLayout::pages_for(int tokens) const {
  int pages = 0;
  for (const auto& group : groups) pages += group.pages_for(tokens) - group.first_needed(tokens - 1);
  return pages;
}

int CacheGroup::peak_pages_for(int tokens, int chunk) const {
  if (!windowed()) return pages_for(tokens);
  // A chunk and the window before it may straddle page ends on both sides.
  int64_t reach = std::min<int64_t>(tokens, int64_t{spec.window} - 1 + chunk);
  return static_cast<int>(std::min<int64_t>(pages_for(tokens), (reach + page_tokens - 2) / page_tokens + 1));
}

int CacheLayout::peak_pages_for(int tokens, int chunk) const {
  int peak = 0;
  for (const auto& group : groups) peak += group.peak_pages_for(tokens, chunk);
  return peak;
}

bool CacheLayout::resumes_anywhere() const {
  return std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.resumes_anywhere(); });
}

Result<CacheLayout> plan_layout(std::span<const CacheSpec> layers, const LayoutOptions& options) {
  int page_tokens = options.page_tokens;
  if (page_tokens < 1 || page_tokens > kMaxPageTokens || (page_tokens & (page_tokens - 1)) != 0)
    return error(Code::invalid, "a page of {} tokens: give a power of two up to {}", page_tokens, kMaxPageTokens);
  if (options.snapshot_tokens < 1 || options.snapshot_tokens > 1 << 20)
    return error(Code::invalid, "snapshots every {} tokens: give 1 to {}", options.snapshot_tokens, 1 << 20);
  for (size_t layer = 0; layer < layers.size(); ++layer) TRY_VOID(check_spec(layers[layer], layer, page_tokens));

  CacheLayout layout;
  layout.layers.resize(layers.size());
  layout.groups = group_equal(layers, page_tokens);
  if (layout.groups.empty())
    return error(Code::invalid, "none of the {} layers keeps anything in the cache", layers.size());
  layout.groups = even_out(std::move(layout.groups));
  for (const auto& group : layout.groups) {
    if (group.layer_bytes > kMaxPageBytes / static_cast<int64_t>(group.layers.size()))
      return error(Code::invalid, "a page for {} layers of {} bytes each is out of range", group.layers.size(),
                   group.layer_bytes);
    layout.page_bytes = std::max(layout.page_bytes, group_bytes(group));
  }
  fill_pages(layout.groups, layout.page_bytes);
  for (const auto& group : layout.groups) layout.node_tokens = std::max(layout.node_tokens, group.page_tokens);
  for (size_t index = 0; index < layout.groups.size(); ++index) {
    auto& group = layout.groups[index];
    if (group.recurrent())
      group.page_tokens = (options.snapshot_tokens + layout.node_tokens - 1) / layout.node_tokens * layout.node_tokens;
    int64_t offset = 0;
    for (int layer : group.layers) {
      int64_t first = aligned(group.spec.bytes[0] * tokens_in(group.spec, group.page_tokens));
      layout.layers[layer] = {static_cast<int>(index), {offset, offset + first}};
      offset += group.layer_bytes;
    }
  }
  return layout;
}

}  // namespace millrace
