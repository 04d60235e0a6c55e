// What describe() functions of recurrent and hybrid models share: Mamba layers under the names of their configurations.
#pragma once

#include "model/archs/common.h"

namespace millrace {

std::span<const TensorName> state_gguf_names();  // of layers with states in GGUF files

// Keys of a configuration that say what a Mamba 2 layer is, and what is meant where it has none.
struct Mamba2Keys {
  std::string_view heads = "mamba_n_heads", head_dim = "mamba_d_head", state = "mamba_d_state", conv = "mamba_d_conv";
  std::string_view groups = "mamba_n_groups", expand = "mamba_expand";
  std::string_view bias = "mamba_proj_bias", conv_bias = "mamba_conv_bias";
  int32_t usual_heads = 128, usual_state = 128, usual_groups = 1;
};
// Channels are expand * width, in heads; the norm is the architecture's own.
SsmSpec mamba2_mixer(Config& config, const Sizes& sizes, const Mamba2Keys& keys);

// A layer with norms before both halves, whatever its mixer.
LayerSpec mixed_layer(MixerSpec mixer, FfnSpec ffn, NormSpec norm);
// A layer of one half.
LayerSpec mixer_layer(MixerSpec mixer, NormSpec norm);
LayerSpec ffn_layer(FfnSpec ffn, NormSpec norm);

// layer_types, or the types that `otherwise` gives for each index; each is one of `known`.
std::vector<std::string> layer_types(Config& config, std::string_view key, int32_t layers,
                                     const std::vector<std::string_view>& known,
                                     const std::function<std::string(int32_t)>& otherwise);

}  // namespace millrace
