// What describe() functions share: reading the sizes every model has, and the usual shapes of attention, feed-forward
// part and layer. Defaults are those of Hugging Face's configuration classes, since real files leave out what equals
// them.
#pragma once

#include <functional>
#include <vector>

#include "model/architecture.h"
#include "model/rope.h"

namespace millrace {

struct Sizes {
  int32_t vocab = 0, width = 0, ffn = 0, layers = 0, heads = 0;
  int32_t kv_heads = 0;  // 0: as many as heads
  int32_t head_dim = 0;  // 0: width / heads
  int32_t context = 2048;
  bool tied = false;
  bool kv_heads_key = true;  // whether the architecture reads num_key_value_heads
  bool head_dim_key = true;  // and head_dim
};

// The configuration's sizes, `usual` where it has none. Fills vocab, width, context and tied of the spec.
Sizes read_sizes(Config& config, ModelSpec& spec, Sizes usual);

NormSpec rms_norm(Config& config, std::string_view key, double usual);
NormSpec layer_norm(Config& config, std::string_view key, double usual, bool bias = true);
Activation activation(Config& config, std::string_view key, std::string_view usual);
GqaSpec attention(const Sizes& sizes);  // scale 1 / sqrt(head_dim), no rotation
DenseSpec gated_ffn(Config& config, const Sizes& sizes, std::string_view key = "hidden_act",
                    std::string_view usual = "silu");
DenseSpec plain_ffn(Config& config, const Sizes& sizes, std::string_view key, std::string_view usual);
LayerSpec pre_norm_layer(GqaSpec gqa, FfnSpec ffn, NormSpec norm);
// Experts with the numbers of the configuration, `usual` where it has none; the router is the architecture's own.
MoeSpec mixture(Config& config, const MoeSpec& usual, std::string_view width_key = "moe_intermediate_size");
// DeepSeek's router and its relatives': sigmoid scores, a bias where experts are chosen, groups by their best two.
RouterSpec grouped_router(Config& config);
std::vector<float> alibi_slopes(int32_t heads);

// Whether the model ends in a classifier of whole texts ("architectures" says so), and how many labels it has.
bool is_classifier(Config& config);
int32_t labels_of(Config& config);

// Which layers see a window only: layer_types if the configuration has them, else `otherwise` of the layer's index.
std::vector<bool> sliding_layers(Config& config, int32_t layers, const std::function<bool(int32_t)>& otherwise);

}  // namespace millrace
