#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "model/convert.h"
#include "model/ffns/ffns.h"
#include "model/gguf_keys.h"
#include "model/gguf_states.h"
#include "model/gguf_writing.h"
#include "model/mixers/mixers.h"
#include "model/pool.h"
#include "model/rope.h"

namespace millrace {
namespace {

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_pytorch_tanh";
    case Activation::relu:
      return "relu";
    case Activation::relu_squared:
      return "relu2";
    case Activation::sigmoid:
      return "sigmoid";
    case Activation::none:
      return "none";
  }
  return "";
}

// Writes keys of one architecture from its spec.
class Keys {
 public:
  Keys(GgufWriter& writer, const ModelSource& source)
      : keys_(writer, source.architecture().gguf.name), spec_(source.spec()), arch_(keys_.architecture()) {}

  Result<void> write() {
    const LayerSpec& layer = attending();
    keys_.put("vocab_size", spec_.vocab);
    keys_.put("context_length", spec_.context);
    keys_.put("embedding_length", spec_.width);
    keys_.put("block_count", static_cast<int64_t>(spec_.layers.size()));
    keys_.put_text("hidden_activation", activation_name(activation_of(layer.ffn)));
    const NormSpec& norm = *(spec_.final_norm   ? spec_.final_norm
                             : layer.mixer_norm ? layer.mixer_norm
                                                : spec_.embed_norm);
    keys_.put_number(norm.kind == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                     norm.epsilon);
    write_mixers();
    write_ffns();
    write_switches(layer);
    write_windows();
    write_rope();
    return keys_.status();
  }

 private:
  // The first layer with attention, where layers differ; else the first.
  const LayerSpec& attending() const {
    for (const LayerSpec& layer : spec_.layers)
      if (std::holds_alternative<GqaSpec>(layer.mixer)) return layer;
    return spec_.layers.front();
  }

  void write_mixers() {
    put_mixer_keys(keys_, spec_, attending());
    if (has_states(arch_)) put_states(keys_, spec_);
    if (sees_ahead(spec_)) keys_.put_flag("attention.causal", false);
    if (spec_.pool && !spec_.pool->scores) keys_.put("pooling_type", pooling_number(spec_.pool->pooling));
    if (spec_.pool && !spec_.pool->scores && !spec_.pool->normalised) keys_.put_flag("normalised_vectors", false);
  }

