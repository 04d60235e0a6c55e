#include "model/check_backend.h"

#include "backend/ranks/ranks.h"
#include "backend/ranks/share.h"
#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"

namespace millrace {

namespace {

// Rows of the stream are all that goes from rank to rank.
Result<void> check_stages(const ModelSpec& spec, const Stage& stage) {
  const int ranks = stage.comm->ranks();
  std::string_view what;
  if (spec.layer_input) what = "inputs of layers' own";
  if (spec.streams) what = "several streams";
  if (spec.pool || !spec.head) what = "vectors instead of logits";
  for (const LayerSpec& layer : spec.layers)
    if (layer.shared) what = "attention that several layers share";
  if (!what.empty())
    return error(Code::unsupported,
                 "{} has {}, which ranks of whole layers (--pipeline) do not carry; leave out --pipeline",
                 spec.architecture, what);
  const auto layers = static_cast<int64_t>(spec.layers.size());
  if (layers < ranks)
    return error(Code::invalid, "{} layers on {} ranks with --pipeline: a rank has at least one", layers, ranks);
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t from = kv_source(spec.layers[static_cast<size_t>(i)].mixer);
    for (int rank = 1; from >= 0 && rank < ranks; ++rank) {
      const int64_t border = first_layer(layers, ranks, rank);
      if ((from < border) == (i < border)) continue;
      return error(Code::unsupported,
                   "layer {} reads the keys of layer {}, which another of {} ranks has with --pipeline; leave it out",
                   i, from, ranks);
    }
  }
  return {};
}

}  // namespace

Result<void> check_backend(const ModelSpec& spec, const Backend& backend) {
  if (const auto stage = stage_of(backend, spec.layers.size())) TRY_VOID(check_stages(spec, *stage));
  std::string_view what;
  for (const LayerSpec& layer : spec.layers) {
    const KvShape shape = kv_shape(layer, DType::f16);
    if (!backend.has_states() && shape.state.kept()) what = "recurrent layers";
    if (!backend.has_latents() && ((shape.kv_heads > 0 && shape.v_dim == 0) || grid_of(layer.mixer) > 0))
      what = shape.v_dim == 0 ? "latent attention" : "windows on a grid of positions";
    if (!backend.has_streams() && (layer.scaled || sparsity_of(layer.ffn) != 0)) what = "scaled or sparse layers";
  }
  if (!backend.has_streams() && spec.streams) what = "several streams";
  if (what.empty()) return {};
  return error(Code::unsupported, "{} has {}, which {} cannot run; use the CPU (--device cpu)", spec.architecture, what,
               backend.description());
}

}  // namespace millrace
