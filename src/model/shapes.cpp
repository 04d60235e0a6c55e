#include "model/shapes.h"

#include <array>
#include <vector>

#include "model/architecture.h"

namespace millrace {
namespace {

constexpr auto kShapes = std::to_array<NamedShape>({
    {"stories-14m", "stories",
     R"({"model_type":"llama","vocab_size":4096,"hidden_size":384,"intermediate_size":1024,"num_hidden_layers":8,
         "num_attention_heads":6,"num_key_value_heads":2,"max_position_embeddings":2048,"rms_norm_eps":1e-5,
         "tie_word_embeddings":true})"},
    {"smollm2-135m", "",
     R"({"model_type":"llama","vocab_size":49152,"hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,
         "num_attention_heads":9,"num_key_value_heads":3,"max_position_embeddings":8192,"rope_theta":100000,"rms_norm_eps":1e-5,
         "tie_word_embeddings":true})"},
    {"smollm2-360m", "",
     R"({"model_type":"llama","vocab_size":49152,"hidden_size":960,"intermediate_size":2560,"num_hidden_layers":32,
         "num_attention_heads":15,"num_key_value_heads":5,"max_position_embeddings":8192,"rope_theta":100000,"rms_norm_eps":1e-5,
         "tie_word_embeddings":true})"},
    {"smollm2-1.7b", "",
     R"({"model_type":"llama","vocab_size":49152,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,
         "num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":8192,"rope_theta":130000,"rms_norm_eps":1e-5,
         "tie_word_embeddings":true})"},
    {"tinyllama-1.1b", "tinyllama",
     R"({"model_type":"llama","vocab_size":32000,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,
         "num_attention_heads":32,"num_key_value_heads":4,"max_position_embeddings":2048,"rms_norm_eps":1e-5})"},
    {"llama-2-7b", "", R"({"model_type":"llama","max_position_embeddings":4096,"rms_norm_eps":1e-5})"},
    {"llama-2-13b", "",
     R"({"model_type":"llama","hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,
         "max_position_embeddings":4096,"rms_norm_eps":1e-5})"},
    {"llama-2-70b", "",
     R"({"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,
         "num_key_value_heads":8,"max_position_embeddings":4096,"rms_norm_eps":1e-5})"},
    {"llama-3.2-1b", "llama-1b",
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
         "num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"max_position_embeddings":131072,"rope_theta":500000,
         "rms_norm_eps":1e-5,"tie_word_embeddings":true,
         "rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})"},
    {"llama-3.2-3b", "llama-3b",
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":28,
         "num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"max_position_embeddings":131072,"rope_theta":500000,
         "rms_norm_eps":1e-5,"tie_word_embeddings":true,
         "rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})"},
    {"llama-3.1-8b", "llama-8b",
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,"rope_theta":500000,"rms_norm_eps":1e-5,
         "rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})"},
    {"llama-3.1-70b", "llama-70b",
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,
         "num_attention_heads":64,"num_key_value_heads":8,"max_position_embeddings":131072,"rope_theta":500000,"rms_norm_eps":1e-5,
         "rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})"},
    {"mistral-7b", "",
     R"({"model_type":"mistral","max_position_embeddings":32768,"sliding_window":4096,"rms_norm_eps":1e-5})"},
    {"mixtral-8x7b", "mixtral", R"({"model_type":"mixtral"})"},
    {"olmoe-7b", "olmoe", R"({"model_type":"olmoe"})"},
    {"qwen3-30b-a3b", "",
     R"({"model_type":"qwen3_moe","num_hidden_layers":48,"head_dim":128,"max_position_embeddings":40960,"rope_theta":1000000,
         "norm_topk_prob":true})"},
    {"gpt-oss-20b", "",
     R"({"model_type":"gpt_oss","num_hidden_layers":24,"num_local_experts":32,
         "rope_scaling":{"rope_type":"yarn","factor":32,"original_max_position_embeddings":4096,"truncate":false}})"},
    {"deepseek-v2-lite", "",
     R"({"model_type":"deepseek_v2","hidden_size":2048,"intermediate_size":10944,"moe_intermediate_size":1408,
         "num_hidden_layers":27,"num_attention_heads":16,"n_routed_experts":64,"q_lora_rank":null})"},
    {"deepseek-v2", "", R"({"model_type":"deepseek_v2"})"},
    {"deepseek-v3", "deepseek-r1", R"({"model_type":"deepseek_v3"})"},
    {"qwen2.5-0.5b", "",
     R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,
         "num_key_value_heads":2,"rope_theta":1000000,"tie_word_embeddings":true})"},
    {"qwen2.5-1.5b", "",
     R"({"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,
         "num_key_value_heads":2,"rope_theta":1000000,"tie_word_embeddings":true})"},
    {"qwen2.5-7b", "",
     R"({"model_type":"qwen2","vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
         "num_attention_heads":28,"num_key_value_heads":4,"rope_theta":1000000})"},
    {"qwen3-0.6b", "",
     R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,
         "num_key_value_heads":8,"max_position_embeddings":40960,"rope_theta":1000000,"tie_word_embeddings":true})"},
    {"qwen3-4b", "",
     R"({"model_type":"qwen3","hidden_size":2560,"intermediate_size":9728,"num_hidden_layers":36,"num_attention_heads":32,
         "num_key_value_heads":8,"max_position_embeddings":40960,"rope_theta":1000000,"tie_word_embeddings":true})"},
    {"qwen3-8b", "",
     R"({"model_type":"qwen3","hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,"num_attention_heads":32,
         "num_key_value_heads":8,"max_position_embeddings":40960,"rope_theta":1000000})"},
    {"gemma-2-2b", "", R"({"model_type":"gemma2"})"},
    {"gemma-3-1b", "",
     R"({"model_type":"gemma3_text","vocab_size":262144,"hidden_size":1152,"intermediate_size":6912,"num_attention_heads":4,
         "num_key_value_heads":1,"max_position_embeddings":32768,"sliding_window":512})"},
    {"mamba-130m", "", R"({"model_type":"mamba","num_hidden_layers":24})"},
    {"mamba2-130m", "",
     R"({"model_type":"mamba2","vocab_size":50288,"hidden_size":768,"num_hidden_layers":24,"num_heads":24,"head_dim":64,
         "n_groups":1,"tie_word_embeddings":true})"},
    {"qwen3.5-9b", "", R"({"model_type":"qwen3_5_text","max_position_embeddings":262144,"rope_theta":10000000})"},
    {"phi-3-mini", "", R"({"model_type":"phi3","max_position_embeddings":4096,"sliding_window":2047})"},
    {"gpt2", "gpt2-124m", R"({"model_type":"gpt2"})"},
    {"gpt2-xl", "", R"({"model_type":"gpt2","n_embd":1600,"n_layer":48,"n_head":25})"},
});

}  // namespace

std::span<const NamedShape> named_shapes() { return kShapes; }

Result<ModelSpec> named_shape(std::string_view name) {
  std::vector<std::string_view> known;
  for (const NamedShape& shape : kShapes) {
    known.push_back(shape.name);
    if (name.empty() || (shape.name != name && shape.alias != name)) continue;
    TRY(const Json json, parse_json(shape.config));
    TRY(Config config, Config::from_json(std::string(shape.name), json));
    return describe(config);
  }
  return error(Code::not_found, "there is no shape named '{}'; there are {}", name, fmt::join(known, ", "));
}

}  // namespace millrace
