#include "cache/spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"

namespace millrace {
namespace {

constexpr int kMaxPageTokens = 4096;
constexpr int64_t kMaxPageBytes = int64_t{1} << 40;
constexpr int kMostPageTokens = 128;  // where layers differ: kernels walk the cache in chunks of as many
// Beside states: a prefix ends where a state is kept, after whole pages of the prompt, so the next turn of a chat
// computes up to so many tokens again.
constexpr int kMostTokensBesideStates = 64;
constexpr int kMostCuts = 16;        // of a state
constexpr size_t kMostSizes = 2048;  // of pages that are tried

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
  if (spec.heads < 1) return error(Code::invalid, "layer {}: a state of {} heads", layer, spec.heads);
  if ((spec.kind == CacheKind::windowed) != (spec.window > 0))
    return error(Code::invalid, "layer {}: a window of {} tokens does not go with this kind of cache", layer,
                 spec.window);
  if (spec.kept < 0 || (spec.kept > 0 && spec.kind != CacheKind::windowed))
    return error(Code::invalid, "layer {}: {} first tokens that stay do not go with this kind of cache", layer,
                 spec.kept);
  return {};
}

// Equal needs together, in order of their first layer.
std::vector<CacheGroup> group_equal(std::span<const CacheSpec> layers) {
  std::vector<CacheGroup> groups;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (keeps_nothing(layers[layer])) continue;
    auto same = std::find_if(groups.begin(), groups.end(), [&](auto& group) { return group.spec == layers[layer]; });
    if (same == groups.end()) same = groups.insert(groups.end(), CacheGroup{.spec = layers[layer], .layers = {}});
    same->layers.push_back(static_cast<int>(layer));
  }
  return groups;
}

// One way to lay out a group: so many layers and tokens a page, its states cut so often.
struct Cut {
  int64_t each = 0;  // layers of a page
  int tokens = 1;
  int cuts = 1;
  int64_t bytes = 0;  // of a page that are used
  double pages = 0;   // of a sequence of usual length, all layers
  double groups = 0;  // made of one
};

CacheSpec part_of(const CacheSpec& spec, int cuts) {
  CacheSpec part = spec;
  part.bytes = {spec.bytes[0] / cuts, spec.bytes[1] / cuts};
  part.heads = spec.heads / cuts;
  return part;
}

// What a sequence of usual length holds of a layer: tokens, or states (its own and one that is kept for the next turn).
// Pages of tokens are half empty at their ends.
constexpr double kUsualTokens = 4096, kUsualStates = 2;
double usual_tokens(const CacheSpec& spec) {
  return spec.kind == CacheKind::windowed ? std::min<double>(kUsualTokens, spec.window + spec.kept) : kUsualTokens;
}
double usual_pages(const CacheSpec& spec, int tokens) {
  if (spec.kind == CacheKind::recurrent) return kUsualStates;
  return usual_tokens(spec) / tokens + (spec.kind == CacheKind::windowed ? 1 : 0.5);
}
double usual_bytes(const CacheGroup& group) {
  const double one = static_cast<double>(group.spec.bytes[0]) + static_cast<double>(group.spec.bytes[1]);
  return one * static_cast<double>(group.layers.size()) * (group.recurrent() ? kUsualStates : usual_tokens(group.spec));
}

void add_cuts(const CacheGroup& group, int tokens, int cuts, std::vector<Cut>& out) {
  const auto count = static_cast<int64_t>(group.layers.size());
  const int64_t bytes = layer_bytes(part_of(group.spec, cuts), tokens);
  for (int64_t each = count; each >= 1; --each) {
    const int64_t pieces = (count + each - 1) / each;
    if ((count + pieces - 1) / pieces != each || bytes > kMaxPageBytes / each) continue;
    const double groups = static_cast<double>(pieces * cuts);
    out.push_back({each, tokens, cuts, bytes * each, groups * usual_pages(group.spec, tokens), groups});
  }
}

