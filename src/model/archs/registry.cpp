#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

constexpr const Architecture* kAll[] = {
    &kLlama,          &kMistral,   &kMinistral,  &kQwen2,        &kQwen3,     &kGemma,        &kGemma2,
    &kGemma3,         &kPhi,       &kPhi3,       &kGpt2,         &kGptNeox,   &kOpt,          &kBloom,
    &kFalcon,         &kStableLm,  &kOlmo,       &kOlmo2,        &kOlmo3,     &kSmolLm3,      &kGranite,
    &kCohere,         &kCohere2,   &kGlm,        &kGlm4,         &kExaone4,   &kNemotron,     &kSeedOss,
    &kErnie45,        &kBitNet,    &kStarcoder2, &kHunyuanDense, &kMixtral,   &kMiniMaxM2,    &kOlmoe,
    &kPhiMoe,         &kQwen2Moe,  &kQwen3Moe,   &kGlm4Moe,      &kGptOss,    &kLlama4,       &kMiniCpm3,
    &kGemma3n,        &kGemma4,    &kDeepSeek2,  &kDeepSeek3,    &kMamba,     &kFalconMamba,  &kMamba2,
    &kGraniteHybrid,  &kBamba,     &kFalconH1,   &kJamba,        &kNemotronH, &kNemotronHMoe, &kLfm2,
    &kRecurrentGemma, &kQwen3Next, &kQwen35,     &kQwen35Moe,    &kMiniMax,   &kRwkv,         &kStripedHyena,
    &kZamba2,         &kBert,      &kRoberta,    &kXlmRoberta,   &kNomicBert, &kModernBert,   &kGemmaEmbedding,
    &kLlada,          &kDream,
};

struct Alias {
  std::string_view name, meaning;
};

// Model types whose language part is one of ours under another name.
constexpr auto kAliases = std::to_array<Alias>({
    {"gemma3", "gemma3_text"},
    {"gemma3n", "gemma3n_text"},
    {"gemma4", "gemma4_text"},
    {"falcon2", "falcon"},
    {"llama4", "llama4_text"},
    {"qwen3_5", "qwen3_5_text"},
    {"qwen3_5_moe", "qwen3_5_moe_text"},
    {"camembert", "roberta"},
});

// What people have that is not built yet: why, and what comes nearest. Names of GGUF files too.
struct Missing {
  std::string_view name, why, nearest;
};

constexpr auto kMissing = std::to_array<Missing>({
    {"qwen", "the first Qwen generation", "qwen2"},
    {"qwen2_vl", "images", "qwen2"},
    {"qwen2_5_vl", "images", "qwen2"},
    {"qwen3_vl", "images", "qwen3"},
    {"granitemoe", "mixture of experts", "granite"},
    {"ernie4_5_moe", "mixture of experts", "ernie4_5"},
    {"ernie4_5-moe", "mixture of experts", "ernie4_5"},
    {"hunyuan_v1_moe", "mixture of experts", "hunyuan_v1_dense"},
    {"hunyuan-moe", "mixture of experts", "hunyuan_v1_dense"},
    {"deepseek", "mixture of experts", "llama"},
    {"minicpm", "scaled residuals of its own", "llama"},
    {"mllama", "images", "llama"},
    {"mistral3", "images", "mistral"},
    {"ministral3", "scores scaled by position", "ministral"},
    {"zamba", "shared layers in an older arrangement", "zamba2"},
    {"gptj", "parallel halves of its own kind", "gpt_neox"},
    {"gpt_bigcode", "the first StarCoder generation", "starcoder2"},
    {"starcoder", "the first StarCoder generation", "starcoder2"},
    {"mpt", "ALiBi with clipped qkv", "bloom"},
    {"RefinedWeb", "a configuration from before transformers 4.31; save it again with a newer version", "falcon"},
    {"RefinedWebModel", "a configuration from before transformers 4.31; save it again with a newer version", "falcon"},
    {"distilbert", "an encoder with names of its own", "bert"},
    {"deberta-v2", "attention by relative positions", "bert"},
    {"mpnet", "attention by relative positions", "bert"},
    {"jina-bert-v2", "ALiBi to both sides", "nomic_bert"},
    {"t5", "an encoder and a decoder", "gpt2"},
});

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

