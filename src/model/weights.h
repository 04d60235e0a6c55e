// The weights of a model as its backend keeps them, in the shape forward() reads them. Filled once by loading (or by
// Model::random), then only read.
#pragma once

#include <variant>
#include <vector>

#include "backend/ops.h"

namespace millrace {

struct GqaWeights {
  Weight q, k, v, out;  // k and v empty if the layer reads another's
  Weight gate;          // [heads * head_dim, width] or empty
  Norm q_norm, k_norm, v_norm, out_norm;
  const float* slopes = nullptr;  // [heads] ALiBi
  const float* sinks = nullptr;   // [heads]
  Rope rope;                      // dims 0: none
};

struct MlaWeights {
  Weight q_down;   // [q_rank, width]; empty: queries come straight from the input
  Weight q;        // [heads * (nope_dim + rope_dim), q_rank or width]: the part that turns is the last of each head
  Weight kv_down;  // [kv_rank + rope_dim, width]
  Weight k_up;     // of each head [kv_rank, nope_dim]: queries are brought to the latent instead of keys out of it
  Weight v_up;     // of each head [v_dim, kv_rank]
  Weight out;      // [width, heads * v_dim]
  Norm q_norm, kv_norm;
  Rope rope;
};

struct ConvWeights {
  const float* weight = nullptr;  // [taps, channels]
  const float* bias = nullptr;    // [channels] or null
};

struct SsmWeights {
  Weight in;     // Mamba 1: [x | gate], Mamba 2: [gate | x | B | C | steps]
  Weight parts;  // Mamba 1: [steps' rank | B | C] out of x
  Weight steps;  // Mamba 1: [inner, rank]
  Weight out;
  ConvWeights conv;
  const float* rate = nullptr;       // [state, inner], or [heads]
  const float* skip = nullptr;       // [inner] or [heads]
  const float* step_bias = nullptr;  // [heads] of Mamba 2
  const float* scales = nullptr;     // of the columns of `in`, or null
  Norm step_norm, b_norm, c_norm, norm;
};

struct DeltaWeights {
  Weight qkv, gate, beta, steps, out;
  ConvWeights conv;
  const float* rate = nullptr;       // [v_heads]
  const float* step_bias = nullptr;  // [v_heads]
  Norm norm, unit;                   // unit: of keys and queries, to length one
};

struct DecayWeights {
  Weight q, k, v, gate, out;
  const float* rate = nullptr;  // [heads]
  Norm norm;
};

struct ShortConvWeights {
  Weight in, out;  // in: [what enters | what leaves | x]
  ConvWeights conv;
};

struct LruWeights {
  Weight x, gate, out;
  Weight input_gate, keep_gate;                             // of each head
  const float *input_bias = nullptr, *keep_bias = nullptr;  // [inner]
  const float* rate = nullptr;                              // [inner]
  ConvWeights conv;
};

struct TimeMixWeights {
  Weight key, value, receptance, out;
  const float *key_share = nullptr, *value_share = nullptr,
              *receptance_share = nullptr;         // [width], of the token itself
  const float *decay = nullptr, *first = nullptr;  // [inner]
};

struct ChannelMixWeights {
  Weight key, value, receptance;
  const float *key_share = nullptr, *receptance_share = nullptr;  // [width]
};

struct HyenaWeights {
  Weight in, out;  // in: of each head [what leaves | what enters | x]
  ConvWeights conv;
  const float *poles = nullptr, *residues = nullptr;  // [2 * modes, width]: real parts, then imaginary, of each mode
  const float* skip = nullptr;                        // [width]
};

struct NoWeights {};

struct DenseWeights {
  Weight gate, up, down;  // gate empty if there is none
  Norm inner_norm;
};

struct MoeWeights {
  Weight router;                               // [experts, width of the model], float32
  Weight gate, up, down;                       // of every expert
  Weight shared_gate, shared_up, shared_down;  // empty if no expert is shared
  Weight shared_router;                        // [1, width of the model], float32; empty: shared experts count whole
  const float* choice_bias = nullptr;          // [experts] or null
  const float* expert_scale = nullptr;         // [experts] or null
};

struct TwofoldWeights {
  DenseWeights dense;
  MoeWeights moe;
  Norm dense_norm, dense_post_norm;
  Norm router_norm, moe_norm, moe_post_norm;
};

using MixerWeights = std::variant<GqaWeights, MlaWeights, SsmWeights, DeltaWeights, DecayWeights, ShortConvWeights,
                                  LruWeights, TimeMixWeights, ChannelMixWeights, HyenaWeights, NoWeights>;
using FfnWeights = std::variant<DenseWeights, MoeWeights, TwofoldWeights, NoWeights>;

struct LayerInputWeights {
  Weight gate;     // [width of a layer's input, width]
  Weight project;  // and back
  Norm norm;
};

struct StreamWeights {
  Weight router;   // [streams, width], float32
  Weight predict;  // [streams * streams, streams], float32
  Weight correct;  // [streams, streams], float32
  Norm router_norm;
  const float* scale = nullptr;  // [width] or null
};

struct LaurelWeights {
  Weight left, right;  // [rank, width] and back
  Norm norm;
};

struct SharedWeights {
  GqaWeights attention;
  Weight gate_up, down;  // [2 * ffn width, width] and back
  Weight low, high;      // of this use: [rank, width], [2 * ffn width, rank]
  Weight out;            // of this use: [width, width]
  Norm norm, ffn_norm;
};

struct LayerWeights {
  MixerWeights mixer, beside;
  SharedWeights shared;
  FfnWeights ffn;
  Norm mixer_norm, mixer_post_norm, ffn_norm, ffn_post_norm;
  LayerInputWeights layer_input;
  StreamWeights streams;
  LaurelWeights laurel;
  const float* scale = nullptr;  // [1] or null
};

struct ProjectionWeights {
  Weight matrix;
  Norm norm;
};

struct ModelWeights {
  Weight embedding;                // [vocab, head width]; also the head if tied
  Weight positions;                // [positions, width]
  Weight types;                    // [token types, width]
  Weight project_in, project_out;  // [width, head width] and back
  Weight layer_table;              // [vocab, layers * width of a layer's input]
  Weight layer_project;            // [layers * width of a layer's input, width]
  Weight stream_in, stream_out;    // [width, width] for every stream but the first
  Norm layer_project_norm;         // of each layer's part
  Norm embed_norm, final_norm;
  Weight head;  // [vocab, head width]; a copy of `embedding` if tied
  std::vector<LayerWeights> layers;
  std::vector<ProjectionWeights> pool;  // after pooling
};

}  // namespace millrace
