#include "model/slots.h"

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

void visit_layer(SlotWalk& walk, const LayerSpec& spec, LayerWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.norm("attn_norm", width, spec.mixer_norm, weights.mixer_norm);
  visit_mixer(walk, spec.mixer, weights.mixer);
  walk.norm("post_attention_norm", width, spec.mixer_post_norm, weights.mixer_post_norm);
  walk.norm("ffn_norm", width, spec.ffn_norm, weights.ffn_norm);
  visit_ffn(walk, spec.ffn, weights.ffn);
  walk.norm("post_ffw_norm", width, spec.ffn_post_norm, weights.ffn_post_norm);
}

}  // namespace

std::string SlotWalk::named(std::string_view stem) const {
  return layer_ < 0 ? std::string(stem) : fmt::format("blk.{}.{}", layer_, stem);
}

void SlotWalk::matrix(std::string_view stem, int64_t rows, int64_t cols, Weight& place, const Traits& traits) {
  visit_({.name = named(stem),
          .layer = layer_,
          .rows = rows,
          .cols = cols,
          .bias = traits.bias,
          .use = traits.use,
          .shard = traits.shard,
          .heads = traits.heads,
          .experts = traits.experts,
          .float32 = traits.float32},
         {.matrix = &place});
}

void SlotWalk::norm(std::string_view stem, int64_t width, const std::optional<NormSpec>& spec, Norm& place,
                    int32_t heads) {
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
         {.norm = &place});
}

void SlotWalk::vector(std::string_view stem, int64_t size, const float*& place) {
  visit_({.name = named(stem), .kind = SlotKind::vector, .layer = layer_, .rows = 1, .cols = size}, {.vector = &place});
}

void SlotWalk::head_bias(int64_t rows, int64_t cols, Weight& place) {
  visit_({.name = "output", .rows = rows, .cols = cols, .weight = false, .bias = true}, {.matrix = &place});
}

void visit_slots(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit) {
  SlotWalk walk(spec, visit);
  weights.layers.resize(spec.layers.size());
  const int64_t vocab = spec.vocab, width = spec.width, table = spec.head_width();
  walk.matrix("token_embd", vocab, table, weights.embedding,
              {.use = spec.tied ? WeightUse::table_and_linear : WeightUse::table, .shard = Shard::vocab});
  if (spec.positions > 0)
    walk.matrix("position_embd", spec.positions, width, weights.positions, {.use = WeightUse::table});
  walk.norm("token_embd_norm", width, spec.embed_norm, weights.embed_norm);
  if (spec.embed_width > 0) walk.matrix("project_in", width, table, weights.project_in, {});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    walk.set_layer(static_cast<int32_t>(i));
    visit_layer(walk, spec.layers[i], weights.layers[i]);
  }
  walk.set_layer(-1);
  walk.norm("output_norm", width, spec.final_norm, weights.final_norm);
  if (spec.embed_width > 0) walk.matrix("project_out", table, width, weights.project_out, {});
  if (!spec.tied) walk.matrix("output", vocab, table, weights.head, {.bias = spec.head_bias, .shard = Shard::vocab});
  if (spec.tied && spec.head_bias) walk.head_bias(vocab, table, weights.head);
}

std::vector<Slot> slots(const ModelSpec& spec) {
  std::vector<Slot> all;
  ModelWeights places;
  visit_slots(spec, places, [&](const Slot& slot, const Place&) { all.push_back(slot); });
  return all;
}

int64_t parameters(const ModelSpec& spec) {
  int64_t total = 0;
  for (const Slot& slot : slots(spec)) total += slot.values();
  return total;
}

int64_t active_parameters(const ModelSpec& spec) {
  int64_t total = 0;
  for (const Slot& slot : slots(spec)) {
    const int64_t chosen = slot.experts > 0 ? chosen_experts(spec.layers[static_cast<size_t>(slot.layer)].ffn) : 0;
    total += slot.experts > 0 ? slot.values() / slot.experts * chosen : slot.values();
  }
  return total;
}

}  // namespace millrace
