// The weights of a model as its backend keeps them, in the shape forward() reads them. Filled once by loading (or by
// Model::random), then only read.
#pragma once

#include <variant>
#include <vector>

#include "backend/ops.h"

namespace millrace {

struct GqaWeights {
  Weight q, k, v, out;  // k and v empty if the layer reads another's
  Norm q_norm, k_norm, out_norm;
  const float* slopes = nullptr;  // [heads] ALiBi
  Rope rope;                      // dims 0: none
};

struct DenseWeights {
  Weight gate, up, down;  // gate empty if there is none
  Norm inner_norm;
};

struct LayerWeights {
  std::variant<GqaWeights> mixer;
  std::variant<DenseWeights> ffn;
  Norm mixer_norm, mixer_post_norm, ffn_norm, ffn_post_norm;
};

struct ModelWeights {
  Weight embedding;                // [vocab, head width]; also the head if tied
  Weight positions;                // [positions, width]
  Weight project_in, project_out;  // [width, head width] and back
  Norm embed_norm, final_norm;
  Weight head;  // [vocab, head width]; a copy of `embedding` if tied
  std::vector<LayerWeights> layers;
};

}  // namespace millrace
