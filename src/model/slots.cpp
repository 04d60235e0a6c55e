#include "model/slots.h"

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"
#include "model/shared.h"

namespace millrace {
namespace {

// What a layer has beside its halves.
void visit_beside(SlotWalk& walk, const LayerSpec& layer, LayerWeights& weights) {
  const ModelSpec& spec = walk.spec();
  const int64_t width = spec.width;
  if (spec.layer_input) {
    const LayerInputSpec& input = *spec.layer_input;
    walk.matrix("inp_gate", input.width, width, weights.layer_input.gate, {});
    walk.matrix("proj", width, input.width, weights.layer_input.project, {});
    walk.norm("post_norm", width, input.norm, weights.layer_input.norm);
  }
  if (spec.streams) {
    const StreamsSpec& streams = *spec.streams;
    walk.matrix("altup_router", streams.count, width, weights.streams.router, {.float32 = true});
    walk.norm("altup_router_norm", width, streams.norm, weights.streams.router_norm);
    walk.matrix("altup_predict_coef", int64_t{streams.count} * streams.count, streams.count, weights.streams.predict,
                {.float32 = true});
    walk.matrix("altup_correct_coef", streams.count, streams.count, weights.streams.correct, {.float32 = true});
    if (streams.scaled) walk.vector("altup_correct_scale", width, weights.streams.scale);
  }
  if (layer.laurel > 0) {
    walk.matrix("laurel_l", layer.laurel, width, weights.laurel.left, {});
    walk.matrix("laurel_r", width, layer.laurel, weights.laurel.right, {});
    walk.norm("laurel_post_norm", width, layer.mixer_norm, weights.laurel.norm);
  }
  if (layer.scaled) walk.vector("layer_output_scale", 1, weights.scale);
}

void visit_layer(SlotWalk& walk, const LayerSpec& spec, LayerWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.norm(spec.second ? "ffn_norm" : "attn_norm", width, spec.mixer_norm, weights.mixer_norm);
  visit_mixer(walk, spec.mixer, weights.mixer);
  if (spec.beside) visit_mixer(walk, *spec.beside, weights.beside);
  walk.norm("post_attention_norm", width, spec.mixer_post_norm, weights.mixer_post_norm);
  walk.norm("ffn_norm", width, spec.ffn_norm, weights.ffn_norm);
  visit_ffn(walk, spec.ffn, weights.ffn);
  walk.norm("post_ffw_norm", width, spec.ffn_post_norm, weights.ffn_post_norm);
  visit_beside(walk, spec, weights);
}

// What the model as a whole has beside its layers.
void visit_beside(SlotWalk& walk, const ModelSpec& spec, ModelWeights& weights) {
  const int64_t width = spec.width;
  if (spec.layer_input) {
    const int64_t all = static_cast<int64_t>(spec.layers.size()) * spec.layer_input->width;
    walk.matrix("per_layer_token_embd", spec.layer_input->vocab, all, weights.layer_table, {.use = WeightUse::table});
    walk.matrix("per_layer_model_proj", all, width, weights.layer_project, {});
    walk.norm("per_layer_proj_norm", spec.layer_input->width, spec.layer_input->norm, weights.layer_project_norm);
  }
  if (!spec.streams) return;
  const SlotWalk::Traits others = {.experts = spec.streams->count - 1, .routed = false};
  walk.matrix("altup_proj", width, width, weights.stream_in, others);
  walk.matrix("altup_unembd_proj", width, width, weights.stream_out, others);
}

// What a text's one row is multiplied with.
void visit_pool(SlotWalk& walk, const ModelSpec& spec, ModelWeights& weights) {
  if (!spec.pool) return;
  int64_t width = spec.width;
  weights.pool.resize(spec.pool->projections.size());
  for (size_t i = 0; i < weights.pool.size(); ++i) {
    const ProjectionSpec& each = spec.pool->projections[i];
    walk.matrix(fmt::format("cls.{}", i), each.outputs, width, weights.pool[i].matrix, {.bias = each.bias});
    walk.norm(fmt::format("cls.{}_norm", i), each.outputs, each.norm, weights.pool[i].norm);
    width = each.outputs;
  }
}

}  // namespace

std::string SlotWalk::named(std::string_view stem) const {
  return layer_ < 0 ? std::string(stem) : fmt::format("blk.{}.{}", number_, stem);
}

void SlotWalk::matrix(std::string_view stem, int64_t rows, int64_t cols, Weight& place, const Traits& traits) {
  visit_({.name = named(stem),
          .layer = layer_,
          .rows = rows,
          .cols = cols,
          .bias = traits.bias,
          .use = traits.use,
          .heads = traits.heads,
          .experts = traits.experts,
          .routed = traits.routed,
          .float32 = traits.float32,
          .number = number_},
         {.matrix = &place});
}

void SlotWalk::norm(std::string_view stem, int64_t width, const std::optional<NormSpec>& spec, Norm& place,
                    int32_t heads, bool plain) {
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
          .heads = heads,
          .number = number_,
          .plain = plain},
         {.norm = &place});
}

