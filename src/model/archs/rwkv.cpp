#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// RWKV 4. A layer of the file is two of ours. Halving of weights every few layers, which is for 16 bits, is left out.
void describe_rwkv(Config& config, ModelSpec& spec) {
  const int32_t context = config.count("context_length", 1024);
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50277,
                                  .width = 4096,
                                  .ffn = 4 * config.count("hidden_size", 4096),
                                  .layers = 32,
                                  .heads = 1,
                                  .context = context,
                                  .kv_heads_key = false,
                                  .head_dim_key = false});
  const NormSpec norm = layer_norm(config, "layer_norm_epsilon", 1e-5);
  const TimeMixSpec time = {.width = sizes.width,
                            .inner = config.is_null("attention_hidden_size")
                                         ? sizes.width
                                         : config.count("attention_hidden_size", sizes.width)};
  const ChannelMixSpec channel = {.width = sizes.width, .inner = sizes.ffn};
  for (int32_t i = 0; i < sizes.layers; ++i) {
    LayerSpec first = mixer_layer(time, norm), second = mixer_layer(channel, norm);
    first.number = second.number = i;
    second.second = true;
    spec.layers.push_back(std::move(first));
    spec.layers.push_back(std::move(second));
  }
  spec.embed_norm = norm;
  spec.final_norm = norm;
}

constexpr TensorName kRwkvNames[] = {
    {"token_embd", "rwkv.embeddings"},
    {"token_embd_norm", "rwkv.blocks.0.pre_ln"},
    {"output_norm", "rwkv.ln_out"},
    {"output", "head"},
    {"blk.{}.attn_norm", "rwkv.blocks.{}.ln1"},
    {"blk.{}.ffn_norm", "rwkv.blocks.{}.ln2"},
    {"blk.{}.time_mix_key_share", "rwkv.blocks.{}.attention.time_mix_key", Take::whole, true},
    {"blk.{}.time_mix_value_share", "rwkv.blocks.{}.attention.time_mix_value", Take::whole, true},
    {"blk.{}.time_mix_receptance_share", "rwkv.blocks.{}.attention.time_mix_receptance", Take::whole, true},
    {"blk.{}.time_mix_decay", "rwkv.blocks.{}.attention.time_decay", Take::whole, true, false, Change::minus_exp},
    {"blk.{}.time_mix_first", "rwkv.blocks.{}.attention.time_first", Take::whole, true},
    {"blk.{}.time_mix_key", "rwkv.blocks.{}.attention.key"},
    {"blk.{}.time_mix_value", "rwkv.blocks.{}.attention.value"},
    {"blk.{}.time_mix_receptance", "rwkv.blocks.{}.attention.receptance"},
    {"blk.{}.time_mix_output", "rwkv.blocks.{}.attention.output"},
    {"blk.{}.channel_mix_key_share", "rwkv.blocks.{}.feed_forward.time_mix_key", Take::whole, true},
    {"blk.{}.channel_mix_receptance_share", "rwkv.blocks.{}.feed_forward.time_mix_receptance", Take::whole, true},
    {"blk.{}.channel_mix_key", "rwkv.blocks.{}.feed_forward.key"},
    {"blk.{}.channel_mix_receptance", "rwkv.blocks.{}.feed_forward.receptance"},
    {"blk.{}.channel_mix_value", "rwkv.blocks.{}.feed_forward.value"},
};

}  // namespace

extern const Architecture kRwkv = {.name = "rwkv", .describe = describe_rwkv, .names = kRwkvNames};

}  // namespace millrace
