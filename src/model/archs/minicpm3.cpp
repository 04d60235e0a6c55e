#include <cmath>

#include "model/archs/list.h"
#include "model/archs/mla.h"
#include "model/rope.h"

namespace millrace {

MlaSpec latent_attention(Config& config, ModelSpec& spec, const Sizes& sizes, const LatentSizes& usual,
                         bool neighbours) {
  MlaSpec mla = {.heads = sizes.heads,
                 .q_rank = config.count_or_none("q_lora_rank", usual.q_rank),
                 .kv_rank = config.count("kv_lora_rank", usual.kv_rank),
                 .nope_dim = config.count("qk_nope_head_dim", usual.nope_dim),
                 .rope_dim = config.count("qk_rope_head_dim", usual.rope_dim),
                 .v_dim = config.count("v_head_dim", usual.v_dim),
                 .norm = {.kind = NormKind::rms, .epsilon = 1e-6f}};
  if (config.flag("attention_bias", false)) config.refuse("attention_bias", "latent attention has none");
  mla.rope = add_rope(config, spec, {.head_dim = mla.rope_dim, .neighbours = neighbours});
  double scale = 1 / std::sqrt(static_cast<double>(mla.nope_dim) + mla.rope_dim);
  if (mla.rope >= 0) {
    const RopeOrigin& origin = spec.ropes[static_cast<size_t>(mla.rope)].origin;
    if (origin.mscale_all != 0) scale *= std::pow(yarn_magnitude(origin.factor, origin.mscale_all), 2);
  }
  mla.scale = static_cast<float>(scale);
  return mla;
}

namespace {

// Latent attention in a dense model, with multipliers on embeddings, residuals and logits.
void describe_minicpm3(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 73448, .width = 2560, .ffn = 6400, .layers = 62, .heads = 40, .head_dim = 64, .context = 32768});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  const MlaSpec mla = latent_attention(
      config, spec, sizes, {.q_rank = 768, .kv_rank = 256, .nope_dim = 64, .rope_dim = 32, .v_dim = 64}, false);
  LayerSpec layer = {.mixer = mla, .ffn = gated_ffn(config, sizes), .mixer_norm = norm, .ffn_norm = norm};
  layer.residual_scale =
      static_cast<float>(config.number("scale_depth", 1.4) / std::sqrt(static_cast<double>(sizes.layers)));
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
  spec.embed_scale = static_cast<float>(config.number("scale_emb", 12));
  spec.logit_scale = static_cast<float>(config.positive("dim_model_base", 256) / sizes.width);
}

}  // namespace

extern const Architecture kMiniCpm3 = {.name = "minicpm3", .describe = describe_minicpm3, .gguf = {.name = "minicpm3"}};

}  // namespace millrace
