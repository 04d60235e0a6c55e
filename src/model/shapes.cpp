#include "model/shapes.h"

#include <algorithm>

#include "model/architecture.h"

namespace millrace {
namespace {

struct Shape {
  std::string_view name, alias;
  std::string_view type;
  int layers, width, ffn, heads, kv_heads, head_dim, vocab, context;
  double theta;
  bool tied;
};

constexpr Shape kShapes[] = {
    {"stories-14m", "", "llama", 8, 384, 1024, 6, 2, 64, 4096, 2048, 1e4, true},
    {"smollm2-135m", "", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, true},
    {"smollm2-360m", "", "llama", 32, 960, 2560, 15, 5, 64, 49152, 8192, 1e5, true},
    {"tinyllama-1.1b", "tinyllama", "llama", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4, false},
    {"llama-3.2-1b", "llama-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, true},
    {"llama-3.2-3b", "llama-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, true},
    {"llama-2-7b", "", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e4, false},
    {"llama-3.1-8b", "llama-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, false},
    {"llama-2-13b", "", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 1e4, false},
    {"llama-2-70b", "", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 1e4, false},
    {"llama-3.1-70b", "llama-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5, false},
    {"mistral-7b", "", "mistral", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e4, false},
    {"qwen2.5-0.5b", "", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, true},
    {"qwen2.5-7b", "", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1e6, false},
    {"qwen3-0.6b", "", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, true},
    {"qwen3-8b", "", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, false},
    {"gemma-2-2b", "", "gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, 1e4, true},
};

}  // namespace

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<Json> shape_config(std::string_view name) {
  auto found = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& shape) {
    return shape.name == name || (!shape.alias.empty() && shape.alias == name);
  });
  if (found == std::end(kShapes)) {
    return error(Code::not_found, "no shape is called '{}'; there are {}", name, fmt::join(shape_names(), ", "));
  }
  const Shape& s = *found;
  JsonObject config = {{"model_type", std::string(s.type)},
                       {"num_hidden_layers", s.layers},
                       {"hidden_size", s.width},
                       {"intermediate_size", s.ffn},
                       {"num_attention_heads", s.heads},
                       {"num_key_value_heads", s.kv_heads},
                       {"head_dim", s.head_dim},
                       {"vocab_size", s.vocab},
                       {"max_position_embeddings", s.context},
                       {"rope_theta", s.theta},
                       {"tie_word_embeddings", s.tied}};
  if (s.type == "gemma2") {
    config["sliding_window"] = 4096;
    config["query_pre_attn_scalar"] = s.head_dim;
    config["attn_logit_softcapping"] = 50.0;
    config["final_logit_softcapping"] = 30.0;
  }
  return Json(std::move(config));
}

Result<ModelSpec> shape_spec(std::string_view name) {
  TRY(Json json, shape_config(name));
  TRY(Config config, Config::from_json(fmt::format("shape {}", name), json));
  return describe(config);
}

}  // namespace millrace
