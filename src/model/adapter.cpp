#include "model/adapter.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

#include "backend/memory.h"
#include "base/file.h"
#include "base/rng.h"
#include "cache/bulk_digest.h"
#include "model/adapter_settings.h"
#include "model/file_names.h"
#include "model/gguf_states.h"
#include "tensor/half.h"
#include "tensor/side_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Matrices that adapters may change.
std::vector<Slot> changeable(const ModelSpec& spec) {
  std::vector<Slot> all;
  for (Slot& slot : slots(spec)) {
    const bool table = slot.use == WeightUse::table && slot.name != "token_embd";
    if (slot.kind == SlotKind::matrix && slot.weight && !table) all.push_back(std::move(slot));
  }
  if (spec.head && spec.tied) all.push_back({.name = "output", .rows = spec.vocab, .cols = spec.head_width()});
  return all;
}

// The two tensors of a module.
struct Pair {
  const StoredTensor *down = nullptr, *up = nullptr;
  bool table = false;  // an embedding's: down is [rank, rows of the table]
};

class AdapterReader {
 public:
  AdapterReader(const Checkpoint& file, const ModelSpec& spec, const Architecture& architecture,
                AdapterSettings settings)
      : file_(file), spec_(spec), settings_(std::move(settings)), gguf_(file.kind() == Checkpoint::Kind::gguf) {
    permuted_ = gguf_ && architecture.gguf.permuted;
    striped_ = gguf_ && stripes_values(architecture.gguf.name);
    for (const Slot& slot : changeable(spec)) {
      for (FileName& each : file_names(architecture, slot, gguf_, architecture.gguf.fused_ffn))
        targets_[std::move(each.name)].push_back({slot, each.take});
    }
  }

  Result<std::vector<AdapterPart>> read() {
    std::map<std::string, Pair> modules;
    for (const StoredTensor& tensor : file_.tensors()) TRY_VOID(note(tensor, modules));
    if (modules.empty()) return error(Code::invalid, "there is no LoRA tensor in it");
    for (const auto& [module, pair] : modules) TRY_VOID(add(module, pair));
    return finish();
  }

 private:
  struct Target {
    Slot slot;
    Take take;
  };

  // Which module and which side of it a tensor is.
  Result<void> note(const StoredTensor& tensor, std::map<std::string, Pair>& modules) const {
    struct Ending {
      std::string_view text;
      bool down, table;
    };
    static constexpr Ending kPeft[] = {
        {".lora_A.weight", true, false},         {".lora_B.weight", false, false},
        {".lora_A.default.weight", true, false}, {".lora_B.default.weight", false, false},
        {".lora_embedding_A", true, true},       {".lora_embedding_B", false, true}};
    static constexpr Ending kGguf[] = {{".weight.lora_a", true, false}, {".weight.lora_b", false, false}};
    std::string_view name = tensor.name;
    if (!gguf_ && name.starts_with("base_model.model.")) name.remove_prefix(17);
    for (const Ending& ending : gguf_ ? std::span<const Ending>(kGguf) : std::span<const Ending>(kPeft)) {
      if (!name.ends_with(ending.text)) continue;
      name.remove_suffix(ending.text.size());
      Pair& pair = modules[module_of(name)];
      const StoredTensor*& place = ending.down ? pair.down : pair.up;
      if (place != nullptr)
        return error(Code::invalid, "the tensors '{}' and '{}' are of the same module", place->name, tensor.name);
      place = &tensor;
      pair.table = ending.table;
      return {};
    }
    if (name.find("lora_magnitude_vector") != std::string_view::npos)
      return error(Code::unsupported, "the tensor '{}' is of DoRA, which is not built", tensor.name);
    return error(Code::unsupported,
                 "the tensor '{}' is no low-rank change of a matrix, and other changes are not built", tensor.name);
  }

  // Adapters name modules as the whole model does, or as it is part of a larger one.
  std::string module_of(std::string_view name) const {
    std::string module(name);
    for (const std::string_view part : {"language_model.", "text_model."}) {
      if (targets_.contains(module)) return module;
      std::string without = module;
      if (const size_t at = without.find(part); at != std::string::npos) without.erase(at, part.size());
      if (targets_.contains(without)) return without;
    }
    if (const std::string with = "model." + module; targets_.contains(with)) return with;
    return module;
  }

