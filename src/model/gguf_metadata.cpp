#include <algorithm>
#include <cmath>

#include "model/convert.h"
#include "model/gguf_keys.h"
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
  }
  return "";
}

// Writes keys of one architecture from its spec.
class Keys {
 public:
  Keys(GgufWriter& writer, const ModelSource& source)
      : writer_(writer), spec_(source.spec()), arch_(source.architecture().gguf.name) {}

  Result<void> write() {
    const LayerSpec& layer = spec_.layers.front();
    const auto& gqa = std::get<GqaSpec>(layer.mixer);
    const auto& ffn = std::get<DenseSpec>(layer.ffn);
    put("vocab_size", spec_.vocab);
    put("context_length", spec_.context);
    put("embedding_length", spec_.width);
    put("block_count", static_cast<int64_t>(spec_.layers.size()));
    put("feed_forward_length", ffn.width);
    put("attention.head_count", gqa.heads);
    put("attention.head_count_kv", gqa.kv_heads);
    put("attention.key_length", gqa.head_dim);
    put("attention.value_length", gqa.head_dim);
    put_text("hidden_activation", activation_name(ffn.activation));
    const NormSpec& norm = spec_.final_norm ? *spec_.final_norm : *layer.mixer_norm;
    put_number(norm.kind == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
               norm.epsilon);
    write_switches(layer, gqa);
    write_windows();
    write_rope();
    return std::move(failed_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  void keep(Result<void> result) {
    if (failed_.ok() && !result.ok()) failed_ = std::move(result);
  }
  void put(std::string_view name, int64_t value) { keep(writer_.put(key(name), static_cast<uint32_t>(value))); }
  void put_number(std::string_view name, double value) { keep(writer_.put(key(name), static_cast<float>(value))); }
  void put_text(std::string_view name, std::string_view value) { keep(writer_.put(key(name), value)); }
  void put_flags(std::string_view name, const std::vector<bool>& flags) {
    std::vector<std::byte> bytes;
    for (bool flag : flags) bytes.push_back(std::byte{flag});
    const std::string full = key(name);
    keep(writer_.put(MetaEntry{full, MetaType::array, MetaArray(MetaType::boolean, bytes.size(), bytes)}));
  }

  // What only some architectures have.
  void write_switches(const LayerSpec& layer, const GqaSpec& gqa) {
    if (arch_ == "gptneox" || arch_ == "stablelm") keep(writer_.put(key("use_parallel_residual"), layer.parallel));
    if (arch_ == "falcon") put_text("tensor_data_layout", "jploski");
    if (gqa.clip > 0) put_number("attention.clamp_kqv", gqa.clip);
    if (arch_ == "granite") {
      put_number("logit_scale", 1 / spec_.logit_scale);
      put_number("residual_scale", layer.residual_scale);
      put_number("embedding_scale", spec_.embed_scale);
      put_number("attention.scale", gqa.scale);
    }
    if (arch_ == "command-r" || arch_ == "cohere2") put_number("logit_scale", spec_.logit_scale);
    if (arch_ == "gemma2" || gqa.softcap > 0) put_number("attn_logit_softcapping", gqa.softcap);
    if (arch_ == "gemma2" || spec_.logit_softcap > 0) put_number("final_logit_softcapping", spec_.logit_softcap);
    if (arch_ == "gemma2" || arch_ == "gemma3") {
      const double usual =
          gemma_attention_scalar(static_cast<int64_t>(spec_.layers.size()), spec_.width, gqa.heads, gqa.head_dim);
      if (std::abs(gqa.scale * std::sqrt(usual) - 1) > 1e-6) put_number("attention.scale", gqa.scale);
    }
  }

  void write_windows() {
    std::vector<bool> sliding, turning;
    int32_t window = 0;
    for (const LayerSpec& layer : spec_.layers) {
      const auto& gqa = std::get<GqaSpec>(layer.mixer);
      sliding.push_back(gqa.window > 0);
      turning.push_back(gqa.rope >= 0);
      window = std::max(window, gqa.window);
    }
    // SmolLM3 files do not say which layers turn: every fourth does not.
    bool by_four = true;
    for (size_t i = 0; i < turning.size(); ++i) by_four = by_four && turning[i] == ((i + 1) % 4 != 0);
    if (arch_ == "smollm3" && !by_four) put_flags("attention.rope_pattern", turning);
    if (window == 0 && arch_ != "phi3") return;
    put("attention.sliding_window", window);
    const bool everywhere = std::all_of(sliding.begin(), sliding.end(), [](bool here) { return here; });
    if (window == 0 || (everywhere && arch_ != "gemma2" && arch_ != "gemma3" && arch_ != "cohere2")) return;
    const int64_t period = period_of(sliding);
    if (period > 0 && arch_ != "llama" && arch_ != "exaone4") {
      put("attention.sliding_window_pattern", period);
    } else {
      put_flags("attention.sliding_window_pattern", sliding);
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
    put("rope.dimension_count", rope.dims);
    put_number("rope.freq_base", origin.theta);
    if (arch_ == "gemma3" || spec_.ropes.size() > 1) put_number("rope.freq_base_swa", spec_.ropes.back().origin.theta);
    if (origin.original_context > 0) put("rope.scaling.original_context_length", origin.original_context);
    if (origin.type == "linear") {
      put_text("rope.scaling.type", "linear");
      put_number("rope.scaling.factor", origin.factor);
    } else if (origin.type == "yarn" && origin.truncate) {
      put_text("rope.scaling.type", "yarn");
      put_number("rope.scaling.factor", origin.factor);
      put_number("rope.scaling.yarn_beta_fast", origin.beta_fast);
      put_number("rope.scaling.yarn_beta_slow", origin.beta_slow);
      put_number("rope.scaling.attn_factor", rope.magnitude / yarn_magnitude(origin.factor, 1));
    } else if (origin.type == "longrope") {
      put_text("rope.scaling.type", "longrope");
      put_number("rope.scaling.attn_factor", rope.magnitude);
    } else if (rope.magnitude != 1) {
      put_number("rope.scaling.attn_factor", rope.magnitude);
    }
  }

  GgufWriter& writer_;
  const ModelSpec& spec_;
  std::string_view arch_;
  Result<void> failed_;
};

// What describes the file itself, not the model.
bool belongs_to_file(std::string_view key) {
  return key == "general.file_type" || key == "general.alignment" || key == "general.quantization_version" ||
         key.starts_with("split.");
}

}  // namespace

Result<void> put_metadata(GgufWriter& writer, const ModelSource& source, const ConvertOptions& options) {
  const Checkpoint& checkpoint = source.checkpoint();
  if (checkpoint.kind() == Checkpoint::Kind::gguf) {
    for (const MetaEntry& entry : checkpoint.metadata().entries()) {
      if (!belongs_to_file(entry.key)) TRY_VOID(writer.put(entry));
    }
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
  }
  TRY_VOID(writer.put("general.file_type", options.type.number));
  return writer.put("general.quantization_version", uint32_t{2});
}

}  // namespace millrace
