#include "model/source.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "model/ffns/ffns.h"
#include "model/file_names.h"
#include "model/gguf_keys.h"
#include "model/mixers/mixers.h"
#include "model/pool.h"
#include "model/shared.h"

namespace millrace {
namespace {

std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Tensors that files carry and no model needs: buffers saved by accident, and the parts that see.
bool is_needless(std::string_view name) {
  for (std::string_view end :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
        ".attn_rot_embd.weight", ".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"}) {
    if (name.ends_with(end)) return true;
  }
  for (std::string_view start : {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                                 "model.multi_modal_projector.", "vision_model.", "model.vision_model.",
                                 "model.audio_tower.", "model.embed_vision.", "model.embed_audio.", "model.visual."}) {
    if (name.starts_with(start)) return true;
  }
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
}

// "model.norm.weight" -> "model.norm", and likewise for names of codes.
std::string stem_of(const std::string& name) {
  for (const std::string_view ending : {".weight", ".qweight", ".weight_packed", "_blocks"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

}  // namespace

Result<ModelSource> ModelSource::open(const Checkpoint& checkpoint, int64_t context, Keep keep) {
  if (checkpoint.kind() == Checkpoint::Kind::safetensors) {
    return error(Code::invalid, "{} holds tensors only; give the directory that has its config.json",
                 checkpoint.path().string());
  }
  ModelSource source;
  source.checkpoint_ = &checkpoint;
  source.keep_ = keep;
  if (source.is_gguf()) {
    TRY(source.config_, config_from_gguf(checkpoint));
  } else {
    TRY(source.config_, Config::from_json("config.json", checkpoint.config()));
  }
  source.config_.set_wanted_context(context);
  TRY(source.spec_, describe(source.config_));
  TRY(source.architecture_, find_architecture(source.spec_.architecture));
  settle_shared(checkpoint, source.spec_);
  TRY_VOID(settle_pool(checkpoint, source.config_, source.spec_));
  source.ahead_ = source.config_.count_or_none("num_nextn_predict_layers", 0);
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
  for (const std::string& put :
       {std::string(), "language_model." + first, first + "language_model.", std::string("roberta.")}) {
    if (checkpoint_->find(put + name.substr(first.size())) == nullptr) continue;
    strip_ = first;
    put_ = put;
    return;
  }
}

// GGUF says with its tensors which products have biases, where the architecture leaves that open.
void ModelSource::settle_biases() {
  if (architecture_->gguf.biased) return;
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    settle_mixer_biases(spec_.layers[i].mixer, *checkpoint_, static_cast<int32_t>(i));
    settle_ffn_biases(spec_.layers[i].ffn, *checkpoint_, static_cast<int32_t>(i));
  }
  spec_.head_bias = checkpoint_->find("output.bias") != nullptr;
}

// A head that equals the table is one with it, whatever the configuration says; one that differs is not.
Result<void> ModelSource::settle_head() {
  if (!spec_.head) return {};
  Slot table, head;
  table.name = "token_embd";
  head.name = "output";
  const auto stored_table = locate(table, ".weight"), stored_head = locate(head, ".weight");
  if (!spec_.tied) {
    if (stored_head.ok() || !stored_table.ok()) return {};
    if (spec_.pool) {  // only vectors are made with it
      spec_.head = false;
      return {};
    }
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
  std::vector<Location> out;
  if (const std::string stem = projection_file(spec_, slot.name); !stem.empty()) {
    out.push_back({stem, Take::whole});
    return out;
  }
  const bool no_gate =
      is_gguf() && slot.layer >= 0 && checkpoint_->find(fmt::format("blk.{}.ffn_gate.weight", slot.layer)) == nullptr;
  for (FileName& each : file_names(*architecture_, slot, is_gguf(), architecture_->gguf.fused_ffn && no_gate))
    out.push_back({std::move(each.name), each.take, each.bare, each.transposed, each.change});
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
    part.name += !part.bare ? suffix : suffix == ".bias" ? "_bias" : "";
    const std::string name = part.several() ? numbered(part.name, 0) : part.name;
    part.tensor = find(name);
    if (part.tensor == nullptr && suffix == ".weight") {
      part.tensor = find_codes(name);
      if (part.tensor != nullptr && part.bare) part.transposed = false;  // codes lie by outputs, whatever numbers do
    }
    if (part.tensor != nullptr) return part;
  }
  const bool vector = suffix == ".bias" || slot.kind != SlotKind::matrix;
  const std::string name = parts.empty() ? slot.name : parts.front().name;
  return error(Code::invalid, "the tensor '{}' is missing: expected {}",
               !parts.empty() && parts.front().several() ? numbered(name, 0) : name,
               vector ? shown({slot.bias_size()}) : shown({slot.rows, slot.cols}));
}

const StoredTensor* ModelSource::find_codes(const std::string& name) const {
  for (const std::string_view codes : {".qweight", ".weight_packed", "_blocks"})
    if (const StoredTensor* found = find(stem_of(name) + std::string(codes))) return found;
  return nullptr;
}

bool ModelSource::is_transposed(const Slot& slot, const Location& part) const {
  if (slot.kind != SlotKind::matrix) return false;
  return part.transposed || (architecture_->transposed && !is_gguf() && slot.layer >= 0);
}

// The shape a tensor must have for the slot to be taken out of it.
Result<void> ModelSource::check_shape(const Slot& slot, const Location& part, bool bias) const {
  const int64_t rows = stored_rows(spec_, slot, part.take);
  const bool vector = bias || slot.kind != SlotKind::matrix;
  std::vector<int64_t> expected = vector ? std::vector{rows} : std::vector{rows, slot.cols};
  if (part.take == Take::latent_k) expected[1] = slot.rows;
  if (!vector && is_transposed(slot, part)) std::swap(expected[0], expected[1]);
  const bool together = slot.experts > 0 && part.take != Take::per_expert && !part.latent();
  if (together) expected.insert(expected.begin(), slot.experts);
  std::vector<int64_t> found = part.tensor->shape;
  if (!part.stored.empty()) {
    const StoredMatrix& stored = *part.stored.back();
    found = {stored.rows(), stored.cols()};
    if (expected.size() == 3 && stored.rows() % slot.experts == 0)
      found = {slot.experts, stored.rows() / slot.experts, stored.cols()};
  }
  // A norm with a weight for every head may lie as [heads, head_dim].
  if (slot.kind == SlotKind::norm && slot.heads > 0 && found.size() == 2 && found[0] == slot.heads)
    found = {found[0] * found[1]};
  // And one of parts as [parts, their width].
  if (slot.kind == SlotKind::norm && slot.plain && found.size() == 2 && part.tensor->values() == slot.cols)
    found = {slot.cols};
  // A vector may lie in any shape of as many numbers.
  if (slot.kind == SlotKind::vector && part.tensor->values() == slot.cols) return {};
  // A matrix of one row may lie as a vector.
  if (!vector && slot.rows == 1 && found.size() == 1) found.insert(found.begin(), 1);
  if (found == expected) return {};
  return error(Code::invalid, "the tensor '{}' has shape {}: expected {} ({})", part.tensor->name, shown(found),
               shown(expected), slot.name);
}

Result<void> ModelSource::check_tensor(const Slot& slot, const Location& part, bool bias) const {
  TRY_VOID(check_shape(slot, part, bias));
  const Format& f = format(part.stored.empty() ? part.tensor->type : part.stored.back()->type(keep_));
  if (!f.readable())
    return error(Code::unsupported, "the tensor '{}' has format {}, which cannot be read", part.tensor->name, f.name);
  if (!bias && is_transposed(slot, part) && (f.group != 1 || (f.group_bytes != 2 && f.group_bytes != 4))) {
    return error(Code::unsupported, "the tensor '{}' has format {}, which cannot be transposed", part.tensor->name,
                 f.name);
  }
  return {};
}

// Where a slot's weight or bias is, with every tensor of it checked and noted.
Result<ModelSource::Location> ModelSource::check_part(const Slot& slot, bool bias,
                                                      std::unordered_map<const StoredTensor*, int>& used) const {
  TRY(Location part, locate(slot, bias ? ".bias" : ".weight"));
  const int64_t tensors = part.take == Take::per_head ? slot.heads : part.several() ? slot.experts : 1;
  for (int64_t i = 0; i < tensors; ++i) {
    Location each = part;
    if (part.several()) each.tensor = find(numbered(part.name, i));
    if (each.tensor == nullptr && part.several() && !bias) each.tensor = find_codes(numbered(part.name, i));
    if (each.tensor == nullptr) {
      return error(Code::invalid, "the tensor '{}' is missing: there are to be {}", numbered(part.name, i), tensors);
    }
    if (!bias && slot.kind == SlotKind::matrix) {
      TRY(StoredMatrixPtr stored, stored_matrix(*checkpoint_, stem_of(each.tensor->name)));
      if (stored != nullptr) each.stored = {std::move(stored)};
    }
    TRY_VOID(check_tensor(slot, each, bias));
    ++used[each.tensor];
    if (bias || slot.kind != SlotKind::matrix) continue;
    if (each.tensor->type != part.tensor->type) {
      return error(Code::unsupported, "the tensor '{}' has format {}, others of the layer's {}", each.tensor->name,
                   format(each.tensor->type).name, format(part.tensor->type).name);
    }
    if (each.stored.empty() != part.stored.empty() && i > 0)
      return error(Code::unsupported, "some experts have scales and others have not, as '{}' shows", each.tensor->name);
    if (each.stored.empty()) continue;
    for (const StoredTensor* tensor : each.stored.front()->tensors()) ++used[tensor];
    if (part.take == Take::per_head || slot.float32 || is_transposed(slot, part))
      return error(Code::unsupported, "the tensor '{}' has scales, which it cannot have", each.tensor->name);
    part.stored.push_back(each.stored.front());
    if (part.stored.back()->type(keep_) != part.stored.front()->type(keep_))
      return error(Code::unsupported, "the tensor '{}' becomes {}, others of the layer {}", each.tensor->name,
                   format(part.stored.back()->type(keep_)).name, format(part.stored.front()->type(keep_)).name);
  }
  return part;
}

Result<void> ModelSource::check_all() {
  std::unordered_map<const StoredTensor*, int> used;
  for (const Slot& slot : slots(spec_)) {
    for (const bool bias : {false, true}) {
      if (!(bias ? slot.bias : slot.weight)) continue;
      TRY(Location part, check_part(slot, bias, used));
      parts_.emplace(slot.name + (bias ? ".bias" : ".weight"), std::move(part));
    }
  }
  return check_unexpected(used);
}

// Layers after the last, which predict further tokens.
bool ModelSource::predicts_ahead(std::string_view name) const {
  if (name.starts_with("mtp.") || name.starts_with("model.mtp.")) return true;
  const std::string start = is_gguf() ? "blk." : "model.layers.";
  if (!name.starts_with(start)) return false;
  int64_t layer = 0;
  const auto [end, failed] = std::from_chars(name.data() + start.size(), name.data() + name.size(), layer);
  const auto layers = static_cast<int64_t>(spec_.layers.size());
  return failed == std::errc() && *end == '.' && layer >= layers && layer < layers + ahead_;
}

// Keys and values of layers that read another's: files carry them, nobody reads them.
std::set<std::string> ModelSource::unread_names() const {
  std::set<std::string> names;
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    if (spec_.layers[i].shared) {
      // The same weights once more, under the number of every layer that shares them; and what other uses change.
      const bool again = spec_.layers[i].shared->from >= 0;
      const std::string start = fmt::format("model.layers.{}.shared_transformer.{}", i,
                                            again ? "" : "feed_forward.gate_up_proj_adapter_list.");
      for (const StoredTensor& tensor : checkpoint_->tensors())
        if (tensor.name.starts_with(start)) names.emplace(tensor.name);
    }
    if (kv_source(spec_.layers[i].mixer) < 0) continue;
    for (std::string_view stem : {"attn_k", "attn_v", "attn_k_norm"}) {
      Slot slot;
      slot.layer = slot.number = static_cast<int32_t>(i);
      slot.name = fmt::format("blk.{}.{}", i, stem);
      for (const Location& each : candidates(slot)) {
        const StoredTensor* found = find(each.name + ".weight");
        if (found != nullptr) names.emplace(found->name);
      }
    }
  }
  return names;
}

// A tensor nobody asked for changes what the model computes somewhere else; guessing that it does not is how files load
// and answer nonsense.
Result<void> ModelSource::check_unexpected(const std::unordered_map<const StoredTensor*, int>& used) const {
  std::vector<std::string_view> names;
  Slot head;
  head.name = "output";
  const auto tied_head = locate(head, ".weight");
  const std::set<std::string> unread = unread_names();
  const bool scaled = std::ranges::any_of(parts_, [](const auto& each) { return !each.second.stored.empty(); });
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    const bool is_tied_head = spec_.tied && tied_head.ok() && tied_head->tensor == &tensor;
    const bool needless = is_needless(tensor.name) || (!spec_.head && is_other_head(tensor.name)) ||
                          predicts_ahead(tensor.name) || (scaled && is_scale_of_activations(tensor.name)) ||
                          unread.contains(tensor.name);
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

}  // namespace millrace
