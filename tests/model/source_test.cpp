// What files may be, and what is said of those that are not: names, shapes, heads, keys.
#include "model/source.h"

#include "model/edit.h"

namespace millrace {
namespace {

using test::Edited;
using ::testing::Test;

std::string complaint(Edited& edited) {
  auto source = edited.source();
  return source.ok() ? "" : source.error().message;
}

TEST(Source, NamesTheTensorThatIsMissing) {
  Edited edited("llama-mha");
  edited.remove("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(complaint(edited), "the tensor 'model.layers.1.mlp.up_proj.weight' is missing: expected [160, 64]");
  Edited norm("qwen3");
  norm.remove("model.layers.2.self_attn.k_norm.weight");
  EXPECT_EQ(complaint(norm), "the tensor 'model.layers.2.self_attn.k_norm.weight' is missing: expected [32]");
}

TEST(Source, NamesTheTensorWithAnotherShape) {
  Edited edited("llama-mha");
  edited.tensor("model.layers.0.self_attn.k_proj.weight").shape = {32, 128};
  EXPECT_EQ(
      complaint(edited),
      "the tensor 'model.layers.0.self_attn.k_proj.weight' has shape [32, 128]: expected [64, 64] (blk.0.attn_k)");
  Edited fused("phi3");
  fused.config["intermediate_size"] = 96;
  EXPECT_EQ(
      complaint(fused),
      "the tensor 'model.layers.0.mlp.gate_up_proj.weight' has shape [320, 64]: expected [192, 64] (blk.0.ffn_gate)");
  Edited vocab("gpt2");
  vocab.config["vocab_size"] = 321;
  EXPECT_EQ(complaint(vocab),
            "the tensor 'transformer.wte.weight' has shape [320, 64]: expected [321, 64] (token_embd)");
}

TEST(Source, NamesTensorsNobodyAskedFor) {
  Edited edited("llama-mha");
  edited.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", DType::bf16, {64}, std::string(128, '\0')});
  EXPECT_EQ(
      complaint(edited),
      "the file has tensors that llama does not: model.layers.0.self_attn.q_proj.bias; it may be a variant that is not "
      "supported");
}

TEST(Source, IgnoresBuffersSavedByAccident) {
  Edited edited("llama-mha");
  edited.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {8}, std::string(32, '\0')});
  EXPECT_EQ(complaint(edited), "");
}

TEST(Source, KnowsTensorsWithoutTheirPrefixAndWithALongerOne) {
  Edited bare("gpt2");
  bare.rename([](const std::string& name) { return name.substr(std::string("transformer.").size()); });
  EXPECT_EQ(complaint(bare), "");
  Edited outer("gemma3_text");
  JsonObject whole = {{"model_type", "gemma3"}, {"text_config", outer.config}, {"vision_config", JsonObject()}};
  outer.config = whole;
  outer.rename([](const std::string& name) { return "language_model." + name; });
  outer.tensors.push_back({"vision_tower.patch", DType::f32, {1}, std::string(4, '\0')});
  EXPECT_EQ(complaint(outer), "");
  Edited inner("gemma3_text");
  inner.config = whole;
  inner.rename([](const std::string& name) {
    return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
  });
  EXPECT_EQ(complaint(inner), "");
}

TEST(Source, SettlesWhetherTheHeadIsTheTable) {
  Edited tied("llama-gqa-rope3");
  EXPECT_TRUE(tied.source().value().spec().tied);

  Edited differs("llama-mha");  // two different tensors count as two, whatever the configuration says
  differs.config["tie_word_embeddings"] = true;
  EXPECT_FALSE(differs.source().value().spec().tied);

  Edited same("llama-gqa-rope3");
  test::EditedTensor head = same.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  same.tensors.push_back(head);
  EXPECT_TRUE(same.source().value().spec().tied);

  Edited only_head("llama-gqa-rope3");
  only_head.tensor("model.embed_tokens.weight").name = "lm_head.weight";
  EXPECT_TRUE(only_head.source().value().spec().tied);

  Edited none("llama-mha");
  none.remove("lm_head.weight");
  EXPECT_NE(complaint(none).find("'lm_head.weight' is missing"), std::string::npos) << complaint(none);
}

TEST(Source, RefusesWhatItCannotRead) {
  Edited edited("llama-mha");
  edited.config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_NE(complaint(edited).find("quantised by 'gptq'"), std::string::npos) << complaint(edited);
  auto loose = Checkpoint::open(test::golden_folder() / "llama-mha" / "model.safetensors");
  ASSERT_TRUE(loose.ok());
  EXPECT_NE(ModelSource::open(*loose).error().message.find("config.json"), std::string::npos);
}

struct Mistake {
  const char* golden;
  const char* key;
  const char* value;
  const char* message;
};

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsNamedWithWhatWasFound) {
  Edited edited(GetParam().golden);
  edited.config[GetParam().key] = parse_json(GetParam().value).value();
  EXPECT_NE(complaint(edited).find(GetParam().message), std::string::npos) << complaint(edited);
}

