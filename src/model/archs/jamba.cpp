#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// Mamba layers with norms of their own inside, attention without rotation in some, experts in some others.
void describe_jamba(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 65536, .width = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 262144});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  const GqaSpec gqa = attention(sizes);
  SsmSpec ssm;
  const double inner = config.positive("mamba_expand", 2) * sizes.width;
  ssm.inner = inner < 1e9 ? static_cast<int32_t>(inner) : 0;
  ssm.state = config.count("mamba_d_state", 16);
  ssm.conv = config.count("mamba_d_conv", 4);
  const Json* rank = find(config.values(), "mamba_dt_rank");
  const bool worked_out = rank == nullptr || rank->is_string();
  ssm.rank = worked_out ? (sizes.width + 15) / 16 : config.count("mamba_dt_rank", 1);
  ssm.bias = config.flag("mamba_proj_bias", false);
  ssm.conv_bias = config.flag("mamba_conv_bias", true);
  ssm.part_norm = norm;
  const MoeSpec moe = mixture(config, {.experts = 16, .chosen = 2, .width = sizes.ffn}, "intermediate_size");
  const DenseSpec dense = gated_ffn(config, sizes);
  const int32_t attends = config.count("attn_layer_period", 8),
                attends_at = config.count_or_none("attn_layer_offset", 4);
  const int32_t mixes = config.count("expert_layer_period", 2),
                mixes_at = config.count_or_none("expert_layer_offset", 1);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const FfnSpec ffn = i % mixes == mixes_at && moe.experts > 1 ? FfnSpec(moe) : FfnSpec(dense);
    spec.layers.push_back(i % attends == attends_at ? mixed_layer(gqa, ffn, norm) : mixed_layer(ssm, ffn, norm));
  }
  spec.final_norm = norm;
}

}  // namespace

extern const Architecture kJamba = {.name = "jamba",
                                    .describe = describe_jamba,
                                    .names = hybrid_names(),
                                    .gguf = {.name = "jamba", .names = state_gguf_names()}};

}  // namespace millrace