std::vector<Cut> cuts_of(const CacheGroup& group, int page_tokens, int most_tokens) {
  std::vector<Cut> out;
  if (!group.recurrent()) {
    for (int tokens = page_tokens; tokens <= std::max(most_tokens, page_tokens); tokens *= 2)
      add_cuts(group, tokens, 1, out);
    return out;
  }
  for (int cuts = 1; cuts <= std::min(group.spec.heads, kMostCuts); cuts *= 2) {
    const int64_t parts = int64_t{cuts} * kPageAlignment;  // parts stay aligned
    if (group.spec.heads % cuts != 0) break;
    if (cuts > 1 && (group.spec.bytes[0] % parts != 0 || group.spec.bytes[1] % parts != 0)) break;
    add_cuts(group, 1, cuts, out);
  }
  return out;
}

// The best cut of each group for pages of so many bytes, and what it costs: bytes that a sequence takes against those
// it needs, and a little for every group, since each has a table of its own.
constexpr double kGroupCost = 0.001;
struct Choice {
  double cost = std::numeric_limits<double>::infinity();
  int64_t page_bytes = 0;
  std::vector<Cut> cuts;
};
Choice choose(std::span<const std::vector<Cut>> ways, int64_t page_bytes, double needed) {
  Choice choice = {0, page_bytes, {}};
  for (const std::vector<Cut>& group : ways) {
    double least = std::numeric_limits<double>::infinity();
    Cut best;
    for (const Cut& cut : group) {
      if (cut.bytes > page_bytes) continue;
      const double cost = cut.pages * static_cast<double>(page_bytes) / needed + kGroupCost * cut.groups;
      if (cost < least) least = cost, best = cut;
    }
    choice.cost += least;
    choice.cuts.push_back(best);
  }
  return choice;
}

// Pages are as large as some cut of some group fills them.
Result<Choice> choose_page(const std::vector<CacheGroup>& groups, int page_tokens) {
  std::vector<std::vector<Cut>> ways;
  std::vector<int64_t> sizes;
  double needed = 0;
  const bool states = std::any_of(groups.begin(), groups.end(), [](const auto& group) { return group.recurrent(); });
  for (const CacheGroup& group : groups) {
    ways.push_back(cuts_of(group, page_tokens, states ? kMostTokensBesideStates : kMostPageTokens));
    needed += usual_bytes(group);
    for (const Cut& cut : ways.back()) sizes.push_back(cut.bytes);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const size_t step = (sizes.size() + kMostSizes - 1) / kMostSizes;
  Choice best;
  for (size_t i = 0; i < sizes.size(); i += step) {
    Choice choice = choose(ways, sizes[sizes.size() - 1 - i], needed);
    if (choice.cost <= best.cost) best = std::move(choice);
  }
  if (!std::isfinite(best.cost))
    return error(Code::invalid, "no page of up to {} bytes holds what each of the layers keeps", kMaxPageBytes);
  return best;
}

std::vector<CacheGroup> cut_groups(const std::vector<CacheGroup>& groups, std::span<const Cut> cuts) {
  std::vector<CacheGroup> out;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Cut& cut = cuts[i];
    const auto count = static_cast<int64_t>(groups[i].layers.size());
    for (int64_t begin = 0; begin < count; begin += cut.each) {
      CacheGroup piece = {.spec = part_of(groups[i].spec, cut.cuts), .layers = {}, .page_tokens = cut.tokens};
      piece.layer_bytes = layer_bytes(piece.spec, cut.tokens);
      piece.layers.assign(groups[i].layers.begin() + begin,
                          groups[i].layers.begin() + std::min(begin + cut.each, count));
      for (int part = 0; part < cut.cuts; ++part) out.push_back(piece);
    }
  }
  return out;
}

}  // namespace

double CacheLayout::waste(int tokens) const {
  double used = 0, all = 0;
  for (const auto& group : groups) {
    const double pages = group.pages_for(tokens) - group.forgotten(tokens - 1);
    const double one = static_cast<double>(group.spec.bytes[0]) + static_cast<double>(group.spec.bytes[1]);
    used += pages * one * tokens_in(group.spec, group.page_tokens) * static_cast<double>(group.layers.size());
    all += pages * static_cast<double>(page_bytes);
  }
  return 1 - used / all;
}

