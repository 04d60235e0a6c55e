#include "model/source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/gguf_keys.h"

namespace millrace {
namespace {

std::string replaced(std::string_view pattern, int64_t number) {
  std::string out(pattern);
  if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, std::to_string(number));
  return out;
}

// "blk.3.attn_q" -> "blk.{}.attn_q"
std::string pattern_of(const Slot& slot) {
  if (slot.layer < 0) return slot.name;
  const size_t end = slot.name.find('.', 4);
  return "blk.{}" + slot.name.substr(end);
}

std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Tensors that files carry and no model needs: buffers saved by accident, and the parts that see.
bool is_needless(std::string_view name) {
  for (std::string_view end : {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                               ".attention.masked_bias", ".attn_rot_embd.weight"}) {
    if (name.ends_with(end)) return true;
  }
  for (std::string_view start :
       {"vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector."}) {
    if (name.starts_with(start)) return true;
  }
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
}

// Rows of the slot out of the columns of the tensor, a square tile at a time so that both sides stay in the cache.
template <class T>
void transpose(const StoredTensor& tensor, const Slot& slot, const std::vector<int64_t>& rows, std::byte* out) {
  constexpr int64_t kTile = 32;
  const std::byte* in = tensor.bytes.data();
  const int64_t stored_cols = tensor.shape[1];
  for (int64_t r0 = 0; r0 < slot.rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < slot.cols; c0 += kTile) {
      for (int64_t r = r0; r < std::min(r0 + kTile, slot.rows); ++r) {
        const int64_t from = rows.empty() ? r : rows[static_cast<size_t>(r)];
        for (int64_t c = c0; c < std::min(c0 + kTile, slot.cols); ++c) {
          std::memcpy(out + (r * slot.cols + c) * static_cast<int64_t>(sizeof(T)),
                      in + (c * stored_cols + from) * static_cast<int64_t>(sizeof(T)), sizeof(T));
        }
      }
    }
  }
}

bool is_query_or_key(const Slot& slot) { return slot.kind == SlotKind::matrix && slot.heads > 0; }

}  // namespace

Result<ModelSource> ModelSource::open(const Checkpoint& checkpoint, int64_t context) {
  if (checkpoint.kind() == Checkpoint::Kind::safetensors) {
    return error(Code::invalid, "{} holds tensors only; give the directory that has its config.json",
                 checkpoint.path().string());
  }
  ModelSource source;
  source.checkpoint_ = &checkpoint;
  if (source.is_gguf()) {
    TRY(source.config_, config_from_gguf(checkpoint));
  } else {
    TRY(source.config_, Config::from_json("config.json", checkpoint.config()));
  }
  source.config_.set_wanted_context(context);
  TRY(source.spec_, describe(source.config_));
  TRY(source.architecture_, find_architecture(source.spec_.architecture));
  source.settle_prefix();
  if (source.is_gguf()) source.settle_biases();
  TRY_VOID(source.settle_head());
  TRY_VOID(source.check_all());
  return source;
}

const StoredTensor* ModelSource::find(const std::string& name) const {
  if (!strip_.empty() || !put_.empty()) {
    if (name.starts_with(strip_)) {
      if (const StoredTensor* found = checkpoint_->find(put_ + name.substr(strip_.size()))) return found;
    } else if (const StoredTensor* found = checkpoint_->find("language_model." + name)) {
      return found;
    }
  }
  return checkpoint_->find(name);
}

// Files name tensors as the whole model does, as the part without its head does, or as a part of a larger model.
void ModelSource::settle_prefix() {
  if (is_gguf()) return;
  Slot table;
  table.name = "token_embd";
  const std::string name = candidates(table).front().name + ".weight";
  if (checkpoint_->find(name) != nullptr) return;
  const std::string first = name.substr(0, name.find('.') + 1);
  for (const std::string& put : {std::string(), "language_model." + first, first + "language_model."}) {
    if (checkpoint_->find(put + name.substr(first.size())) == nullptr) continue;
    strip_ = first;
    put_ = put;
    return;
  }
}

// GGUF says with its tensors which products have biases, where the architecture leaves that open.
void ModelSource::settle_biases() {
  if (architecture_->gguf.biased) return;
  for (LayerSpec& layer : spec_.layers) {
    auto& gqa = std::get<GqaSpec>(layer.mixer);
    auto& ffn = std::get<DenseSpec>(layer.ffn);
    gqa.out_bias = checkpoint_->find("blk.0.attn_output.bias") != nullptr;
    ffn.down_bias = checkpoint_->find("blk.0.ffn_down.bias") != nullptr;
    ffn.up_bias = checkpoint_->find("blk.0.ffn_up.bias") != nullptr;
  }
  spec_.head_bias = checkpoint_->find("output.bias") != nullptr;
}