  Result<void> add(const std::string& module, const Pair& pair) {
    const StoredTensor* known = pair.down != nullptr ? pair.down : pair.up;
    if (pair.down == nullptr || pair.up == nullptr)
      return error(Code::invalid, "the tensor '{}' is there without its {} half", known->name,
                   pair.down == nullptr ? "first" : "second");
    const auto found = targets_.find(module);
    if (found == targets_.end())
      return error(Code::invalid, "the tensor '{}' is of '{}', which {} has not, or which adapters cannot change",
                   known->name, module, spec_.architecture);
    for (const Target& target : found->second) TRY_VOID(add(module, pair, target));
    return {};
  }

  Result<void> check_target(const Target& target, const Pair& pair) const {
    const bool apart = target.take == Take::per_head || target.take == Take::per_expert ||
                       target.take == Take::latent_k || target.take == Take::latent_v;
    if (target.slot.experts > 0 || apart)
      return error(Code::unsupported, "the tensor '{}' changes {}, one matrix of several, which is not built",
                   pair.down->name, target.slot.name);
    if (pair.table != (target.slot.name == "token_embd"))
      return error(Code::unsupported, "the tensor '{}' is not what adapters have for {}", pair.down->name,
                   target.slot.name);
    if (const DeltaSpec* delta = delta_of(target.slot);
        delta != nullptr && delta->striped != striped_ && delta->k_heads != delta->v_heads)
      return error(Code::unsupported,
                   "the tensor '{}' changes {}, whose {} value heads stand in another order in the model's file; give "
                   "the model in the form the adapter was made for",
                   pair.down->name, target.slot.name, delta->v_heads);
    if (pair.table && spec_.embed_scale != 1)
      return error(Code::unsupported, "the tensor '{}' changes embeddings that are scaled by {}, which is not built",
                   pair.down->name, spec_.embed_scale);
    return {};
  }

  const DeltaSpec* delta_of(const Slot& slot) const {
    if (slot.layer < 0 || slot.name.find(".ffn_") != std::string::npos) return nullptr;
    return std::get_if<DeltaSpec>(&spec_.layers[static_cast<size_t>(slot.layer)].mixer);
  }

  Result<void> check_shapes(const Target& target, const Pair& pair, int64_t ins, int64_t outs) const {
    const std::vector<int64_t>&down = pair.down->shape, &up = pair.up->shape;
    if (down.size() != 2 || down[1] != ins)
      return error(Code::invalid, "the tensor '{}' has shape {}: expected [rank, {}] ({})", pair.down->name,
                   shown(down), ins, target.slot.name);
    if (down[0] < 1 || down[0] > kMostAdapterRank)
      return error(Code::unsupported, "the tensor '{}' has rank {}: 1 to {} can be run", pair.down->name, down[0],
                   kMostAdapterRank);
    if (up.size() != 2 || up[0] != outs || up[1] != down[0])
      return error(Code::invalid, "the tensor '{}' has shape {}: expected {} ({})", pair.up->name, shown(up),
                   shown({outs, down[0]}), target.slot.name);
    return {};
  }

