// What architectures with latent attention share. Read while loading, on one thread.
#pragma once

#include "model/archs/common.h"

namespace millrace {

struct LatentSizes {
  int32_t q_rank, kv_rank, nope_dim, rope_dim, v_dim;  // where the configuration has none
};

// Latent attention from a configuration, with its rotary frequencies added to the spec. The norms of both latents have
// an epsilon of their own, whatever rms_norm_eps says.
MlaSpec latent_attention(Config& config, ModelSpec& spec, const Sizes& sizes, const LatentSizes& usual,
                         bool neighbours);

}  // namespace millrace
