#include <algorithm>
#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {

namespace {

// One of two limits: a number, or an infinity in any of the ways that files have for it (0: no limit).
float limit_of(const Json& value) {
  if (!value.is_number()) return 0;
  const double number = value.to_number<double>();
  return std::isfinite(number) && number < 1e30 ? static_cast<float>(number) : 0;
}

void read_step_limits(Config& config, SsmSpec& ssm) {
  const Json* limits = find(config.values(), "time_step_limit");
  if (limits == nullptr) return;
  const auto* both = limits->if_array();
  if (both == nullptr || both->size() != 2) return config.refuse("time_step_limit", "expected two numbers");
  ssm.least_step = limit_of((*both)[0]);
  ssm.most_step = limit_of((*both)[1]);
}

}  // namespace

SsmSpec mamba2_mixer(Config& config, const Sizes& sizes, const Mamba2Keys& keys) {
  SsmSpec ssm;
  ssm.heads = config.count(keys.heads, keys.usual_heads);
  ssm.state = config.count(keys.state, keys.usual_state);
  ssm.conv = config.count(keys.conv, 4);
  ssm.groups = config.count(keys.groups, keys.usual_groups);
  const double inner = config.positive(keys.expand, 2) * sizes.width;
  ssm.inner = static_cast<int32_t>(std::min(inner, 1e9));
  const Json* dim = find(config.values(), keys.head_dim);
  if (dim != nullptr && !dim->is_string()) {
    const int64_t given = int64_t{config.count(keys.head_dim, 64)} * ssm.heads;
    ssm.inner = static_cast<int32_t>(std::min<int64_t>(given, 1 << 30));
  }
  ssm.bias = config.flag(keys.bias, false);
  ssm.conv_bias = config.flag(keys.conv_bias, true);
  read_step_limits(config, ssm);
  return ssm;
}

LayerSpec mixed_layer(MixerSpec mixer, FfnSpec ffn, NormSpec norm) {
  return {.mixer = std::move(mixer), .ffn = std::move(ffn), .mixer_norm = norm, .ffn_norm = norm};
}

LayerSpec mixer_layer(MixerSpec mixer, NormSpec norm) {
  return {.mixer = std::move(mixer), .ffn = NoFfn{}, .mixer_norm = norm};
}

LayerSpec ffn_layer(FfnSpec ffn, NormSpec norm) {
  return {.mixer = NoMixer{}, .ffn = std::move(ffn), .ffn_norm = norm};
}

std::vector<std::string> layer_types(Config& config, std::string_view key, int32_t layers,
                                     const std::vector<std::string_view>& known,
                                     const std::function<std::string(int32_t)>& otherwise) {
  std::vector<std::string> types = config.texts(key, static_cast<size_t>(layers));
  for (int32_t i = 0; types.size() < static_cast<size_t>(layers); ++i) types.push_back(otherwise(i));
  for (const std::string& type : types) {
    if (std::find(known.begin(), known.end(), type) == known.end())
      config.refuse(key, fmt::format("'{}' is no type of layer that is built", type));
  }
  return types;
}

