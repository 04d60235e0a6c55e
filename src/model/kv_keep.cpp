#include "model/kv_keep.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

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

}  // namespace

std::string KvKeep::name() const {
  return window > 0 ? fmt::format("sinks:{},window:{}", sinks, window) : std::string();
}

Result<KvKeep> kv_keep_from(std::string_view text) {
  auto malformed = [&] {
    return error(Code::invalid,
                 "'{}' does not say what a cache keeps: expected such as sinks:4,window:4096, up to {} sinks and a "
                 "window of 1 to {}",
                 text, kMostSinks, kMostWindow);
  };
  std::optional<int32_t> sinks, window;
  for (std::string_view rest = text; !rest.empty() || rest.data() == text.data();) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return malformed();
    const std::string_view name = part.substr(0, colon);
    std::optional<int32_t>& place = name == "sinks" ? sinks : window;
    if ((name != "sinks" && name != "window") || place) return malformed();
    place = whole_number(part.substr(colon + 1));
    if (!place || *place < 0) return malformed();
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
    if (rest.empty()) return malformed();
  }
  const KvKeep keep = {.sinks = sinks.value_or(kUsualSinks), .window = window.value_or(0)};
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
  ModelSpec next = spec;
  for (size_t i = 0; i < next.layers.size(); ++i) {
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
