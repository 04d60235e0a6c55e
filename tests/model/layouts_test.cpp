// Models whose logits nobody stored, made of such whose logits are known: the same numbers in another layout give the
// same logits, or are the same slots of the same spec.
#include <cstring>

#include "model/convert.h"
#include "model/edit.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using test::Edited;
using test::EditedTensor;
using test::Golden;
using test::Runner;

std::vector<float> logits_of(const Checkpoint& checkpoint, const std::vector<int32_t>& input, Backend& backend) {
  auto model = Model::load(checkpoint, backend, {.context = static_cast<int64_t>(input.size())});
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return std::vector<float>(input.size() * 320);
  return Runner(**model, backend, 1, static_cast<int>(input.size())).step(0, 0, input);
}

// Rows [begin, begin + count) of some tensors of one width, one after the other.
struct Rows {
  std::string name;
  int64_t begin, count;
};
EditedTensor joined(Edited& model, std::string name, const std::vector<Rows>& parts) {
  const EditedTensor& first = model.tensor(parts.front().name);
  EditedTensor out = {std::move(name), first.type, {0, first.shape.back()}, {}};
  for (const Rows& part : parts) {
    const EditedTensor& from = model.tensor(part.name);
    const auto row = from.bytes.size() / static_cast<size_t>(from.shape[0]);
    out.bytes += from.bytes.substr(static_cast<size_t>(part.begin) * row, static_cast<size_t>(part.count) * row);
    out.shape[0] += part.count;
  }
  return out;
}

// Columns [begin, begin + count) of a bfloat16 matrix.
EditedTensor columns(const EditedTensor& from, std::string name, int64_t begin, int64_t count) {
  EditedTensor out = {std::move(name), from.type, {from.shape[0], count}, {}};
  for (int64_t r = 0; r < from.shape[0]; ++r)
    out.bytes +=
        from.bytes.substr(static_cast<size_t>((r * from.shape[1] + begin) * 2), static_cast<size_t>(count * 2));
  return out;
}

EditedTensor made_up(std::string name, std::vector<int64_t> shape, float step) {
  EditedTensor out = {std::move(name), DType::bf16, std::move(shape), {}};
  int64_t values = 1;
  for (int64_t each : out.shape) values *= each;
  for (int64_t i = 0; i < values; ++i) {
    const uint16_t x = f32_to_bf16(step * static_cast<float>((i * 37) % 61 - 30));
    out.bytes.append(reinterpret_cast<const char*>(&x), 2);
  }
  return out;
}

// Nemotron-H with experts: the feed-forward part of its dense sibling cut in two. Four experts all have the first part,
// so that it does not matter whom the router chooses, and the expert that every token passes has the second.
void give_experts(Edited& model) {
  model.config["layers_block_type"] = JsonArray{"linear_attention", "moe", "linear_attention", "full_attention"};
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int>>{{"moe_intermediate_size", 96},
                                                          {"moe_shared_expert_intermediate_size", 64},
                                                          {"n_routed_experts", 4},
                                                          {"n_shared_experts", 1},
                                                          {"num_experts_per_tok", 2}})
    model.config[key] = value;
  const std::string mixer = "backbone.layers.1.mixer.", up = mixer + "up_proj.weight",
                    down = mixer + "down_proj.weight";
  std::vector<EditedTensor> added;
  for (int e = 0; e < 4; ++e) {
    added.push_back(joined(model, fmt::format("{}experts.{}.up_proj.weight", mixer, e), {{up, 0, 96}}));
    added.push_back(columns(model.tensor(down), fmt::format("{}experts.{}.down_proj.weight", mixer, e), 0, 96));
  }
  added.push_back(joined(model, mixer + "shared_experts.up_proj.weight", {{up, 96, 64}}));
  added.push_back(columns(model.tensor(down), mixer + "shared_experts.down_proj.weight", 96, 64));
  added.push_back(made_up(mixer + "gate.weight", {4, 64}, 0.01f));
  added.push_back(made_up(mixer + "gate.e_score_correction_bias", {4}, 0.02f));
  model.remove(up);
  model.remove(down);
  model.tensors.insert(model.tensors.end(), added.begin(), added.end());
}

