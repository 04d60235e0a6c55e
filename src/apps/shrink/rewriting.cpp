#include "apps/shrink/rewriting.h"

#include <map>
#include <numeric>

#include "apps/files/writing.h"

namespace millrace::apps {
namespace {

// Every matrix as the file had it: changed ones are kept in float32 until then.
ConvertOptions same_types(const ModelSource& original, const std::vector<int32_t>& kept) {
  std::map<std::string, DType> types;
  for (const Slot& slot : slots(original.spec())) {
    if (slot.kind == SlotKind::matrix && slot.weight) types[slot.name] = original.type_of(slot);
  }
  ConvertOptions options;
  options.type_of = [types = std::move(types), kept](const Slot& slot) -> std::optional<DType> {
    std::string name = slot.name;
    if (slot.layer >= 0)
      name = fmt::format("blk.{}{}", kept[static_cast<size_t>(slot.layer)], name.substr(name.find('.', 4)));
    const auto found = types.find(name);
    if (found == types.end()) return std::nullopt;
    const Format& f = format(found->second);
    const bool writes = f.ggml >= 0 && f.from_float != nullptr && slot.cols % f.group == 0;
    return writes ? found->second : DType::f16;
  };
  return options;
}

// Options that say how a file is described, with the most common format.
Result<void> describe_file(const Terminal& terminal, const ModelSource& source, ConvertOptions& options) {
  TRY_VOID(set_text_keys(terminal, source.checkpoint(), options));
  std::map<DType, int64_t> sizes;
  for (const Slot& slot : slots(source.spec())) {
    if (const auto type = slot.kind == SlotKind::matrix && slot.weight ? options.type_of(slot) : std::nullopt)
      sizes[*type] += slot.values();
  }
  DType most = DType::f16;
  for (const auto& [type, size] : sizes) {
    if (size > sizes[most]) most = type;
  }
  TRY(options.type, FileType::parse(format(most).name));
  return {};
}

}  // namespace

std::vector<int32_t> all_layers(const ModelSpec& spec) {
  std::vector<int32_t> out(spec.layers.size());
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Result<ConvertOptions> same_formats(const Terminal& terminal, const ModelSource& original, const ModelSource& changed,
                                    const std::vector<int32_t>& kept) {
  ConvertOptions options = same_types(original, kept);
  TRY_VOID(describe_file(terminal, changed, options));
  return options;
}

}  // namespace millrace::apps
