// What files may be, and what is said of those that are not: names, shapes, heads, keys.
#include "model/source.h"

#include <cmath>

#include "model/edit.h"
#include "tensor/half.h"

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

TEST(Source, TakesAttentionThatIsNotCausal) {  // whoever runs it has to know (Executor::plan refuses)
  Edited edited("llama-mha");
  for (const bool causal : {true, false}) {
    edited.config["is_causal"] = causal;
    EXPECT_EQ(complaint(edited), "");
  }
}

TEST(Source, RefusesToSeeAheadWhereItCannot) {
  const std::pair<const char*, const char*> cases[] = {
      {"deepseek_v2", "layer 0 keeps latents (MLA)"},
      {"deepseek_v3", "layer 0 keeps latents (MLA)"},
      {"minicpm3", "layer 0 keeps latents (MLA)"},
      {"zamba2", "has a state"},
      {"falcon_h1", "layer 0 has a state"},
      {"mamba", "layer 0 has a state"},
      {"falcon_mamba", "layer 0 has a state"},
      {"mamba2", "layer 0 has a state"},
      {"rwkv", "layer 0 has a state"},
      {"jamba", "has a state"},
  };
  for (const auto& [golden, expected] : cases) {
    if (!std::filesystem::exists(test::golden_path(golden))) continue;  // of each kind one is in the tree
    Edited edited(golden);
    EXPECT_EQ(complaint(edited), "") << golden;
    edited.config["is_causal"] = false;
    EXPECT_NE(complaint(edited).find("'is_causal' is false, which is not supported: layer "), std::string::npos)
        << golden << ": " << complaint(edited);
    EXPECT_NE(complaint(edited).find(expected), std::string::npos) << golden << ": " << complaint(edited);
  }
}

TEST(Source, ReadsWhatTokensSeeBesideTheLanguagePart) {
  for (const auto& [key, value] : {std::pair("is_causal", false), std::pair("use_bidirectional_attention", true)}) {
    Edited outer("gemma3_text");
    outer.config.erase("use_bidirectional_attention");
    JsonObject whole = {{"model_type", "gemma3"}, {"text_config", outer.config}, {key, value}};
    outer.config = whole;
    outer.rename([](const std::string& name) { return "language_model." + name; });
    auto source = outer.source();
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_TRUE(sees_ahead(source->spec())) << key;
  }
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
  edited.config["quantization_config"] = {{"quant_method", "hqq"}};
  EXPECT_NE(complaint(edited).find("its weights are quantised (hqq"), std::string::npos) << complaint(edited);
  auto loose = Checkpoint::open(test::golden_folder() / "llama-mha" / "model.safetensors");
  ASSERT_TRUE(loose.ok());
  EXPECT_NE(ModelSource::open(*loose).error().message.find("config.json"), std::string::npos);
  Edited custom("llama-mha");
  custom.config["model_type"] = "somebodys_own";
  custom.config["auto_map"] = {{"AutoModelForCausalLM", "modeling_own.OwnForCausalLM"}};
  EXPECT_NE(complaint(custom).find("code that comes with a model ('auto_map') is never run"), std::string::npos)
      << complaint(custom);
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
    {"llama-mha", "model_type", "\"ernie4_5_moe\"",
     "config.json: ernie4_5_moe (mixture of experts) is not supported yet; the nearest that is: ernie4_5"},
    {"llama-mha", "model_type", "\"zamba\"", "zamba (shared layers in an older arrangement) is not supported yet"},
    {"llama-mha", "model_type", "\"lama\"",
     "the architecture 'lama' is not supported; the nearest name that is: llama"},
    {"mamba", "state_size", "5000", "the numbers a channel keeps (state_size)"},
    {"mamba", "state_size", "0", "'state_size' should be a whole number above 0, but is 0"},
    {"mamba", "conv_kernel", "9", "the taps of the short convolution"},
    {"mamba", "state_size", "17", "x_proj"},
    {"qwen3_5_text", "linear_key_head_dim", "2048", "the width of a linear attention head's keys"},
    {"qwen3_5_text", "linear_num_value_heads", "3", "3 value heads cannot share 2 key heads"},
    {"falcon_h1", "mamba_d_state", "-4", "'mamba_d_state' should be a whole number above 0, but is -4"},
    {"llama-mha", "model_type", "null", "it does not say which architecture it is ('model_type')"},
};

INSTANTIATE_TEST_SUITE_P(Keys, MistakeTest, ::testing::ValuesIn(kMistakes));