namespace {

constexpr int32_t kNoLimit = 1 << 20;  // of the context: a state has none

Sizes read_mamba_sizes(Config& config, ModelSpec& spec, bool tied) {
  return read_sizes(config, spec,
                    {.vocab = 50280,
                     .width = 768,
                     .ffn = 1536,
                     .layers = 32,
                     .heads = 1,
                     .context = kNoLimit,
                     .tied = tied,
                     .kv_heads_key = false,
                     .head_dim_key = false});
}

// Every channel has its own steps; no attention, no feed-forward part.
void describe_first(Config& config, ModelSpec& spec, const std::optional<NormSpec>& part_norm) {
  const Sizes sizes = read_mamba_sizes(config, spec, true);
  SsmSpec ssm;
  const double inner = config.positive("expand", 2) * sizes.width;
  ssm.inner = config.count("intermediate_size", static_cast<int64_t>(std::min(inner, 1e9)));
  ssm.state = config.count("state_size", 16);
  ssm.conv = config.count("conv_kernel", 4);
  const Json* rank = find(config.values(), "time_step_rank");
  const bool worked_out = rank == nullptr || rank->is_string();
  ssm.rank = worked_out ? (sizes.width + 15) / 16 : config.count("time_step_rank", 1);
  ssm.bias = config.flag("use_bias", false);
  ssm.conv_bias = config.flag("use_conv_bias", true);
  ssm.part_norm = part_norm;
  const NormSpec norm = rms_norm(config, "layer_norm_epsilon", 1e-5);
  spec.layers.assign(static_cast<size_t>(sizes.layers), mixer_layer(ssm, norm));
  spec.final_norm = norm;
}

void describe_mamba(Config& config, ModelSpec& spec) { describe_first(config, spec, std::nullopt); }

void describe_falcon_mamba(Config& config, ModelSpec& spec) {
  NormSpec norm = rms_norm(config, "mixer_rms_eps", 1e-6);
  norm.weight = false;
  describe_first(config, spec, norm);
}

void describe_mamba2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_mamba_sizes(config, spec, false);
  SsmSpec ssm = mamba2_mixer(config, sizes,
                             {.heads = "num_heads",
                              .head_dim = "head_dim",
                              .state = "state_size",
                              .conv = "conv_kernel",
                              .groups = "n_groups",
                              .expand = "expand",
                              .bias = "use_bias",
                              .conv_bias = "use_conv_bias",
                              .usual_groups = 8});
  const NormSpec norm = rms_norm(config, "layer_norm_epsilon", 1e-5);
  ssm.norm = norm;
  spec.layers.assign(static_cast<size_t>(sizes.layers), mixer_layer(ssm, norm));
  spec.final_norm = norm;
}

constexpr TensorName kMambaNames[] = {
    {"token_embd", "backbone.embeddings"},
    {"token_embd", "backbone.embedding"},
    {"output_norm", "backbone.norm_f"},
    {"blk.{}.attn_norm", "backbone.layers.{}.norm"},
    {"blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"},
    {"blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"},
    {"blk.{}.ssm_conv1d_b", "backbone.layers.{}.mixer.conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_x", "backbone.layers.{}.mixer.x_proj"},
    {"blk.{}.ssm_dt", "backbone.layers.{}.mixer.dt_proj"},
    {"blk.{}.ssm_dt_b", "backbone.layers.{}.mixer.dt_bias", Take::whole, true},
    {"blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log", Take::whole, true, false, Change::minus_exp},
    {"blk.{}.ssm_d", "backbone.layers.{}.mixer.D", Take::whole, true},
    {"blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm"},
    {"blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"},
};

constexpr TensorName kMambaGgufNames[] = {
    {"blk.{}.ssm_conv1d_b", "blk.{}.ssm_conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_dt_b", "blk.{}.ssm_dt.bias", Take::whole, true},
    {"blk.{}.ssm_a", "blk.{}.ssm_a", Take::whole, true},
    {"blk.{}.ssm_d", "blk.{}.ssm_d", Take::whole, true},
};

}  // namespace

std::span<const TensorName> state_gguf_names() { return kMambaGgufNames; }

extern const Architecture kMamba = {.name = "mamba",
                                    .describe = describe_mamba,
                                    .names = kMambaNames,
                                    .gguf = {.name = "mamba", .names = kMambaGgufNames}};
extern const Architecture kFalconMamba = {.name = "falcon_mamba",
                                          .describe = describe_falcon_mamba,
                                          .names = kMambaNames,
                                          .gguf = {.name = "mamba", .names = kMambaGgufNames}};
extern const Architecture kMamba2 = {.name = "mamba2",
                                     .describe = describe_mamba2,
                                     .names = kMambaNames,
                                     .gguf = {.name = "mamba2", .names = kMambaGgufNames}};

}  // namespace millrace