// A head that equals the table is one with it, whatever the configuration says; one that differs is not.
Result<void> ModelSource::settle_head() {
  Slot table, head;
  table.name = "token_embd";
  head.name = "output";
  const auto stored_table = locate(table, ".weight"), stored_head = locate(head, ".weight");
  if (!spec_.tied) {
    if (stored_head.ok() || !stored_table.ok()) return {};
    return error(
        Code::invalid,
        "the tensor '{}.weight' is missing: the model is not said to use its embeddings as head (tie_word_embeddings)",
        candidates(head).front().name);
  }
  if (!stored_head.ok()) return {};
  if (!stored_table.ok()) {
    head_is_table_ = true;
    return {};
  }
  const StoredTensor& a = *stored_table->tensor;
  const StoredTensor& b = *stored_head->tensor;
  const bool same = a.type == b.type && a.bytes.size() == b.bytes.size() &&
                    std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  if (!same) spec_.tied = false;
  return {};
}

std::vector<ModelSource::Location> ModelSource::candidates(const Slot& slot) const {
  const std::string pattern = pattern_of(slot);
  std::vector<Location> out;
  auto add = [&](std::span<const TensorName> names) {
    for (const TensorName& name : names) {
      if (name.slot == pattern) out.push_back({replaced(name.file, slot.layer), name.take});
    }
  };
  if (!is_gguf()) {
    add(architecture_->names);
    if (out.empty()) add(llama_names());
    return out;
  }
  static constexpr TensorName kFusedQkv[] = {
      {"blk.{}.attn_q", "blk.{}.attn_qkv", Take::q},
      {"blk.{}.attn_k", "blk.{}.attn_qkv", Take::k},
      {"blk.{}.attn_v", "blk.{}.attn_qkv", Take::v},
  };
  static constexpr TensorName kFusedFfn[] = {
      {"blk.{}.ffn_gate", "blk.{}.ffn_up", Take::first_half},
      {"blk.{}.ffn_up", "blk.{}.ffn_up", Take::second_half},
  };
  const bool no_gate =
      slot.layer >= 0 && checkpoint_->find(fmt::format("blk.{}.ffn_gate.weight", slot.layer)) == nullptr;
  if (architecture_->gguf.fused_ffn && no_gate) add(kFusedFfn);
  add(architecture_->gguf.names);
  if (out.empty()) out.push_back({slot.name, Take::whole});
  add(kFusedQkv);
  return out;
}

Result<ModelSource::Location> ModelSource::locate(const Slot& slot, std::string_view suffix) const {
  if (head_is_table_ && slot.name == "token_embd") {
    Slot head = slot;
    head.name = "output";
    return locate(head, suffix);
  }
  std::vector<Location> parts = candidates(slot);
  for (Location& part : parts) {
    part.name += suffix;
    part.tensor = find(part.take == Take::per_head ? replaced(part.name, 0) : part.name);
    if (part.tensor != nullptr) return part;
  }
  const bool vector = suffix == ".bias" || slot.kind == SlotKind::norm;
  return error(Code::invalid, "the tensor '{}' is missing: expected {}", parts.empty() ? slot.name : parts.front().name,
               vector ? shown({slot.bias_size()}) : shown({slot.rows, slot.cols}));
}

bool ModelSource::is_transposed(const Slot& slot) const {
  return architecture_->transposed && !is_gguf() && slot.kind == SlotKind::matrix && slot.layer >= 0;
}

// The shape a tensor must have for the slot to be taken out of it.
Result<void> ModelSource::check_shape(const Slot& slot, const Location& part, bool bias) const {
  const bool vector = bias || slot.kind == SlotKind::norm;
  int64_t rows = vector ? slot.bias_size() : slot.rows;
  switch (part.take) {
    case Take::whole:
      break;
    case Take::first_half:
    case Take::second_half:
      rows *= 2;
      break;
    case Take::per_head:
      rows /= slot.heads;
      break;
    default: {
      const auto& gqa = std::get<GqaSpec>(spec_.layers[static_cast<size_t>(slot.layer)].mixer);
      rows = int64_t{gqa.heads + 2 * gqa.kv_heads} * gqa.head_dim;
    }
  }
  std::vector<int64_t> expected = vector ? std::vector{rows} : std::vector{rows, slot.cols};
  if (!vector && is_transposed(slot)) std::swap(expected[0], expected[1]);
  std::vector<int64_t> found = part.tensor->shape;
  // A norm with a weight for every head may lie as [heads, head_dim].
  if (slot.kind == SlotKind::norm && slot.heads > 0 && found.size() == 2 && found[0] == slot.heads)
    found = {found[0] * found[1]};
  if (found == expected) return {};
  return error(Code::invalid, "the tensor '{}' has shape {}: expected {} ({})", part.tensor->name,
               shown(part.tensor->shape), shown(expected), slot.name);
}

