#include "model/slots.h"

namespace millrace {
namespace {

// The slots of one spec, each with its place.
class Walk {
 public:
  Walk(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit)
      : spec_(spec), weights_(weights), visit_(visit) {}

  void run() {
    weights_.layers.resize(spec_.layers.size());
    const int64_t vocab = spec_.vocab, width = spec_.width, table = spec_.head_width();
    matrix("token_embd", vocab, table, weights_.embedding,
           {.use = spec_.tied ? WeightUse::table_and_linear : WeightUse::table, .shard = Shard::vocab});
    if (spec_.positions > 0)
      matrix("position_embd", spec_.positions, width, weights_.positions, {.use = WeightUse::table});
    norm("token_embd_norm", width, spec_.embed_norm, weights_.embed_norm);
    if (spec_.embed_width > 0) matrix("project_in", width, table, weights_.project_in, {});
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      layer_ = static_cast<int32_t>(i);
      layer(spec_.layers[i], weights_.layers[i]);
    }
    layer_ = -1;
    norm("output_norm", width, spec_.final_norm, weights_.final_norm);
    if (spec_.embed_width > 0) matrix("project_out", table, width, weights_.project_out, {});
    if (!spec_.tied) matrix("output", vocab, table, weights_.head, {.bias = spec_.head_bias, .shard = Shard::vocab});
    if (spec_.tied && spec_.head_bias)
      emit({.name = "output", .rows = vocab, .cols = table, .weight = false, .bias = true}, weights_.head);
  }

 private:
  struct Traits {
    bool bias = false;
    WeightUse use = WeightUse::linear;
    Shard shard = Shard::none;
    int32_t heads = 0;
  };

  std::string named(std::string_view stem) const {
    return layer_ < 0 ? std::string(stem) : fmt::format("blk.{}.{}", layer_, stem);
  }

  void emit(const Slot& slot, Weight& place) { visit_(slot, &place, nullptr); }

  void matrix(std::string_view stem, int64_t rows, int64_t cols, Weight& place, const Traits& traits) {
    emit({.name = named(stem),
          .layer = layer_,
          .rows = rows,
          .cols = cols,
          .bias = traits.bias,
          .use = traits.use,
          .shard = traits.shard,
          .heads = traits.heads},
         place);
  }

  void norm(std::string_view stem, int64_t width, const std::optional<NormSpec>& spec, Norm& place, int32_t heads = 0) {
    if (!spec) return;
    place = {.kind = spec->kind, .epsilon = spec->epsilon, .width = width};
    if (!spec->weight && !spec->bias) return;
    visit_({.name = named(stem),
            .kind = SlotKind::norm,
            .layer = layer_,
            .rows = 1,
            .cols = width,
            .weight = spec->weight,
            .bias = spec->bias,
            .heads = heads},
           nullptr, &place);
  }

  void layer(const LayerSpec& spec, LayerWeights& weights) {
    norm("attn_norm", spec_.width, spec.mixer_norm, weights.mixer_norm);
    if (const auto* mla = std::get_if<MlaSpec>(&spec.mixer)) {
      mixer(*mla, weights.mixer.emplace<MlaWeights>());
    } else {
      mixer(std::get<GqaSpec>(spec.mixer), std::get<GqaWeights>(weights.mixer));
    }
    norm("post_attention_norm", spec_.width, spec.mixer_post_norm, weights.mixer_post_norm);
    norm("ffn_norm", spec_.width, spec.ffn_norm, weights.ffn_norm);
    if (const auto* moe = std::get_if<MoeSpec>(&spec.ffn)) {
      ffn(*moe, weights.ffn.emplace<MoeWeights>());
    } else {
      ffn(std::get<DenseSpec>(spec.ffn), std::get<DenseWeights>(weights.ffn));
    }
    norm("post_ffw_norm", spec_.width, spec.ffn_post_norm, weights.ffn_post_norm);
  }