TEST(Layouts, ExpertsWithoutGates) {
  const Golden golden = Golden::read(test::golden_path("nemotron_h"));
  Edited model("nemotron_h"), narrow("nemotron_h");
  give_experts(model);
  const Checkpoint original = model.open().value();
  auto reference = make_reference_backend();
  EXPECT_LE(test::worst_difference(logits_of(original, golden.input, *reference), golden.logits), 2e-5f);
  auto cpu = make_cpu_backend({.threads = 2, .activations = Activations::float32}).value();
  EXPECT_LE(test::worst_difference(logits_of(original, golden.input, *cpu), golden.logits), 2e-5f);

  const test::Folder room;
  const ModelSource source = ModelSource::open(original).value();
  EXPECT_EQ(source.spec().architecture, "nemotron_h_moe");
  auto report = convert(source, room.path() / "x.gguf", {.type = *FileType::parse("F32"), .threads = 1});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Checkpoint file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(file.metadata().get_string("general.architecture", "").value(), "nemotron_h_moe");
  EXPECT_EQ(file.find("blk.1.ffn_up_exps.weight")->shape, (std::vector<int64_t>{4, 96, 64}));
  EXPECT_EQ(file.find("blk.1.ffn_gate_exps.weight"), nullptr);
  EXPECT_NE(file.find("blk.1.exp_probs_b.bias"), nullptr);
  EXPECT_LE(test::worst_difference(logits_of(file, golden.input, *reference), golden.logits), 2e-5f);
  // Again from there: the same tensors.
  const ModelSource again = ModelSource::open(file).value();
  ASSERT_TRUE(convert(again, room.path() / "y.gguf", {.type = *FileType::parse("F32"), .threads = 1}).ok());
  const Checkpoint second = Checkpoint::open(room.path() / "y.gguf").value();
  for (const StoredTensor& tensor : file.tensors()) {
    ASSERT_NE(second.find(tensor.name), nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(second.find(tensor.name)->bytes, tensor.bytes)) << tensor.name;
  }

  give_experts(narrow);
  narrow.config["moe_latent_size"] = 32;
  const auto refused = narrow.source();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("moe_latent_size"), std::string::npos) << refused.error().message;
}

// Qwen 3.5 with experts has Qwen3-Next's numbers: products of the delta rule apart, those of the experts together.
TEST(Layouts, DeltaRuleWithExpertsTogether) {
  const auto folder = test::golden_path("qwen3_next");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
  const Golden golden = Golden::read(folder);
  Edited model("qwen3_next");
  model.config["model_type"] = "qwen3_5_moe_text";
  constexpr int64_t kKeys = 2, kDim = 16, kShared = 2, kGroup = 2 * kDim + 2 * kShared * kDim, kExperts = 8;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer), delta = at + "linear_attn.";
    const std::string qkvz = delta + "in_proj_qkvz.weight", ba = delta + "in_proj_ba.weight";
    std::vector<EditedTensor> added;
    if (std::ranges::any_of(model.tensors, [&](const EditedTensor& each) { return each.name == qkvz; })) {
      std::vector<Rows> q, k, v, z, b, a;
      for (int64_t head = 0; head < kKeys; ++head) {
        const int64_t first = head * kGroup, values = kShared * kDim;
        q.push_back({qkvz, first, kDim});
        k.push_back({qkvz, first + kDim, kDim});
        v.push_back({qkvz, first + 2 * kDim, values});
        z.push_back({qkvz, first + 2 * kDim + values, values});
        b.push_back({ba, head * 2 * kShared, kShared});
        a.push_back({ba, head * 2 * kShared + kShared, kShared});
      }
      q.insert(q.end(), k.begin(), k.end());
      q.insert(q.end(), v.begin(), v.end());
      added.push_back(joined(model, delta + "in_proj_qkv.weight", q));
      added.push_back(joined(model, delta + "in_proj_z.weight", z));
      added.push_back(joined(model, delta + "in_proj_b.weight", b));
      added.push_back(joined(model, delta + "in_proj_a.weight", a));
      model.remove(qkvz);
      model.remove(ba);
    }
    EditedTensor both = {at + "mlp.experts.gate_up_proj", DType::bf16, {kExperts, 96, 64}, {}};
    EditedTensor down = {at + "mlp.experts.down_proj", DType::bf16, {kExperts, 64, 48}, {}};
    for (int64_t e = 0; e < kExperts; ++e) {
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string one = fmt::format("{}mlp.experts.{}.{}.weight", at, e, name);
        (std::string_view(name) == "down_proj" ? down : both).bytes += model.tensor(one).bytes;
        model.remove(one);
      }
    }
    added.push_back(std::move(both));
    added.push_back(std::move(down));
    model.tensors.insert(model.tensors.end(), added.begin(), added.end());
  }
  const Checkpoint original = model.open().value();
  auto reference = make_reference_backend();
  EXPECT_LE(test::worst_difference(logits_of(original, golden.input, *reference), golden.logits), 2e-5f);
  const test::Folder room;
  const ModelSource source = ModelSource::open(original).value();
  auto report = convert(source, room.path() / "x.gguf", {.type = *FileType::parse("F32"), .threads = 1});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Checkpoint file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(file.metadata().get_string("general.architecture", "").value(), "qwen35moe");
  EXPECT_LE(test::worst_difference(logits_of(file, golden.input, *reference), golden.logits), 2e-5f);
}

std::vector<float> numbers_of(const ModelSource& source, const Slot& slot) {
  std::vector<float> out;
  if (slot.kind == SlotKind::matrix) {
    std::vector<std::byte> room;
    const HostMatrix matrix = source.matrix(slot, 0, room).value();
    out.resize(static_cast<size_t>(matrix.rows * matrix.cols));
    format(matrix.type).to_float(matrix.bytes.data(), out.data(), matrix.rows * matrix.cols);
  } else {
    out = source.norm_weight(slot).value();
  }
  const std::vector<float> bias = source.bias(slot).value();
  out.insert(out.end(), bias.begin(), bias.end());
  return out;
}