Result<void> ModelSource::check_all() {
  std::unordered_map<const StoredTensor*, int> used;
  for (const Slot& slot : slots(spec_)) {
    for (const bool bias : {false, true}) {
      if (!(bias ? slot.bias : slot.weight)) continue;
      const std::string_view suffix = bias ? ".bias" : ".weight";
      TRY(Location part, locate(slot, suffix));
      const int32_t tensors = part.take == Take::per_head ? slot.heads : 1;
      for (int32_t i = 0; i < tensors; ++i) {
        Location each = part;
        if (part.take == Take::per_head) each.tensor = find(replaced(part.name, i));
        if (each.tensor == nullptr) return error(Code::invalid, "the tensor '{}' is missing", replaced(part.name, i));
        TRY_VOID(check_shape(slot, each, bias));
        const Format& f = format(each.tensor->type);
        if (!f.readable()) {
          return error(Code::unsupported, "the tensor '{}' has format {}, which cannot be read", each.tensor->name,
                       f.name);
        }
        if (!bias && is_transposed(slot) && (f.group != 1 || (f.group_bytes != 2 && f.group_bytes != 4))) {
          return error(Code::unsupported, "the tensor '{}' has format {}, which cannot be transposed",
                       each.tensor->name, f.name);
        }
        ++used[each.tensor];
        if (bias || slot.kind == SlotKind::norm) continue;
        TRY(part.scales, scales_of(*checkpoint_, *each.tensor));
        if (part.scales.tensor != nullptr) ++used[part.scales.tensor];
        if (part.scales.tensor != nullptr && part.take == Take::per_head)
          return error(Code::unsupported, "the tensor '{}' has scales and is one of several", each.tensor->name);
      }
      parts_.emplace(slot.name + std::string(suffix), std::move(part));
    }
  }
  return check_unexpected(used);
}

// A tensor nobody asked for changes what the model computes somewhere else; guessing that it does not is how files load
// and answer nonsense.
Result<void> ModelSource::check_unexpected(const std::unordered_map<const StoredTensor*, int>& used) const {
  std::vector<std::string_view> names;
  Slot head;
  head.name = "output";
  const auto tied_head = locate(head, ".weight");
  const bool fp8 = std::ranges::any_of(parts_, [](const auto& each) { return each.second.scales.tensor != nullptr; });
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    const bool is_tied_head = spec_.tied && tied_head.ok() && tied_head->tensor == &tensor;
    const bool needless = is_needless(tensor.name) || (fp8 && is_scale_of_activations(tensor.name));
    if (!used.contains(&tensor) && !is_tied_head && !needless) names.push_back(tensor.name);
  }
  if (names.empty()) return {};
  const size_t more = names.size() > 3 ? names.size() - 3 : 0;
  if (more > 0) names.resize(3);
  return error(Code::unsupported,
               "the file has tensors that {} does not: {}{}; it may be a variant that is not supported",
               spec_.architecture, fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

const ModelSource::Location& ModelSource::part(const Slot& slot, std::string_view suffix) const {
  const auto found = parts_.find(slot.name + std::string(suffix));
  CHECK(found != parts_.end(), "{}{} was not asked for when the source was opened", slot.name, suffix);
  return found->second;
}

std::vector<int64_t> ModelSource::rows_of(const Slot& slot, Take take) const {
  std::vector<int64_t> rows;
  auto add = [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) rows.push_back(first + i);
  };
  if (take == Take::first_half || take == Take::second_half) {
    add(take == Take::first_half ? 0 : slot.rows, slot.rows);
  } else if (take != Take::whole && take != Take::per_head) {
    const auto& gqa = std::get<GqaSpec>(spec_.layers[static_cast<size_t>(slot.layer)].mixer);
    const int64_t dim = gqa.head_dim, q = gqa.heads * dim, kv = gqa.kv_heads * dim;
    const int64_t shared = gqa.heads / gqa.kv_heads * dim, group = shared + 2 * dim;
    if (take == Take::q) add(0, q);
    if (take == Take::k) add(q, kv);
    if (take == Take::v) add(q + kv, kv);
    for (int64_t g = 0; g < gqa.kv_heads; ++g) {
      if (take == Take::grouped_q) add(g * group, shared);
      if (take == Take::grouped_k) add(g * group + shared, dim);
      if (take == Take::grouped_v) add(g * group + shared + dim, dim);
    }
  }
  if (is_gguf() && architecture_->gguf.permuted && is_query_or_key(slot)) {
    if (rows.empty()) add(0, slot.rows);
    const std::vector<int64_t> stored = rows;
    const int64_t dim = slot.rows / slot.heads;
    for (int64_t i = 0; i < slot.rows; ++i) {
      const int64_t within = i % dim, half = dim / 2;
      rows[static_cast<size_t>(i)] = stored[static_cast<size_t>(i - within + (within % half) * 2 + within / half)];
    }
  }
  return rows;
}