const Mistake kMistakes[] = {
    {"llama-mha", "hidden_size", "\"64\"",
     "config.json: 'hidden_size' should be a whole number above 0, but is \"64\""},
    {"llama-mha", "num_hidden_layers", "0", "'num_hidden_layers' should be a whole number above 0, but is 0"},
    {"llama-mha", "num_hidden_layers", "1000000", "'num_hidden_layers' is 1000000: expected at most 4096"},
    {"llama-mha", "num_attention_heads", "2000000000", "'num_attention_heads' is 2000000000: expected at most 4096"},
    {"llama-mha", "num_key_value_heads", "3", "'num_key_value_heads' is 3, which does not divide the 4 heads"},
    {"llama-mha", "vocab_size", "-1", "'vocab_size' should be a whole number above 0, but is -1"},
    {"llama-mha", "rms_norm_eps", "\"small\"", "'rms_norm_eps' should be a number"},
    {"llama-mha", "rms_norm_eps", "-1", "the epsilon of a norm is -1"},
    {"llama-mha", "head_dim", "15", "rotary embedding would turn 15 of 15 dimensions"},
    {"llama-mha", "hidden_act", "\"xielu\"", "'hidden_act' is \"xielu\", which is not supported"},
    {"llama-mha", "attention_bias", "1", "'attention_bias' should be true or false, but is 1"},
    {"llama-mha", "partial_rotary_factor", "0.5",
     "'partial_rotary_factor' is 0.5, but heads of this architecture turn whole"},
    {"llama-mha", "rope_scaling", R"({"type":"mrope"})", "rope type 'mrope' is not supported"},
    {"llama-mha", "rope_scaling", R"({"type":"linear"})", "'rope_scaling.factor' is missing"},
    {"llama-mha", "rope_scaling", R"({"type":"longrope","short_factor":[1],"long_factor":[1]})",
     "'rope_scaling.long_factor' should be a list of 8 numbers, but is [1]"},
    {"llama-mha", "rope_parameters", "7", "'rope_parameters' should be an object, but is 7"},
    {"gemma2", "layer_types", R"(["full_attention"])", "'layer_types' should be a list of 4 texts"},
    {"gemma2", "layer_types", R"(["full_attention","full_attention","full_attention","chunked_attention"])",
     "chunked_attention"},
    {"gemma2", "use_bidirectional_attention", "true", "attention must be causal"},
    {"gpt2", "n_embd", "66", "'n_embd' is 66, which 4 heads ('n_head') cannot share evenly"},
    {"gpt2", "add_cross_attention", "true", "there is no encoder"},
    {"qwen2", "layer_types", R"(["full_attention","full_attention","sliding_attention"])",
     "layer_types has sliding layers"},
    {"llama-mha", "model_type", "\"mixtral\"",
     "config.json: mixtral (mixture of experts) is not supported yet; the nearest that is: mistral"},
    {"llama-mha", "model_type", "\"mamba2\"", "mamba2 (state space layers) is not supported yet"},
    {"llama-mha", "model_type", "\"lama\"",
     "the architecture 'lama' is not supported; the nearest name that is: llama"},
    {"llama-mha", "model_type", "null", "it does not say which architecture it is ('model_type')"},
};

INSTANTIATE_TEST_SUITE_P(Keys, MistakeTest, ::testing::ValuesIn(kMistakes));

}  // namespace
}  // namespace millrace