  // Each kind's keys once: those of the first layer that has it. Where every layer has experts, their width is the
  // feed-forward part's too; where some have none, these are the first, or all but every n-th.
  void write_ffns() {
    std::vector<int32_t> widths;
    for (const LayerSpec& layer : spec_.layers) widths.push_back(width_of(layer.ffn));
    if (arch_.starts_with("nemotron_h")) {  // widths are said by layer, with the states
      for (const LayerSpec& layer : spec_.layers)
        if (chosen_experts(layer.ffn) > 0) return put_ffn_keys(keys_, layer.ffn);
      return;
    }
    if (std::adjacent_find(widths.begin(), widths.end(), std::not_equal_to<>()) != widths.end() &&
        (arch_ == "gemma3n" || arch_ == "gemma4")) {
      return keys_.put_counts("feed_forward_length", widths);
    }
    std::vector<size_t> seen;
    int64_t dense = 0, first_mixed = -1;
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const FfnSpec& ffn = spec_.layers[i].ffn;
      dense += chosen_experts(ffn) == 0;
      if (chosen_experts(ffn) > 0 && first_mixed < 0) first_mixed = static_cast<int64_t>(i);
      if (std::find(seen.begin(), seen.end(), ffn.index()) != seen.end()) continue;
      seen.push_back(ffn.index());
      put_ffn_keys(keys_, ffn);
    }
    if (dense == 0) keys_.put("feed_forward_length", width_of(spec_.layers.front().ffn));
    if (dense == 0 || seen.size() == 1) return;
    if (dense == first_mixed && arch_ != "llama4") {
      keys_.put("leading_dense_block_count", dense);
    } else {
      keys_.put("interleave_moe_layer_step", first_mixed + 1);
    }
  }

  // What only some architectures have.
  void write_switches(const LayerSpec& layer) {
    if (arch_ == "gptneox" || arch_ == "stablelm") keys_.put_flag("use_parallel_residual", layer.parallel);
    if (arch_ == "falcon") keys_.put_text("tensor_data_layout", "jploski");
    write_beside();
    if (arch_ == "command-r" || arch_ == "cohere2") keys_.put_number("logit_scale", spec_.logit_scale);
    if (arch_ == "gemma2" || spec_.logit_softcap > 0) keys_.put_number("final_logit_softcapping", spec_.logit_softcap);
  }

  void write_beside() {
    if (spec_.layer_input) keys_.put("embedding_length_per_layer_input", spec_.layer_input->width);
    if (!spec_.streams) return;
    keys_.put("altup.num_inputs", spec_.streams->count);
    keys_.put("altup.active_idx", spec_.streams->active);
    std::vector<float> sparsity;
    for (const LayerSpec& layer : spec_.layers) {
      const float deviations = sparsity_of(layer.ffn);
      sparsity.push_back(deviations != 0 ? deviations : -std::numeric_limits<float>::infinity());
    }
    keys_.put_numbers("activation_sparsity_scale", sparsity);
  }

  void write_windows() {
    std::vector<bool> sliding, turning;
    int32_t window = 0;
    for (const LayerSpec& layer : spec_.layers) {
      sliding.push_back(window_of(layer.mixer) > 0);
      turning.push_back(rope_of(layer.mixer) >= 0);
      window = std::max(window, window_of(layer.mixer));
    }
    // SmolLM3 files do not say which layers turn: every fourth does not.
    bool by_four = true;
    for (size_t i = 0; i < turning.size(); ++i) by_four = by_four && turning[i] == ((i + 1) % 4 != 0);
    if (arch_ == "smollm3" && !by_four) keys_.put_flags("attention.rope_pattern", turning);
    if (window == 0 && arch_ != "phi3") return;
    const bool both_sides = arch_ == "modern-bert";  // counts what lies on both
    keys_.put("attention.sliding_window", both_sides ? 2 * (window - 1) : window);
    if (both_sides) return keys_.put_flags("attention.sliding_window_pattern", sliding);
    const bool everywhere = std::all_of(sliding.begin(), sliding.end(), [](bool here) { return here; });
    if (window == 0 || (everywhere && arch_ != "gemma2" && arch_ != "gemma3" && arch_ != "cohere2")) return;
    const int64_t period = period_of(sliding);
    const bool by_flags = arch_ == "llama" || arch_ == "exaone4" || arch_ == "gemma3n" || arch_ == "gemma4";
    if (period > 0 && !by_flags) {
      keys_.put("attention.sliding_window_pattern", period);
    } else {
      keys_.put_flags("attention.sliding_window_pattern", sliding);
    }
  }

  // n if every n-th layer, and no other, sees everything.
  static int64_t period_of(const std::vector<bool>& sliding) {
    const auto full = std::find(sliding.begin(), sliding.end(), false);
    const auto period = static_cast<size_t>(full - sliding.begin()) + 1;
    for (size_t i = 0; i < sliding.size(); ++i) {
      if (sliding[i] != ((i + 1) % period != 0)) return 0;
    }
    return static_cast<int64_t>(period);
  }

  void write_rope() {
    if (spec_.ropes.empty()) return;
    const RopeSpec& rope = spec_.ropes.front();
    const RopeOrigin& origin = rope.origin;
    keys_.put("rope.dimension_count", rope.dims);
    keys_.put_number("rope.freq_base", origin.theta);
    if (arch_ == "gemma4") keys_.put("rope.dimension_count_swa", spec_.ropes.back().dims);
    if (arch_ == "gemma3" || spec_.ropes.size() > 1)
      keys_.put_number("rope.freq_base_swa", spec_.ropes.back().origin.theta);
    if (origin.original_context > 0) keys_.put("rope.scaling.original_context_length", origin.original_context);
    if (origin.type == "linear") {
      keys_.put_text("rope.scaling.type", "linear");
      keys_.put_number("rope.scaling.factor", origin.factor);
    } else if (origin.type == "yarn" && origin.truncate) {
      keys_.put_text("rope.scaling.type", "yarn");
      keys_.put_number("rope.scaling.factor", origin.factor);
      keys_.put_number("rope.scaling.yarn_beta_fast", origin.beta_fast);
      keys_.put_number("rope.scaling.yarn_beta_slow", origin.beta_slow);
      if (origin.mscale_all != 0) {
        keys_.put_number("rope.scaling.yarn_log_multiplier", 0.1 * origin.mscale_all);
      } else {
        keys_.put_number("rope.scaling.attn_factor", rope.magnitude / yarn_magnitude(origin.factor, 1));
      }
    } else if (origin.type == "longrope") {
      keys_.put_text("rope.scaling.type", "longrope");
      keys_.put_number("rope.scaling.attn_factor", rope.magnitude);
    } else if (rope.magnitude != 1) {
      keys_.put_number("rope.scaling.attn_factor", rope.magnitude);
    }
  }

  GgufKeys keys_;
  const ModelSpec& spec_;
  std::string_view arch_;
};

