#include "model/check_backend.h"

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"

namespace millrace {

Result<void> check_backend(const ModelSpec& spec, const Backend& backend) {
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