Result<HostMatrix> ModelSource::matrix(const Slot& slot, std::vector<std::byte>& room) const {
  const Location& part = this->part(slot, ".weight");
  const StoredTensor& tensor = *part.tensor;
  HostMatrix out = {.type = tensor.type, .rows = slot.rows, .cols = slot.cols};
  std::vector<int64_t> rows = rows_of(slot, part.take);
  if (part.scales.tensor != nullptr) {
    if (rows.empty()) {
      rows.resize(static_cast<size_t>(slot.rows));
      std::iota(rows.begin(), rows.end(), int64_t{0});
    }
    out.type = DType::bf16;
    room.resize(static_cast<size_t>(bytes_of(out.type, slot.rows * slot.cols)));
    TRY_VOID(read_scaled(tensor, part.scales, rows, room));
    out.bytes = room;
    return out;
  }
  const auto row_bytes = static_cast<size_t>(bytes_of(tensor.type, slot.cols));
  if (is_transposed(slot)) {
    room.resize(static_cast<size_t>(slot.rows) * row_bytes);
    const auto size = static_cast<size_t>(format(tensor.type).group_bytes);
    if (size == 2) transpose<uint16_t>(tensor, slot, rows, room.data());
    if (size == 4) transpose<uint32_t>(tensor, slot, rows, room.data());
    out.bytes = room;
    return out;
  }
  const bool in_order = rows.empty() || (rows.back() - rows.front() == slot.rows - 1 && std::ranges::is_sorted(rows));
  if (in_order) {
    const size_t first = rows.empty() ? 0 : static_cast<size_t>(rows.front());
    out.bytes = tensor.bytes.subspan(first * row_bytes, static_cast<size_t>(slot.rows) * row_bytes);
    out.stays = reinterpret_cast<uintptr_t>(out.bytes.data()) % alignof(float) == 0;
    return out;
  }
  room.resize(static_cast<size_t>(slot.rows) * row_bytes);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(&room[r * row_bytes], &tensor.bytes[static_cast<size_t>(rows[r]) * row_bytes], row_bytes);
  }
  out.bytes = room;
  return out;
}

void ModelSource::done_with(const Slot& slot) const {
  const std::span<const std::byte> bytes = part(slot, ".weight").tensor->bytes;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), start = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (start + page - 1) / page * page, end = (start + bytes.size()) / page * page;
  // Checkpoints are mapped files, so pages that are read again come from the file.
  if (end > first) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

Result<std::vector<float>> ModelSource::floats(const Slot& slot, const Location& part, int64_t size) const {
  if (part.take == Take::per_head) {
    std::vector<float> all;
    for (int32_t head = 0; head < slot.heads; ++head) {
      TRY(const std::vector<float> one, read_floats(*find(replaced(part.name, head))));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  TRY(std::vector<float> stored, read_floats(*part.tensor));
  const std::vector<int64_t> rows = slot.kind == SlotKind::matrix ? rows_of(slot, part.take) : std::vector<int64_t>();
  if (rows.empty()) return stored;
  std::vector<float> out(static_cast<size_t>(size));
  for (size_t i = 0; i < out.size(); ++i) out[i] = stored[static_cast<size_t>(rows[i])];
  return out;
}

Result<std::vector<float>> ModelSource::norm_weight(const Slot& slot) const {
  TRY(std::vector<float> values, floats(slot, part(slot, ".weight"), slot.cols));
  if (architecture_->norms_plus_one && !is_gguf()) {
    for (float& value : values) value += 1;
  }
  return values;
}

Result<std::vector<float>> ModelSource::bias(const Slot& slot) const {
  if (!slot.bias) return std::vector<float>();
  return floats(slot, part(slot, ".bias"), slot.bias_size());
}

DType ModelSource::type_of(const Slot& slot) const {
  const Location& found = part(slot, ".weight");
  return found.scales.tensor != nullptr ? DType::bf16 : found.tensor->type;
}

}  // namespace millrace