// What a byte of FP8 (E4M3) stands for, by its definition.
float eighths(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 128) != 0 ? -size : size;
}

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// All projections of `scaled` become FP8 with scales, one for so many rows and columns (0: for all); `plain` gets the
// same numbers in bfloat16.
void store_as_fp8(Edited& scaled, Edited& plain, int64_t rows_each, int64_t cols_each, std::string_view ending,
                  bool scalar) {
  std::vector<test::EditedTensor> added;
  for (test::EditedTensor& tensor : scaled.tensors) {
    if (!tensor.name.ends_with("_proj.weight")) continue;
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const int64_t down = rows_each == 0 ? rows : rows_each, over = cols_each == 0 ? cols : cols_each;
    const int64_t across = (cols + over - 1) / over;
    std::vector<float> scales(static_cast<size_t>((rows + down - 1) / down * across));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.0011f * static_cast<float>(1 + i % 7);
    std::vector<uint8_t> bytes;
    std::vector<uint16_t> halves;
    for (int64_t i = 0; i < rows * cols; ++i) {
      uint8_t byte = static_cast<uint8_t>(i * 37 + i / cols);
      if ((byte & 127) == 127) byte = 0;  // not a number
      bytes.push_back(byte);
      halves.push_back(
          f32_to_bf16(eighths(byte) * scales[static_cast<size_t>(i / cols / down * across + i % cols / over)]));
    }
    plain.tensor(tensor.name).type = DType::bf16;
    plain.tensor(tensor.name).bytes = bytes_of_values(halves);
    tensor.type = DType::f8_e4m3;
    tensor.bytes = bytes_of_values(bytes);
    std::vector<int64_t> shape = {(rows + down - 1) / down, across};
    if (scalar) shape.clear();
    added.push_back({tensor.name + std::string(ending), DType::f32, shape, bytes_of_values(scales)});
    added.push_back(
        {tensor.name.substr(0, tensor.name.size() - 6) + "input_scale", DType::f32, {1}, std::string(4, 1)});
  }
  ASSERT_FALSE(added.empty());
  scaled.tensors.insert(scaled.tensors.end(), added.begin(), added.end());
}

void expect_same_weights(Edited& scaled, Edited& plain) {
  EXPECT_EQ(unsupported_quantisation(scaled.open().value()), std::nullopt);
  const auto a = scaled.source(), b = plain.source();
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_TRUE(b.ok()) << b.error().message;
  std::vector<std::byte> room_a, room_b;
  for (const Slot& slot : slots(a->spec())) {
    if (!slot.weight || slot.kind != SlotKind::matrix) continue;
    for (int64_t expert = 0; expert < slot.matrices(); ++expert) {
      const HostMatrix x = a->matrix(slot, expert, room_a).value(), y = b->matrix(slot, expert, room_b).value();
      EXPECT_EQ(a->type_of(slot), x.type) << slot.name;
      std::vector<float> exact(static_cast<size_t>(slot.rows * slot.cols)), halves(exact.size());
      format(x.type).to_float(x.bytes.data(), exact.data(), slot.rows * slot.cols);
      format(y.type).to_float(y.bytes.data(), halves.data(), slot.rows * slot.cols);
      for (float& value : exact) value = bf16_to_f32(f32_to_bf16(value));
      EXPECT_EQ(exact, halves) << slot.name;
    }
  }
}

TEST(Source, TakesFp8TimesItsScales) {
  const Json fp8 = JsonObject{{"quant_method", "fp8"}, {"weight_block_size", JsonArray{48, 40}}};
  // phi3: queries, keys and values are one tensor; glm4_moe: experts are several
  for (const char* golden : {"llama-mha", "phi3", "glm4_moe"}) {
    SCOPED_TRACE(golden);
    Edited one(golden), one_plain(golden), row(golden), row_plain(golden), block(golden), block_plain(golden);
    store_as_fp8(one, one_plain, 0, 0, "_scale", true);
    expect_same_weights(one, one_plain);
    row.config["quantization_config"] = JsonObject{{"quant_method", "compressed-tensors"}};
    store_as_fp8(row, row_plain, 1, 0, "_scale", false);
    expect_same_weights(row, row_plain);
    block.config["quantization_config"] = fp8;
    store_as_fp8(block, block_plain, 48, 40, "_scale_inv", false);
    expect_same_weights(block, block_plain);
  }
}

TEST(Source, KnowsWhichMethodsAreRead) {
  auto with = [](const JsonObject& method) {
    Edited edited("llama-mha"), plain("llama-mha");
    store_as_fp8(edited, plain, 1, 0, "_scale", false);
    edited.config["quantization_config"] = method;
    return complaint(edited);
  };
  EXPECT_EQ(with({{"quant_method", "fbgemm_fp8"}}), "");
  EXPECT_EQ(with({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}), "");
  EXPECT_EQ(with({{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}}), "");
  // What tensors there are decides, not what it is called; methods whose tensors are not understood are refused.
  EXPECT_EQ(with({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}), "");
  EXPECT_EQ(with({{"quant_method", "gptq"}}), "");
  for (const JsonObject& other :
       {JsonObject{{"quant_method", "hqq"}}, JsonObject{{"quant_method", "quark"}}, JsonObject{}}) {
    EXPECT_NE(with(other).find("which cannot be read"), std::string::npos) << to_text(other);
  }
}

TEST(Source, ScalesOfInputsAreNeedlessOnlyBesideFp8) {
  Edited edited("llama-mha");
  edited.tensors.push_back({"model.layers.0.self_attn.q_proj.input_scale", DType::f32, {1}, std::string(4, 1)});
  EXPECT_NE(complaint(edited).find("tensors that llama does not: model.layers.0.self_attn.q_proj.input_scale"),
            std::string::npos);
}

TEST(Source, NamesScalesThatFitInNoWay) {
  Edited edited("llama-mha"), plain("llama-mha");
  store_as_fp8(edited, plain, 16, 16, "_scale_inv", false);
  EXPECT_EQ(
      complaint(edited),
      "the tensor 'model.layers.0.self_attn.q_proj.weight_scale_inv' has shape [4, 4]: expected one scale, one for "
      "each of 64 rows, or [1, 1] for tiles of 128 x 128");
  const auto found = unsupported_quantisation(edited.open().value());
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("its weights are quantised, and cannot be read: the tensor 'model.layers.0."),
            std::string::npos)
      << *found;
}

}  // namespace
}  // namespace millrace