int CacheLayout::pages_for(int tokens) const {
  int pages = 0;
  for (const auto& group : groups) pages += group.pages_for(tokens) - group.forgotten(tokens - 1);
  return pages;
}

int CacheGroup::peak_pages_for(int tokens, int chunk) const {
  if (!windowed()) return pages_for(tokens);
  // A chunk and the window before it may straddle page ends on both sides.
  int64_t reach = std::min<int64_t>(tokens, int64_t{spec.window} - 1 + chunk);
  return static_cast<int>(std::min<int64_t>(pages_for(tokens), pinned() + (reach + page_tokens - 2) / page_tokens + 1));
}

int CacheLayout::peak_pages_for(int tokens, int chunk) const {
  int peak = 0;
  for (const auto& group : groups) peak += group.peak_pages_for(tokens, chunk);
  return peak;
}

int CacheLayout::kept_pages() const {
  return 2 *
         static_cast<int>(std::count_if(groups.begin(), groups.end(), [](auto& group) { return group.recurrent(); }));
}

int usual_snapshot_tokens(std::span<const CacheSpec> layers) {
  constexpr double kLeast = 256, kMost = 4096;
  double state = 0, token = 0;
  for (const CacheSpec& layer : layers) {
    const double bytes = static_cast<double>(layer.bytes[0]) + static_cast<double>(layer.bytes[1]);
    (layer.kind == CacheKind::recurrent ? state : token) += bytes;
  }
  return static_cast<int>(token > 0 ? std::clamp(4 * state / token, kLeast, kMost) : kMost);
}

namespace {

// Where the layers of a group lie in its pages, one after the other.
int64_t place_layers(const CacheGroup& group, int index, std::vector<LayerPlace>& places) {
  int64_t offset = 0;
  for (int layer : group.layers) {
    const int64_t first = aligned(group.spec.bytes[0] * tokens_in(group.spec, group.page_tokens));
    LayerPlace& place = places[static_cast<size_t>(layer)];
    if (place.group < 0) {
      place = {index, {offset, offset + first}};
    } else {
      ++place.cuts;
    }
    offset += group.layer_bytes;
  }
  return offset;
}

}  // namespace

CacheLayout CacheLayout::with_layers(int begin, int end, int of) const {
  CacheLayout some = *this;
  some.page_bytes = kPageAlignment;
  some.layers.assign(layers.size(), LayerPlace());
  for (size_t index = 0; index < groups.size(); ++index) {
    CacheGroup& group = some.groups[index];
    std::erase_if(group.layers, [&](int layer) { return layer % of < begin || layer % of >= end; });
    some.page_bytes = std::max(some.page_bytes, place_layers(group, static_cast<int>(index), some.layers));
  }
  return some;
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
  const std::vector<CacheGroup> equal = group_equal(layers);
  if (equal.empty()) return error(Code::invalid, "none of the {} layers keeps anything in the cache", layers.size());
  TRY(const Choice choice, choose_page(equal, page_tokens));
  layout.page_bytes = choice.page_bytes;
  layout.groups = cut_groups(equal, choice.cuts);
  for (const auto& group : layout.groups) layout.node_tokens = std::max(layout.node_tokens, group.page_tokens);
  const bool states_only =
      std::all_of(layout.groups.begin(), layout.groups.end(), [](const auto& group) { return group.recurrent(); });
  if (states_only) layout.node_tokens = page_tokens;
  for (size_t index = 0; index < layout.groups.size(); ++index) {
    auto& group = layout.groups[index];
    place_layers(group, static_cast<int>(index), layout.layers);
    if (group.recurrent())
      group.page_tokens = (options.snapshot_tokens + layout.node_tokens - 1) / layout.node_tokens * layout.node_tokens;
  }
  return layout;
}

}  // namespace millrace
