// Zamba 2: Mamba 2 layers, some of which first read what attention and a feed-forward part give that are shared by
// them.
#include <algorithm>
#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

constexpr size_t kMostUses = 32;  // names of their own in kZamba2Names

// The attention reads rows twice as wide, and its scores are scaled as if heads were half as wide.
SharedSpec shared_part(Config& config, ModelSpec& spec, const Sizes& sizes, NormSpec norm) {
  if (config.flag("use_shared_attention_adapter", false))
    config.refuse("use_shared_attention_adapter", "uses that change the feed-forward part alone are built");
  if (config.flag("add_bias_linear", false)) config.refuse("add_bias_linear", "products without biases are built");
  if (config.flag("use_long_context", false)) config.refuse("use_long_context", "plain rotation is built");
  Sizes own = sizes;
  own.width = 2 * sizes.width;
  own.head_dim = config.count("attention_head_dim", own.width / std::max(1, sizes.heads));
  SharedSpec shared = {.gqa = attention(own), .ffn = gated_ffn(config, sizes, "hidden_act", "gelu"), .norm = norm};
  shared.gqa.scale = 1 / std::sqrt(static_cast<float>(own.head_dim) / 2);
  if (config.flag("use_mem_rope", false)) shared.gqa.rope = add_rope(config, spec, {.head_dim = own.head_dim});
  shared.rank = config.count("adapter_rank", 128);
  return shared;
}

void describe_zamba2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 32000, .width = 2560, .ffn = 10240, .layers = 54, .heads = 32, .context = 4096, .tied = true});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  SsmSpec ssm = mamba2_mixer(config, sizes,
                             {.heads = "n_mamba_heads",
                              .head_dim = "mamba_headdim",
                              .groups = "mamba_ngroups",
                              .bias = "add_bias_linear",
                              .conv_bias = "use_conv_bias",
                              .usual_heads = 8,
                              .usual_state = 64});
  ssm.norm = norm;
  ssm.norm_groups = ssm.groups;
  ssm.least_step = std::max(ssm.least_step, static_cast<float>(config.number("time_step_min", 0.001)));
  SharedSpec shared = shared_part(config, spec, sizes, norm);
  std::vector<int32_t> homes(static_cast<size_t>(std::min(config.count("num_mem_blocks", 1), 64)), -1);
  const std::vector<std::string> types =
      layer_types(config, "layers_block_type", sizes.layers, {"mamba", "linear_attention", "hybrid"}, [&](int32_t i) {
        const auto ids = config.integers("hybrid_layer_ids", 0);
        return std::find(ids.begin(), ids.end(), i) != ids.end() ? "hybrid" : "mamba";
      });
  size_t uses = 0;
  for (int32_t i = 0; i < sizes.layers; ++i) {
    LayerSpec layer = mixer_layer(ssm, norm);
    if (types[static_cast<size_t>(i)] == "hybrid") {
      int32_t& home = homes[uses % homes.size()];
      shared.use = static_cast<int32_t>(uses++);
      shared.from = home;
      if (home < 0) home = i;
      layer.shared = shared;
    }
    spec.layers.push_back(std::move(layer));
  }
  if (uses > kMostUses) config.refuse("layers_block_type", fmt::format("at most {} uses are built", kMostUses));
  spec.final_norm = norm;
}

#define MAMBA(slot, rest, ...)                                                             \
  {"blk.{}." slot, "model.layers.{}.mamba." rest __VA_OPT__(, ) __VA_ARGS__}, {            \
    "blk.{}." slot, "model.layers.{}.mamba_decoder.mamba." rest __VA_OPT__(, ) __VA_ARGS__ \
  }
#define SHARED "model.layers.{}.shared_transformer."
#define USE(k)                                                                           \
  {"blk.{}.shared_low." #k, SHARED "feed_forward.gate_up_proj_adapter_list." #k ".0"}, { \
    "blk.{}.shared_high." #k, SHARED "feed_forward.gate_up_proj_adapter_list." #k ".1"   \
  }

constexpr TensorName kZamba2Names[] = {
    {"output_norm", "model.final_layernorm"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_norm", "model.layers.{}.mamba_decoder.input_layernorm"},
    MAMBA("ssm_in", "in_proj"),
    MAMBA("ssm_conv1d", "conv1d"),
    MAMBA("ssm_conv1d_b", "conv1d.bias", Take::whole, true),
    MAMBA("ssm_dt_b", "dt_bias", Take::whole, true),
    MAMBA("ssm_a", "A_log", Take::whole, true, false, Change::minus_exp),
    MAMBA("ssm_d", "D", Take::whole, true),
    MAMBA("ssm_norm", "norm"),
    MAMBA("ssm_out", "out_proj"),
    {"blk.{}.shared_out", "model.layers.{}.linear"},
    {"blk.{}.shared_norm", SHARED "input_layernorm"},
    {"blk.{}.shared_q", SHARED "self_attn.q_proj"},
    {"blk.{}.shared_k", SHARED "self_attn.k_proj"},
    {"blk.{}.shared_v", SHARED "self_attn.v_proj"},
    {"blk.{}.shared_output", SHARED "self_attn.o_proj"},
    {"blk.{}.shared_ffn_norm", SHARED "pre_ff_layernorm"},
    {"blk.{}.shared_ffn_up", SHARED "feed_forward.gate_up_proj"},
    {"blk.{}.shared_ffn_down", SHARED "feed_forward.down_proj"},
    USE(0),
    USE(1),
    USE(2),
    USE(3),
    USE(4),
    USE(5),
    USE(6),
    USE(7),
    USE(8),
    USE(9),
    USE(10),
    USE(11),
    USE(12),
    USE(13),
    USE(14),
    USE(15),
    USE(16),
    USE(17),
    USE(18),
    USE(19),
    USE(20),
    USE(21),
    USE(22),
    USE(23),
    USE(24),
    USE(25),
    USE(26),
    USE(27),
    USE(28),
    USE(29),
    USE(30),
    USE(31),
};

#undef USE
#undef SHARED
#undef MAMBA

}  // namespace

extern const Architecture kZamba2 = {.name = "zamba2", .describe = describe_zamba2, .names = kZamba2Names};

}  // namespace millrace