  void mixer(const GqaSpec& gqa, GqaWeights& weights) {
    const int64_t q = int64_t{gqa.heads} * gqa.head_dim, kv = int64_t{gqa.kv_heads} * gqa.head_dim;
    const Traits inner = {.bias = gqa.qkv_bias, .shard = Shard::rows};
    matrix("attn_q", q, spec_.width, weights.q, {.bias = inner.bias, .shard = Shard::rows, .heads = gqa.heads});
    if (gqa.kv_from < 0) {
      matrix("attn_k", kv, spec_.width, weights.k, {.bias = inner.bias, .shard = Shard::rows, .heads = gqa.kv_heads});
      matrix("attn_v", kv, spec_.width, weights.v, inner);
    }
    const bool shared = gqa.qk_norm_per_head && !gqa.qk_norm_whole_weight;  // one weight for all heads
    norm("attn_q_norm", shared ? gqa.head_dim : q, gqa.qk_norm, weights.q_norm, gqa.heads);
    if (gqa.kv_from < 0) norm("attn_k_norm", shared ? gqa.head_dim : kv, gqa.qk_norm, weights.k_norm, gqa.kv_heads);
    norm("attn_sub_norm", q, gqa.out_norm, weights.out_norm);
    matrix("attn_output", spec_.width, q, weights.out, {.bias = gqa.out_bias, .shard = Shard::cols});
  }

  void ffn(const DenseSpec& dense, DenseWeights& weights) {
    const Traits inner = {.bias = dense.up_bias, .shard = Shard::rows};
    if (dense.gated) matrix("ffn_gate", dense.width, spec_.width, weights.gate, inner);
    matrix("ffn_up", dense.width, spec_.width, weights.up, inner);
    norm("ffn_sub_norm", dense.width, dense.inner_norm, weights.inner_norm);
    matrix("ffn_down", spec_.width, dense.width, weights.down, {.bias = dense.down_bias, .shard = Shard::cols});
  }

  void mixer(const MlaSpec& mla, MlaWeights& weights) {
    const int64_t heads = mla.heads, source = mla.q_rank > 0 ? mla.q_rank : spec_.width;
    if (mla.q_rank > 0) {
      matrix("attn_q_a", mla.q_rank, spec_.width, weights.q_down, {});
      norm("attn_q_a_norm", mla.q_rank, mla.norm, weights.q_norm);
    }
    matrix("attn_q_nope", heads * mla.nope_dim, source, weights.q_nope, {.shard = Shard::rows, .heads = mla.heads});
    matrix("attn_q_rope", heads * mla.rope_dim, source, weights.q_rope, {.shard = Shard::rows, .heads = mla.heads});
    matrix("attn_kv_a_mqa", mla.kv_rank + mla.rope_dim, spec_.width, weights.kv_down, {});
    norm("attn_kv_a_norm", mla.kv_rank, mla.norm, weights.kv_norm);
    matrix("attn_k_b", heads * mla.kv_rank, mla.nope_dim, weights.k_up, {.shard = Shard::rows});
    matrix("attn_v_b", heads * mla.v_dim, mla.kv_rank, weights.v_up, {.shard = Shard::rows});
    matrix("attn_output", spec_.width, heads * mla.v_dim, weights.out, {.shard = Shard::cols});
  }

  void ffn(const MoeSpec& moe, MoeWeights& weights) {
    const int64_t experts = moe.experts, width = spec_.width;
    matrix("ffn_gate_inp", experts, width, weights.router, {});
    matrix("ffn_gate_exps", experts * moe.width, width, weights.gate, {.shard = Shard::rows});
    matrix("ffn_up_exps", experts * moe.width, width, weights.up, {.shard = Shard::rows});
    matrix("ffn_down_exps", experts * width, moe.width, weights.down, {.shard = Shard::cols});
    if (moe.shared_width == 0) return;
    matrix("ffn_gate_shexp", moe.shared_width, width, weights.shared_gate, {.shard = Shard::rows});
    matrix("ffn_up_shexp", moe.shared_width, width, weights.shared_up, {.shard = Shard::rows});
    matrix("ffn_down_shexp", width, moe.shared_width, weights.shared_down, {.shard = Shard::cols});
  }

  const ModelSpec& spec_;
  ModelWeights& weights_;
  const SlotVisitor& visit_;
  int32_t layer_ = -1;
};

}  // namespace

void visit_slots(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit) {
  Walk(spec, weights, visit).run();
}

std::vector<Slot> slots(const ModelSpec& spec) {
  std::vector<Slot> all;
  ModelWeights places;
  visit_slots(spec, places, [&](const Slot& slot, Weight*, Norm*) { all.push_back(slot); });
  return all;
}

int64_t parameters(const ModelSpec& spec) {
  int64_t total = 0;
  for (const Slot& slot : slots(spec)) total += slot.values();
  return total;
}

}  // namespace millrace