  Result<void> add(const std::string& module, const Pair& pair, const Target& target) {
    TRY_VOID(check_target(target, pair));
    const Slot& slot = target.slot;
    const int64_t ins = pair.table ? slot.rows : slot.cols;
    const int64_t stored = pair.table ? slot.cols : stored_rows(spec_, slot, target.take);
    TRY_VOID(check_shapes(target, pair, ins, stored));
    AdapterPart part = {.slot = slot.name, .rank = static_cast<int32_t>(pair.down->shape[0]), .table = pair.table};
    TRY(part.scale, settings_.scale(module, part.rank));
    TRY(part.down, read_floats(*pair.down));
    TRY(const std::vector<float> up, read_floats(*pair.up));
    std::vector<int64_t> rows;
    if (!pair.table) rows = stored_order(spec_, slot, target.take, permuted_);
    const int64_t outs = pair.table ? slot.cols : slot.rows, rank = part.rank;
    part.up.resize(static_cast<size_t>(outs * rank));
    for (int64_t o = 0; o < outs; ++o) {
      const int64_t from = rows.empty() ? o : rows[static_cast<size_t>(o)];
      for (int64_t j = 0; j < rank; ++j)
        part.up[static_cast<size_t>(j * outs + o)] = up[static_cast<size_t>(from * rank + j)];
    }
    if (pair.table) {  // a row for each token
      const std::vector<float> lying = std::move(part.down);
      part.down.resize(lying.size());
      for (int64_t j = 0; j < rank; ++j)
        for (int64_t i = 0; i < ins; ++i)
          part.down[static_cast<size_t>(i * rank + j)] = lying[static_cast<size_t>(j * ins + i)];
    }
    if (std::ranges::any_of(parts_, [&](const AdapterPart& other) { return other.slot == part.slot; }))
      return error(Code::invalid, "the tensor '{}' changes {}, which another changes too", pair.down->name, part.slot);
    parts_.push_back(std::move(part));
    return {};
  }

  Result<std::vector<AdapterPart>> finish() {
    // What was read from files that changed meanwhile is nothing to go by.
    TRY_VOID(file_.unchanged());
    return std::move(parts_);
  }

  const Checkpoint& file_;
  const ModelSpec& spec_;
  const AdapterSettings settings_;
  const bool gguf_;
  bool permuted_ = false, striped_ = false;
  std::unordered_map<std::string, std::vector<Target>> targets_;  // by the module's name in files
  std::vector<AdapterPart> parts_;
};

// Whether no number changes on its way there and back.
template <class To, class Back>
bool keeps(const AdapterPart& part, To to, Back back) {
  const auto same = [&](float number) {
    return std::bit_cast<uint32_t>(back(to(number))) == std::bit_cast<uint32_t>(number);
  };
  return std::ranges::all_of(part.down, same) && std::ranges::all_of(part.up, same);
}

DeltaNumbers numbers_of(const AdapterPart& part) {
  if (keeps(part, f32_to_bf16, bf16_to_f32)) return DeltaNumbers::bf16;
  if (keeps(part, f32_to_f16, f16_to_f32)) return DeltaNumbers::f16;
  return DeltaNumbers::f32;
}

// In order, with the digest of all.
Adapter settled(std::vector<AdapterPart> parts) {
  Adapter adapter;
  std::ranges::sort(parts, {}, &AdapterPart::slot);
  Digest digest;
  for (AdapterPart& part : parts) {
    part.numbers = numbers_of(part);
    digest.add_sized(fmt::format("{} {} {} {}", part.slot, part.rank, part.scale, part.table));
    digest.add(bulk_digest(std::as_bytes(std::span(part.down))));
    digest.add(bulk_digest(std::as_bytes(std::span(part.up))));
  }
  adapter.parts = std::move(parts);
  adapter.content = digest.finish();
  return adapter;
}

Result<Adapter> read_checked(const fs::path& path, const ModelSpec& spec) {
  std::error_code code;
  fs::path directory = path, weights = path;
  if (fs::is_directory(path, code)) {
    weights = path / "adapter_model.safetensors";
    if (!fs::exists(weights, code)) {
      const bool pickled = fs::exists(path / "adapter_model.bin", code);
      return error(pickled ? Code::unsupported : Code::not_found, "there is no adapter_model.safetensors in it{}",
                   pickled ? "; adapter_model.bin is a pickle, which can run programs and is not read: save it as "
                             "safetensors"
                           : "; give a PEFT directory or a GGUF adapter");
    }
  } else {
    directory = path.parent_path();
  }
  TRY(const Checkpoint file, Checkpoint::open(weights));
  if (file.kind() == Checkpoint::Kind::gguf) return read_adapter(file, Json(), spec);
  TRY(const std::string text, read_side_file(directory, directory / "adapter_config.json", size_t{16} << 20));
  TRY(const Json config, parse_json(text));
  return read_adapter(file, config, spec);
}

}  // namespace