void SlotWalk::vector(std::string_view stem, int64_t size, const float*& place, int32_t turned) {
  visit_({.name = named(stem),
          .kind = SlotKind::vector,
          .layer = layer_,
          .rows = 1,
          .cols = size,
          .number = number_,
          .turned = turned},
         {.vector = &place});
}

void SlotWalk::head_bias(int64_t rows, int64_t cols, Weight& place) {
  visit_({.name = "output", .rows = rows, .cols = cols, .weight = false, .bias = true}, {.matrix = &place});
}

void visit_slots(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit) {
  SlotWalk walk(spec, visit);
  weights.layers.resize(spec.layers.size());
  const int64_t vocab = spec.vocab, width = spec.width, table = spec.head_width();
  walk.matrix("token_embd", vocab, table, weights.embedding,
              {.use = spec.tied && spec.head ? WeightUse::table_and_linear : WeightUse::table});
  if (spec.token_types > 0)
    walk.matrix("token_types", spec.token_types, width, weights.types, {.use = WeightUse::table});
  if (spec.positions > 0)
    walk.matrix("position_embd", spec.positions, width, weights.positions, {.use = WeightUse::table});
  walk.norm("token_embd_norm", width, spec.embed_norm, weights.embed_norm);
  if (spec.embed_width > 0) walk.matrix("project_in", width, table, weights.project_in, {});
  visit_beside(walk, spec, weights);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const int32_t number = spec.layers[i].number;
    walk.set_layer(static_cast<int32_t>(i), number >= 0 ? number : static_cast<int32_t>(i));
    visit_layer(walk, spec.layers[i], weights.layers[i]);
    if (spec.layers[i].shared)
      visit_shared(walk, *spec.layers[i].shared, static_cast<int32_t>(i), weights.layers[i].shared);
  }
  walk.set_layer(-1, -1);
  walk.norm("output_norm", width, spec.final_norm, weights.final_norm);
  if (spec.embed_width > 0) walk.matrix("project_out", table, width, weights.project_out, {});
  visit_pool(walk, spec, weights);
  if (!spec.head) return;
  if (!spec.tied) walk.matrix("output", vocab, table, weights.head, {.bias = spec.head_bias});
  if (spec.tied && spec.head_bias) walk.head_bias(vocab, table, weights.head);
}

std::vector<Slot> slots(const ModelSpec& spec) {
  std::vector<Slot> all;
  ModelWeights places;
  visit_slots(spec, places, [&](const Slot& slot, const Place&) { all.push_back(slot); });
  return all;
}

namespace {

// The place in one set of weights that another of the same shape has elsewhere.
const void* carried(const ModelWeights& to, const ModelWeights& from, const void* place) {
  const auto* byte = static_cast<const std::byte*>(place);
  auto within = [&](const auto& there, const auto& here) -> const void* {
    for (size_t i = 0; i < here.size(); ++i) {
      const auto* begin = reinterpret_cast<const std::byte*>(&here[i]);
      if (byte >= begin && byte < begin + sizeof(here[i]))
        return reinterpret_cast<const std::byte*>(&there[i]) + (byte - begin);
    }
    return nullptr;
  };
  if (const void* found = within(to.layers, from.layers)) return found;
  if (const void* found = within(to.pool, from.pool)) return found;
  return reinterpret_cast<const std::byte*>(&to) + (byte - reinterpret_cast<const std::byte*>(&from));
}

}  // namespace

// Walking the slots writes to their places, so a copy is walked and its addresses are carried over.
std::vector<PlacedSlot> placed_slots(const ModelSpec& spec, const ModelWeights& weights) {
  std::vector<PlacedSlot> all;
  ModelWeights copy = weights;
  visit_slots(spec, copy, [&](const Slot& slot, const Place& place) {
    all.push_back({slot, carried(weights, copy, place.address())});
  });
  if (spec.head && spec.tied && !spec.head_bias)
    all.push_back({{.name = "output", .rows = spec.vocab, .cols = spec.head_width()}, &weights.head});
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
    if (slot.use == WeightUse::table) continue;  // one row of it is looked up
    const bool routed = slot.experts > 0 && slot.routed;
    const int64_t chosen = routed ? chosen_experts(spec.layers[static_cast<size_t>(slot.layer)].ffn) : 0;
    total += routed ? slot.values() / slot.experts * chosen : slot.values();
  }
  return total;
}

bool is_here(const Slot& slot, const ModelSpec& spec, const std::optional<Stage>& stage) {
  if (!stage) return true;
  if (slot.layer >= 0) return stage->has(slot.layer);
  if (slot.name == "output" || slot.name == "output_norm" || slot.name == "project_out") return stage->last();
  return stage->first() || (stage->last() && spec.tied && slot.name == "token_embd");
}

}  // namespace millrace
