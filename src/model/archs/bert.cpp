// Encoders that normalise after each half: BERT, RoBERTa and XLM-R, whose positions are learned, and NomicBERT, which
// turns instead and has gates.
#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

constexpr Sizes kUsual = {.vocab = 30522,
                          .width = 768,
                          .ffn = 3072,
                          .layers = 12,
                          .heads = 12,
                          .context = 512,
                          .tied = true,
                          .kv_heads_key = false,
                          .head_dim_key = false};

void encoder_layers(ModelSpec& spec, const Sizes& sizes, GqaSpec gqa, const DenseSpec& ffn, const NormSpec& norm) {
  gqa.causal = false;
  spec.layers.assign(static_cast<size_t>(sizes.layers),
                     {.mixer = gqa, .ffn = ffn, .mixer_post_norm = norm, .ffn_post_norm = norm, .stream_norms = true});
  spec.embed_norm = norm;
}

// The classifier: a square product with tanh, and one with a row for each label.
void begin_encoder(Config& config, ModelSpec& spec) {
  spec.head = false;
  spec.tied = true;
  spec.pool = PoolSpec{.pooling = Pooling::mean};
  if (!is_classifier(config)) return;
  spec.pool->pooling = Pooling::first;
  spec.pool->scores = true;
  spec.pool->projections = {{.outputs = spec.width, .tanh = true}, {.outputs = labels_of(config)}};
}

// `offset`: positions count from there.
void describe_learned(Config& config, ModelSpec& spec, int32_t offset) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  if (config.flag("is_decoder", false)) config.refuse("is_decoder", "only encoders are built");
  if (const std::string kind = config.text("position_embedding_type", "absolute"); kind != "absolute")
    config.refuse("position_embedding_type", "only learned positions (absolute) are built");
  const NormSpec norm = layer_norm(config, "layer_norm_eps", 1e-12);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = true;
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu");
  ffn.up_bias = ffn.down_bias = true;
  encoder_layers(spec, sizes, gqa, ffn, norm);
  spec.positions = sizes.context;
  spec.position_offset = offset;
  if (sizes.context <= offset)
    config.fail(error(Code::invalid, "{} positions, of which the first {} are never used", sizes.context, offset));
  spec.context = sizes.context - offset;
  spec.token_types = config.count_or_none("type_vocab_size", 2);
  begin_encoder(config, spec);
}

void describe_bert(Config& config, ModelSpec& spec) { describe_learned(config, spec, 0); }

// Positions count from the one after padding's.
void describe_roberta(Config& config, ModelSpec& spec) {
  describe_learned(config, spec, config.count_or_none("pad_token_id", 1) + 1);
}

void describe_nomic(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  for (std::string_view key : {"prenorm", "causal", "parallel_block", "use_rms_norm"})
    if (config.flag(key, false)) config.refuse(key, "only norms after each half, without causality, are built");
  if (config.number("num_experts", 0) > 0) config.refuse("num_experts", "encoders with experts are not built");
  const std::string eps = config.has("layer_norm_epsilon") ? "layer_norm_epsilon" : "layer_norm_eps";
  const NormSpec norm = layer_norm(config, eps, 1e-12);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("qkv_proj_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1000});
  if (config.text("hidden_act", "silu") == "swiglu") config.set("hidden_act", "silu");
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = config.flag("mlp_fc1_bias", false);
  ffn.down_bias = config.flag("mlp_fc2_bias", false);
  encoder_layers(spec, sizes, gqa, ffn, norm);
  spec.token_types = config.count_or_none("type_vocab_size", 2);
  begin_encoder(config, spec);
}

// RoBERTa's have "roberta." in front, and a classifier of other names.
constexpr TensorName kBertNames[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"token_types", "bert.embeddings.token_type_embeddings"},
    {"position_embd", "bert.embeddings.position_embeddings"},
    {"token_embd_norm", "bert.embeddings.LayerNorm"},
    {"blk.{}.attn_q", "bert.encoder.layer.{}.attention.self.query"},
    {"blk.{}.attn_k", "bert.encoder.layer.{}.attention.self.key"},
    {"blk.{}.attn_v", "bert.encoder.layer.{}.attention.self.value"},
    {"blk.{}.attn_output", "bert.encoder.layer.{}.attention.output.dense"},
    {"blk.{}.post_attention_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"},
    {"blk.{}.ffn_up", "bert.encoder.layer.{}.intermediate.dense"},
    {"blk.{}.ffn_down", "bert.encoder.layer.{}.output.dense"},
    {"blk.{}.post_ffw_norm", "bert.encoder.layer.{}.output.LayerNorm"},
    {"cls.0", "classifier.dense"},
    {"cls.0", "bert.pooler.dense"},
    {"cls.1", "classifier.out_proj"},
    {"cls.1", "classifier"},
};

constexpr TensorName kNomicNames[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"token_types", "bert.embeddings.token_type_embeddings"},
    {"token_embd_norm", "bert.emb_ln"},
    {"blk.{}.attn_q", "bert.encoder.layers.{}.attn.Wqkv", Take::q},
    {"blk.{}.attn_k", "bert.encoder.layers.{}.attn.Wqkv", Take::k},
    {"blk.{}.attn_v", "bert.encoder.layers.{}.attn.Wqkv", Take::v},
    {"blk.{}.attn_output", "bert.encoder.layers.{}.attn.out_proj"},
    {"blk.{}.post_attention_norm", "bert.encoder.layers.{}.norm1"},
    {"blk.{}.ffn_gate", "bert.encoder.layers.{}.mlp.fc12"},
    {"blk.{}.ffn_up", "bert.encoder.layers.{}.mlp.fc11"},
    {"blk.{}.ffn_down", "bert.encoder.layers.{}.mlp.fc2"},
    {"blk.{}.post_ffw_norm", "bert.encoder.layers.{}.norm2"},
    {"cls.0", "bert.pooler.dense"},
    {"cls.1", "classifier"},
};

constexpr TensorName kBertGgufNames[] = {
    {"blk.{}.post_attention_norm", "blk.{}.attn_output_norm"},
    {"blk.{}.post_ffw_norm", "blk.{}.layer_output_norm"},
    {"cls.0", "cls"},
    {"cls.1", "cls.output"},
};

}  // namespace

extern const Architecture kBert = {.name = "bert",
                                   .describe = describe_bert,
                                   .names = kBertNames,
                                   .gguf = {.name = "bert", .biased = true, .names = kBertGgufNames}};
extern const Architecture kRoberta = {.name = "roberta", .describe = describe_roberta, .names = kBertNames};
extern const Architecture kXlmRoberta = {.name = "xlm-roberta", .describe = describe_roberta, .names = kBertNames};
extern const Architecture kNomicBert = {.name = "nomic_bert",
                                        .describe = describe_nomic,
                                        .names = kNomicNames,
                                        .gguf = {.name = "nomic-bert", .names = kBertGgufNames}};

}  // namespace millrace