Error not_supported(std::string_view name) {
  if (name.size() > 64) return error(Code::invalid, "the architecture's name has {} characters", name.size());
  for (const Missing& missing : kMissing) {
    if (missing.name == name) {
      return error(Code::unsupported, "{} ({}) is not supported yet; the nearest that is: {}", name, missing.why,
                   missing.nearest);
    }
  }
  const auto* nearest = std::ranges::min(kAll, {}, [&](const Architecture* each) {
    return std::min(distance(name, each->name), distance(name, each->gguf.name));
  });
  return error(Code::unsupported, "the architecture '{}' is not supported; the nearest name that is: {}", name,
               nearest->name);
}

// Any model of heads may say `kv_from`: for each layer the earlier one whose keys and values it reads, or -1.
void share_keys(Config& config, ModelSpec& spec) {
  const std::vector<int64_t> from = config.integers("kv_from", spec.layers.size());
  for (size_t i = 0; i < std::min(from.size(), spec.layers.size()); ++i) {
    auto* gqa = std::get_if<GqaSpec>(&spec.layers[i].mixer);
    if (from[i] < -1 || from[i] > INT32_MAX || (from[i] >= 0 && gqa == nullptr))
      return config.refuse("kv_from", fmt::format("layer {} cannot read keys of layer {}", i, from[i]));
    if (gqa != nullptr) gqa->kv_from = static_cast<int32_t>(from[i]);
  }
}

// Lets a mixer see tokens after its own. The error is what it has that forbids it.
Result<void> see_ahead(MixerSpec& mixer) {
  if (auto* gqa = std::get_if<GqaSpec>(&mixer)) {
    gqa->causal = false;
    return {};
  }
  if (std::holds_alternative<NoMixer>(mixer)) return {};
  if (std::holds_alternative<MlaSpec>(mixer))
    return error(Code::unsupported, "keeps latents (MLA), which are built to be read by tokens after them only");
  return error(Code::unsupported, "has a state, which knows nothing of tokens to come");
}

// Any model of heads may say `is_causal: false`. One that cannot do as it says would answer as if it said nothing.
void see_ahead(Config& config, ModelSpec& spec) {
  if (config.flag("is_causal", true)) return;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    Result<void> seen = see_ahead(layer.mixer);
    if (seen.ok() && layer.beside) seen = see_ahead(*layer.beside);
    if (seen.ok() && layer.shared) seen = error(Code::unsupported, "has shared attention, which is built causal");
    if (!seen.ok()) return config.refuse("is_causal", fmt::format("layer {} {}", i, seen.error().message));
  }
}

Result<ModelSpec> describe_as(const Architecture& architecture, Config& config) {
  ModelSpec spec;
  spec.architecture = architecture.name;
  architecture.describe(config, spec);
  share_keys(config, spec);
  see_ahead(config, spec);
  spec.fill.mask = config.count_or_none("mask_token_id", 0);
  if (!config.has("mask_token_id")) spec.fill.mask = -1;
  spec.fill.shifted = config.flag("shift_logits", architecture.name == "Dream");
  if (spec.head && is_classifier(config)) {
    spec.pool = PoolSpec{.pooling = Pooling::last, .scores = true};
    spec.pool->projections = {{.outputs = labels_of(config), .bias = false}};
  }
  TRY_VOID(config.status());
  auto checked = check_spec(spec);
  if (!checked.ok()) return within(config.origin(), std::move(checked).error());
  return spec;
}

}  // namespace

std::span<const Architecture* const> architectures() { return kAll; }

Result<const Architecture*> find_architecture(std::string_view model_type) {
  if (model_type.empty()) return error(Code::invalid, "it does not say which architecture it is ('model_type')");
  const auto alias = std::ranges::find(kAliases, model_type, &Alias::name);
  const std::string_view name = alias != kAliases.end() ? alias->meaning : model_type;
  for (const Architecture* each : kAll) {
    if (each->name == name) return each;
  }
  return not_supported(model_type);
}

Result<const Architecture*> find_gguf_architecture(std::string_view name) {
  for (const Architecture* each : kAll) {
    if (each->gguf.name == name && !name.empty()) return each;
  }
  return not_supported(name);
}

Result<ModelSpec> describe(Config& config) {
  auto found = find_architecture(config.model_type());
  if (!found.ok()) {
    Error refused = std::move(found).error();
    if (config.has("auto_map")) refused.message += "; code that comes with a model ('auto_map') is never run";
    return within(config.origin(), std::move(refused));
  }
  return describe_as(**found, config);
}

}  // namespace millrace