// What describes the file itself, not the model.
bool belongs_to_file(std::string_view key) {
  return key == "general.file_type" || key == "general.alignment" || key == "general.quantization_version" ||
         key.starts_with("split.");
}

}  // namespace

void GgufKeys::put_counts(std::string_view name, const std::vector<int32_t>& counts) {
  const std::string full = key(name);
  keep(writer_.put(
      MetaEntry{full, MetaType::array, MetaArray(MetaType::i32, counts.size(), std::as_bytes(std::span(counts)))}));
}

void GgufKeys::put_numbers(std::string_view name, const std::vector<float>& numbers) {
  const std::string full = key(name);
  keep(writer_.put(
      MetaEntry{full, MetaType::array, MetaArray(MetaType::f32, numbers.size(), std::as_bytes(std::span(numbers)))}));
}

void GgufKeys::put_flags(std::string_view name, const std::vector<bool>& flags) {
  std::vector<std::byte> bytes;
  for (bool flag : flags) bytes.push_back(std::byte{flag});
  const std::string full = key(name);
  keep(writer_.put(MetaEntry{full, MetaType::array, MetaArray(MetaType::boolean, bytes.size(), bytes)}));
}

Result<void> put_metadata(GgufWriter& writer, const ModelSource& source, const ConvertOptions& options) {
  const Checkpoint& checkpoint = source.checkpoint();
  if (checkpoint.kind() == Checkpoint::Kind::gguf) {
    const std::string own = fmt::format("{}.", source.architecture().gguf.name);
    for (const MetaEntry& entry : checkpoint.metadata().entries()) {
      const bool outdated = source.reshaped() && entry.key.starts_with(own);
      if (!belongs_to_file(entry.key) && !outdated) TRY_VOID(writer.put(entry));
    }
    if (source.reshaped()) TRY_VOID(Keys(writer, source).write());
  } else {
    std::filesystem::path path = checkpoint.path();
    if (!path.has_filename()) path = path.parent_path();
    TRY_VOID(writer.put("general.architecture", source.architecture().gguf.name));
    TRY_VOID(writer.put("general.type", "model"));
    TRY_VOID(writer.put("general.name", options.name.empty() ? path.filename().string() : options.name));
    TRY_VOID(Keys(writer, source).write());
    if (options.tokenizer) {
      TRY_VOID(options.tokenizer(writer));
    } else {
      TRY_VOID(writer.put("tokenizer.ggml.model", "none"));
    }
    if (options.sampling) TRY_VOID(options.sampling(writer));
    if (const FillSpec& fill = source.spec().fill; fills_masks(source.spec()) && fill.mask >= 0) {
      TRY_VOID(writer.put("diffusion.mask_token_id", static_cast<uint32_t>(fill.mask)));
      TRY_VOID(writer.put("diffusion.shift_logits", fill.shifted));
    }
  }
  TRY_VOID(writer.put("general.file_type", options.type.number));
  return writer.put("general.quantization_version", uint32_t{2});
}

}  // namespace millrace