// Two sources are one model: every slot has the same numbers, and layers mean the same.
void expect_same(const ModelSource& a, const ModelSource& b) {
  const std::vector<Slot> one = slots(a.spec()), other = slots(b.spec());
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].name, other[i].name);
    EXPECT_EQ(numbers_of(a, one[i]), numbers_of(b, other[i])) << one[i].name;
  }
  ASSERT_EQ(a.spec().layers.size(), b.spec().layers.size());
  for (size_t i = 0; i < a.spec().layers.size(); ++i) {
    const LayerSpec &x = a.spec().layers[i], &y = b.spec().layers[i];
    const auto &p = std::get<GqaSpec>(x.mixer), &q = std::get<GqaSpec>(y.mixer);
    EXPECT_EQ(p.heads, q.heads);
    EXPECT_EQ(p.kv_heads, q.kv_heads);
    EXPECT_EQ(p.head_dim, q.head_dim);
    EXPECT_EQ(p.scale, q.scale);
    EXPECT_EQ(p.qkv_bias, q.qkv_bias);
    EXPECT_FALSE(p.causal);
    EXPECT_FALSE(q.causal);
    EXPECT_EQ(a.spec().ropes[static_cast<size_t>(p.rope)].frequencies,
              b.spec().ropes[static_cast<size_t>(q.rope)].frequencies);
    EXPECT_EQ(x.mixer_norm->epsilon, y.mixer_norm->epsilon);
    EXPECT_EQ(std::get<DenseSpec>(x.ffn).activation, std::get<DenseSpec>(y.ffn).activation);
    EXPECT_EQ(std::get<DenseSpec>(x.ffn).width, std::get<DenseSpec>(y.ffn).width);
  }
  EXPECT_TRUE(fills_masks(a.spec()));
  EXPECT_TRUE(fills_masks(b.spec()));
}

// LLaDA's published layout: names and keys of its own around what Llama's layers are.
TEST(Layouts, LladaIsLlamaThatSeesAhead) {
  Edited plain("llama-mha"), llada("llama-mha");
  plain.config["is_causal"] = false;
  const JsonObject& old = plain.config;
  JsonObject config = {{"model_type", "llada"},
                       {"architectures", JsonArray{"LLaDAModelLM"}},
                       {"block_type", "llama"},
                       {"activation_type", "silu"},
                       {"include_bias", false},
                       {"include_qkv_bias", false},
                       {"rope", true},
                       {"d_model", old.at("hidden_size")},
                       {"n_layers", old.at("num_hidden_layers")},
                       {"n_heads", old.at("num_attention_heads")},
                       {"n_kv_heads", old.at("num_key_value_heads")},
                       {"mlp_hidden_size", old.at("intermediate_size")},
                       {"max_sequence_length", old.at("max_position_embeddings")},
                       {"embedding_size", old.at("vocab_size")},
                       {"vocab_size", old.at("vocab_size")},
                       {"weight_tying", old.at("tie_word_embeddings")},
                       {"rms_norm_eps", old.at("rms_norm_eps")},
                       {"mask_token_id", 5}};
  config["rope_theta"] =
      old.contains("rope_theta") ? old.at("rope_theta") : old.at("rope_parameters").get_object().at("rope_theta");
  llada.config = config;
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"model.embed_tokens.", "model.transformer.wte."},
      {"model.norm.", "model.transformer.ln_f."},
      {"lm_head.", "model.transformer.ff_out."},
      {"model.layers.", "model.transformer.blocks."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ff_norm"},
      {"self_attn.o_proj", "attn_out"},
      {"self_attn.", ""},
      {"mlp.gate_proj", "ff_proj"},
      {"mlp.up_proj", "up_proj"},
      {"mlp.down_proj", "ff_out"}};
  llada.rename([](const std::string& name) {
    std::string out = name;
    for (const auto& [from, to] : kNames)
      if (const size_t at = out.find(from); at != std::string::npos) out.replace(at, from.size(), to);
    return out;
  });
  const auto one = plain.source(), other = llada.source();
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(other.ok()) << other.error().message;
  expect_same(*one, *other);
  EXPECT_EQ(other->spec().fill.mask, 5);
  EXPECT_FALSE(other->spec().fill.shifted);
}

// Dream's: Qwen 2 under its own names, each token predicted by the position before it.
TEST(Layouts, DreamIsQwenThatSeesAhead) {
  Edited plain("qwen2"), dream("qwen2");
  plain.config["is_causal"] = false;
  dream.config["model_type"] = "Dream";
  dream.config["mask_token_id"] = 7;
  dream.config["use_sliding_window"] = false;
  plain.config["use_sliding_window"] = false;
  for (Edited* each : {&plain, &dream}) each->config.erase("layer_types");
  const auto one = plain.source(), other = dream.source();
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(other.ok()) << other.error().message;
  expect_same(*one, *other);
  EXPECT_EQ(other->spec().fill.mask, 7);
  EXPECT_TRUE(other->spec().fill.shifted);
  dream.config["use_sliding_window"] = true;
  EXPECT_FALSE(dream.source().ok());
}

}  // namespace
}  // namespace millrace
