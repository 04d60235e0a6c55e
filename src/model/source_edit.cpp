// What is put into a source after it was opened, and layers that go. Files stay as they are.
#include <algorithm>

#include "model/mixers/mixers.h"
#include "model/source.h"

namespace millrace {
namespace {

// Why a layer's place says what it is; empty if it does not.
std::string_view bound_to_place(const ModelSpec& spec) {
  if (spec.layer_input) return "every layer has an input of its own, cut out of one table by its number";
  if (spec.streams) return "layers pass several streams on";
  const LayerSpec& first = spec.layers.front();
  for (const LayerSpec& layer : spec.layers) {
    if (kv_source(layer.mixer) >= 0) return "layers read keys and values of others";
    if (layer.shared) return "layers share weights, and which is first has them";
    if (layer.number >= 0) return "two layers here are one in the file";
    if (layer.mixer.index() != first.mixer.index() || layer.beside.has_value() != first.beside.has_value())
      return "layers are of different kinds, in an order that the file's settings give";
    if (window_of(layer.mixer) != window_of(first.mixer) || rope_of(layer.mixer) != rope_of(first.mixer))
      return "windows or rotations follow a pattern of layer numbers";
    if (layer.ffn.index() != first.ffn.index())
      return "experts stand in some layers only, by a rule over their numbers";
    if (layer.residual_scale != 1) return "what a layer adds is scaled by the number of layers";
  }
  return "";
}

}  // namespace

const ModelSource::Edit* ModelSource::edit(const Slot& slot, std::string_view suffix) const {
  if (edits_.empty()) return nullptr;
  const auto found = edits_.find(slot.name + std::string(suffix));
  return found != edits_.end() ? found->second.get() : nullptr;
}

void ModelSource::put_matrix(const Slot& slot, int64_t expert, DType type, std::vector<std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) == bytes_of(type, slot.rows * slot.cols), "{}: {} bytes put", slot.name,
        bytes.size());
  std::shared_ptr<Edit>& place = edits_[slot.name + ".weight"];
  const bool goes_on = place != nullptr && place->type == type && slot.experts > 0;
  // Copies of the source share what was put before.
  if (!goes_on || place.use_count() > 1) place = goes_on ? std::make_shared<Edit>(*place) : std::make_shared<Edit>();
  place->type = type;
  place->parts.resize(static_cast<size_t>(slot.matrices()));
  place->parts[static_cast<size_t>(expert)] = std::move(bytes);
}

void ModelSource::put_numbers(const Slot& slot, std::vector<float> numbers) {
  CHECK(slot.kind != SlotKind::matrix && static_cast<int64_t>(numbers.size()) == slot.cols, "{}", slot.name);
  auto next = std::make_shared<Edit>();
  next->numbers = std::move(numbers);
  edits_[slot.name + ".weight"] = std::move(next);
}

void ModelSource::put_bias(const Slot& slot, std::vector<float> numbers) {
  CHECK(static_cast<int64_t>(numbers.size()) == slot.bias_size(), "{}", slot.name);
  auto next = std::make_shared<Edit>();
  next->numbers = std::move(numbers);
  edits_[slot.name + ".bias"] = std::move(next);
}

Result<void> ModelSource::keep_layers(std::span<const int32_t> layers) {
  const auto count = static_cast<int32_t>(spec_.layers.size());
  if (layers.empty()) return error(Code::invalid, "a model without layers: at least one of {} must stay", count);
  if (const std::string_view why = bound_to_place(spec_); !why.empty())
    return error(Code::unsupported, "layers of {} cannot be removed: {}", spec_.architecture, why);
  ModelSpec next = spec_;
  next.layers.clear();
  std::unordered_map<std::string, Location> parts;
  std::unordered_map<std::string, std::shared_ptr<Edit>> edits;
  auto carry = [](auto& from, auto& to, const std::string& before, const std::string& after) {
    for (const auto& [name, value] : from) {
      if (name.starts_with(before)) to[after + name.substr(before.size())] = value;
    }
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= count || (i > 0 && layers[i] <= layers[i - 1]))
      return error(Code::invalid, "layer {} is not one of 0 to {}, ascending", layers[i], count - 1);
    next.layers.push_back(spec_.layers[static_cast<size_t>(layers[i])]);
    const std::string before = fmt::format("blk.{}.", layers[i]), after = fmt::format("blk.{}.", i);
    carry(parts_, parts, before, after);
    carry(edits_, edits, before, after);
  }
  for (const auto& [name, value] : parts_) {
    if (!name.starts_with("blk.")) parts[name] = value;
  }
  for (const auto& [name, value] : edits_) {
    if (!name.starts_with("blk.")) edits[name] = value;
  }
  TRY_VOID(check_spec(next));
  spec_ = std::move(next);
  parts_ = std::move(parts);
  edits_ = std::move(edits);
  reshaped_ = true;
  return {};
}

Result<void> ModelSource::reshape(ModelSpec spec) {
  TRY_VOID(check_spec(spec));
  spec_ = std::move(spec);
  reshaped_ = true;
  return {};
}

}  // namespace millrace