int32_t Adapter::rank() const {
  int32_t most = 0;
  for (const AdapterPart& part : parts) most = std::max(most, part.rank);
  return most;
}

int64_t Adapter::bytes() const {
  int64_t bytes = 0;
  for (const AdapterPart& part : parts) bytes += part.bytes();
  return bytes;
}

int64_t AdapterPart::bytes() const {
  return aligned(std::ssize(down) * bytes_of(numbers)) + aligned(std::ssize(up) * bytes_of(numbers));
}

Result<Adapter> read_adapter(const Checkpoint& file, const Json& config, const ModelSpec& spec) {
  TRY(const Architecture* architecture, find_architecture(spec.architecture));
  const bool gguf = file.kind() == Checkpoint::Kind::gguf;
  TRY(AdapterSettings settings,
      gguf ? AdapterSettings::from_gguf(file.metadata(), architecture->gguf.name) : AdapterSettings::from_peft(config));
  TRY(std::vector<AdapterPart> parts, AdapterReader(file, spec, *architecture, std::move(settings)).read());
  return settled(std::move(parts));
}

Result<Adapter> read_adapter(const fs::path& path, const ModelSpec& spec) {
  auto read = read_checked(path, spec);
  if (!read.ok()) return within(path.string(), read.error());
  return read;
}

Result<Adapter> joined_adapter(std::span<const WeightedAdapter> adapters) {
  std::map<std::string, AdapterPart> all;
  for (const WeightedAdapter& each : adapters) {
    for (const AdapterPart& part : each.adapter->parts) {
      AdapterPart& sum = all[part.slot];
      const auto before = static_cast<size_t>(sum.rank), added = static_cast<size_t>(part.rank);
      sum.slot = part.slot;
      sum.table = part.table;
      sum.scale = 1;
      sum.rank += part.rank;
      if (sum.rank > kMostAdapterRank)
        return error(Code::unsupported, "the adapters together have rank {} for {}: at most {} can be run", sum.rank,
                     part.slot, kMostAdapterRank);
      for (const float number : part.up) sum.up.push_back(number * part.scale * each.strength);
      if (!part.table) {
        sum.down.insert(sum.down.end(), part.down.begin(), part.down.end());
        continue;
      }
      const size_t rows = part.down.size() / added;  // of a table: ranks lie side by side
      std::vector<float> wide(rows * (before + added));
      for (size_t row = 0; row < rows; ++row) {
        std::copy_n(sum.down.begin() + static_cast<ptrdiff_t>(row * before), before,
                    wide.begin() + static_cast<ptrdiff_t>(row * (before + added)));
        std::copy_n(part.down.begin() + static_cast<ptrdiff_t>(row * added), added,
                    wide.begin() + static_cast<ptrdiff_t>(row * (before + added) + before));
      }
      sum.down = std::move(wide);
    }
  }
  std::vector<AdapterPart> parts;
  for (auto& [slot, part] : all) parts.push_back(std::move(part));
  return settled(std::move(parts));
}

Adapter random_adapter(const ModelSpec& spec, int32_t rank, uint64_t seed) {
  std::vector<AdapterPart> parts;
  uint32_t matrix = 0;
  std::vector<double> draws;
  for (const Slot& slot : changeable(spec)) {
    if (slot.experts > 0 || slot.layer < 0) continue;
    AdapterPart part = {.slot = slot.name, .rank = rank, .scale = 1.0f / static_cast<float>(rank)};
    part.down.resize(static_cast<size_t>(slot.cols * rank));
    part.up.resize(static_cast<size_t>(slot.rows * rank));
    for (std::vector<float>* numbers : {&part.down, &part.up}) {
      draws.resize(numbers->size());
      uniforms({.seed = seed, .choice = matrix++}, draws);
      // As most are stored: in 16 bits.
      std::ranges::transform(draws, numbers->begin(),
                             [](double u) { return bf16_to_f32(f32_to_bf16(static_cast<float>(u - 0.5) * 0.1f)); });
    }
    parts.push_back(std::move(part));
  }
  return settled(std::move(parts));
}

}  // namespace millrace
