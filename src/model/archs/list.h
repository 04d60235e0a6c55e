// Every architecture there is; the registry's table and nothing else reads this.
#pragma once

#include "model/architecture.h"

namespace millrace {

extern const Architecture kLlama, kMistral, kMinistral, kQwen2, kQwen3, kGemma, kGemma2, kGemma3, kPhi, kPhi3, kGpt2,
    kGptNeox, kOpt, kBloom, kFalcon, kStarcoder2, kStableLm, kOlmo, kOlmo2, kOlmo3, kSmolLm3, kGranite, kCohere,
    kCohere2, kGlm, kGlm4, kExaone4, kNemotron, kSeedOss, kErnie45, kHunyuanDense, kBitNet, kMixtral, kMiniMaxM2,
    kOlmoe, kPhiMoe, kQwen2Moe, kQwen3Moe, kGlm4Moe, kGptOss, kLlama4, kMiniCpm3, kGemma3n, kGemma4, kDeepSeek2,
    kDeepSeek3, kMamba, kFalconMamba, kMamba2, kBamba, kFalconH1, kGraniteHybrid, kJamba, kNemotronH, kNemotronHMoe,
    kLfm2, kRecurrentGemma, kQwen3Next, kQwen35, kQwen35Moe, kMiniMax, kRwkv, kStripedHyena, kZamba2, kBert, kRoberta,
    kXlmRoberta, kNomicBert, kModernBert, kGemmaEmbedding, kLlada, kDream;

std::span<const TensorName> mixtral_names();  // of experts, which several share
std::span<const TensorName> hybrid_names();   // of Mamba layers among others

}  // namespace millrace
