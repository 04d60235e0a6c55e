#include "model/kv_keep.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

constexpr int32_t kUsualSinks = 4;

std::optional<int32_t> whole_number(std::string_view text) {
  int32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "1-3+7": rising, none named twice. Empty: not that.
std::vector<int32_t> layers_from(std::string_view text) {
  std::vector<int32_t> layers;
  for (;;) {
    const size_t plus = text.find('+');
    const std::string_view run = text.substr(0, plus);
    const size_t dash = run.find('-');
    const auto first = whole_number(run.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number(run.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxLayers) return {};
    if (!layers.empty() && *first <= layers.back()) return {};
    for (int32_t layer = *first; layer <= *last; ++layer) layers.push_back(layer);
    if (plus == std::string_view::npos) return layers;
    text.remove_prefix(plus + 1);
  }
}

std::string layers_name(const std::vector<int32_t>& layers) {
  std::string name;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (!name.empty()) name += '+';
    name += fmt::format("{}", layers[i]);
    if (end - i > 1) name += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return name;
}

}  // namespace

std::string KvKeep::name() const {
  if (window == 0) return {};
  return fmt::format("sinks:{},window:{}{}{}", sinks, window, layers.empty() ? "" : ",layers:", layers_name(layers));
}

int64_t reach_of(const KvKeep& keep, int64_t context) {
  return keep.bounded() ? std::min(context, int64_t{keep.sinks} + keep.window) : context;
}

Result<KvKeep> kv_keep_from(std::string_view text) {
  auto malformed = [&] {
    return error(Code::invalid,
                 "'{}' does not say what a cache keeps: expected such as sinks:4,window:4096, up to {} sinks and a "
                 "window of 1 to {}; for some layers only, such as sinks:4,window:4096,layers:0-3+7",
                 text, kMostSinks, kMostWindow);
  };
  std::optional<int32_t> sinks, window;
  std::vector<int32_t> layers;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return malformed();
    const std::string_view name = part.substr(0, colon), value = part.substr(colon + 1);
    if (name == "layers") {
      if (!layers.empty()) return malformed();
      layers = layers_from(value);
      if (layers.empty()) return malformed();
    } else if (name == "sinks" || name == "window") {
      std::optional<int32_t>& place = name == "sinks" ? sinks : window;
      if (place) return malformed();
      place = whole_number(value);
      if (!place || *place < 0) return malformed();
    } else {
      return malformed();
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  KvKeep keep = {.sinks = sinks.value_or(kUsualSinks), .window = window.value_or(0), .layers = std::move(layers)};
  if (keep.sinks > kMostSinks || keep.window < 1 || keep.window > kMostWindow) return malformed();
  return keep;
}

Result<void> forget(ModelSpec& spec, const KvKeep& keep) {
  if (!keep) return {};
  auto refused = [&](std::string_view why) {
    return error(Code::unsupported, "{} cannot forget by {}: {}; leave out --kv-keep", spec.architecture, keep.name(),
                 why);
  };
  if (spec.positions > 0) {
    return refused(
        fmt::format("its positions are a table of {}, and there is no way on beyond its end", spec.positions));
  }
  const auto count = static_cast<int32_t>(spec.layers.size());
  if (!keep.layers.empty() && keep.layers.back() >= count)
    return refused(fmt::format("it has {} layers, counted from 0", count));
  ModelSpec next = spec;
  for (size_t i = 0; i < next.layers.size(); ++i) {
    if (!keep.layers.empty() && !std::binary_search(keep.layers.begin(), keep.layers.end(), static_cast<int32_t>(i)))
      continue;
    LayerSpec& layer = next.layers[i];
    if (layer.shared) return refused(fmt::format("layer {} shares its attention with others", i));
    if (auto done = forget(layer.mixer, keep); !done.ok())
      return refused(fmt::format("layer {} {}", i, done.error().message));
    if (!layer.beside) continue;
    if (auto done = forget(*layer.beside, keep); !done.ok())
      return refused(fmt::format("layer {} {}", i, done.error().message));
  }
  next.keep = keep;
  TRY_VOID(check_spec(next));
  spec = std::move(next);
  return {};
}

}  // namespace millrace
