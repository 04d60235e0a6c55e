// Layers that read the keys and values of an earlier one, in any model that says so: `kv_from`.
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

constexpr std::string_view kGolden = "llama-gqa-rope3";  // three layers

std::string layer(int index, std::string_view name) { return fmt::format("model.layers.{}.{}.weight", index, name); }

// The first layer adds nothing to the stream, and the second begins with the same norm: both read the same rows. Keys
// and values of the second, made of the first one's matrices, are then those of the first.
class TwiceTheSame : public Edited {
 public:
  explicit TwiceTheSame(std::string_view golden = kGolden);
};

void silence(EditedTensor& tensor) { std::fill(tensor.bytes.begin(), tensor.bytes.end(), '\0'); }

// Every `step`th number, of bfloat16, times `factor`.
void scale(EditedTensor& tensor, size_t step, float factor) {
  for (size_t at = 0; at + 1 < tensor.bytes.size(); at += 2 * step) {
    uint16_t half = 0;
    std::memcpy(&half, tensor.bytes.data() + at, sizeof half);
    half = f32_to_bf16(bf16_to_f32(half) * factor);
    std::memcpy(tensor.bytes.data() + at, &half, sizeof half);
  }
}

TwiceTheSame::TwiceTheSame(std::string_view golden) : Edited(std::string(golden)) {
  for (std::string_view name : {"self_attn.o_proj", "mlp.down_proj"}) silence(tensor(layer(0, name)));
  for (std::string_view name : {"input_layernorm", "self_attn.k_proj", "self_attn.v_proj", "self_attn.key_layernorm"}) {
    for (EditedTensor& each : tensors) {
      if (each.name == layer(1, name)) each.bytes = tensor(layer(0, name)).bytes;
    }
  }
}

void share(Edited& edited, JsonArray from) {
  edited.config["kv_from"] = std::move(from);
  for (std::string_view name : {"self_attn.k_proj", "self_attn.v_proj", "self_attn.key_layernorm"})
    edited.remove(layer(1, name));
}

// The same weights as OLMo's: norms without weights, and queries, keys and values clipped. Keys and values of the first
// two layers are small, so that of these the clip changes queries alone.
void make_clipped(Edited& edited, double clip) {
  edited.config["model_type"] = "olmo";
  edited.config["architectures"] = JsonArray{"OlmoForCausalLM"};
  edited.config["clip_qkv"] = clip;
  std::erase_if(edited.tensors, [](const EditedTensor& each) { return each.name.find("norm") != std::string::npos; });
  for (const std::string_view name : {"self_attn.k_proj", "self_attn.v_proj"}) {
    for (const int index : {0, 1}) scale(edited.tensor(layer(index, name)), 1, 0x1p-6f);
  }
}

// Norms of queries and keys that are not alike in all numbers, so that it matters which were turned before.
void make_uneven(Edited& edited) {
  for (EditedTensor& each : edited.tensors) {
    if (each.name.find("query_layernorm") == std::string::npos && each.name.find("key_layernorm") == std::string::npos)
      continue;
    scale(each, 3, 2);
  }
}

std::vector<float> logits_of(const Checkpoint& checkpoint, Backend& backend, int chunk) {
  const Golden golden = Golden::read(test::golden_folder() / kGolden);
  const int tokens = static_cast<int>(golden.input.size());
  auto model = Model::load(checkpoint, backend, {.context = tokens});
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  Runner runner(**model, backend, 1, tokens);
  std::vector<float> logits;
  for (int begin = 0; begin < tokens; begin += chunk) {
    const auto end = golden.input.begin() + std::min(begin + chunk, tokens);
    const std::vector<float> some = runner.step(0, begin, {golden.input.begin() + begin, end});
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

std::unique_ptr<Backend> backend_of(bool cpu) {
  return cpu ? make_cpu_backend({.threads = 2}).value() : make_reference_backend();
}

TEST(KvFrom, ReadsWhatALayerWithTheSameKeysReads) {
  TwiceTheSame own, reading, other;
  share(reading, {-1, 0, -1});
  const Checkpoint one = own.open().value(), two = reading.open().value();
  for (const bool cpu : {false, true}) {
    const std::vector<float> expected = logits_of(one, *backend_of(cpu), 40);
    ASSERT_FALSE(expected.empty());
    for (const int chunk : {40, 7, 1}) EXPECT_EQ(logits_of(two, *backend_of(cpu), chunk), expected) << chunk;
  }
  // Keys that are not the first layer's give something else.
  other.tensor(layer(1, "self_attn.k_proj")).bytes = other.tensor(layer(2, "self_attn.k_proj")).bytes;
  EXPECT_NE(logits_of(other.open().value(), *backend_of(false), 40), logits_of(two, *backend_of(false), 40));
}

// What is done to keys and values besides, the reading layer does to its queries.
TEST(KvFrom, ClipsItsQueries) {
  constexpr double kClip = 0.25;
  TwiceTheSame own, reading, wide;
  make_clipped(own, kClip);
  make_clipped(reading, kClip);
  share(reading, {-1, 0, -1});
  const Checkpoint one = own.open().value(), two = reading.open().value();
  for (const bool cpu : {false, true}) {
    const std::vector<float> expected = logits_of(one, *backend_of(cpu), 40);
    ASSERT_FALSE(expected.empty());
    for (const int chunk : {40, 7}) EXPECT_EQ(logits_of(two, *backend_of(cpu), chunk), expected) << chunk;
  }
  // Queries of the second layer are among what is clipped: without them it would be another model.
  make_clipped(wide, 1e6);
  for (TwiceTheSame* each : {&own, &wide}) silence(each->tensor(layer(2, "self_attn.o_proj")));
  EXPECT_NE(logits_of(wide.open().value(), *backend_of(false), 40),
            logits_of(own.open().value(), *backend_of(false), 40));
}

TEST(KvFrom, NormsItsQueriesAfterTheyTurnedWhereTheModelDoes) {
  TwiceTheSame own("hunyuan_v1_dense"), reading("hunyuan_v1_dense"), before("hunyuan_v1_dense");
  for (TwiceTheSame* each : {&own, &reading, &before}) {
    make_uneven(*each);
    silence(each->tensor(layer(2, "self_attn.o_proj")));
  }
  share(reading, {-1, 0, -1});
  const Checkpoint one = own.open().value(), two = reading.open().value();
  for (const bool cpu : {false, true}) {
    const std::vector<float> expected = logits_of(one, *backend_of(cpu), 40);
    ASSERT_FALSE(expected.empty());
    for (const int chunk : {40, 7}) EXPECT_EQ(logits_of(two, *backend_of(cpu), chunk), expected) << chunk;
  }
  // Qwen 3 is the same with norms before.
  before.config["model_type"] = "qwen3";
  before.config["architectures"] = JsonArray{"Qwen3ForCausalLM"};
  before.rename([](const std::string& name) {
    std::string other = name;
    for (const auto& [from, to] : {std::pair("query_layernorm", "q_norm"), std::pair("key_layernorm", "k_norm")}) {
      if (const size_t at = other.find(from); at != other.npos) other.replace(at, std::strlen(from), to);
    }
    return other;
  });
  EXPECT_NE(logits_of(before.open().value(), *backend_of(false), 40), logits_of(one, *backend_of(false), 40));
}

TEST(KvFrom, TakesNoCacheAndIsKeptByFiles) {
  TwiceTheSame edited;
  share(edited, {-1, 0, -1});
  const ModelSource source = edited.source().value();
  const std::vector<KvShape> shapes = kv_shapes(source.spec(), DType::f16);
  EXPECT_EQ(shapes[0].kv_heads, 2);
  EXPECT_EQ(shapes[1].kv_heads, 0);
  const test::Folder room;
  ASSERT_TRUE(convert(source, room.path() / "a.gguf", {.type = FileType::parse("F32").value(), .threads = 1}).ok());
  const Checkpoint file = Checkpoint::open(room.path() / "a.gguf").value();
  EXPECT_EQ(file.find("blk.1.attn_k.weight"), nullptr);
  EXPECT_NE(file.metadata().find("llama.attention.kv_from"), nullptr);
  const auto backend = make_reference_backend();
  EXPECT_LE(test::worst_difference(logits_of(file, *backend, 40), logits_of(edited.open().value(), *backend, 40)),
            2e-5f);
}

TEST(KvFrom, IsRefusedWithTheNumbers) {
  auto complaint = [](JsonArray from) {
    TwiceTheSame edited;
    share(edited, std::move(from));
    const auto source = edited.source();
    return source.ok() ? std::string() : source.error().message;
  };
  auto expect = [&](JsonArray from, std::string_view part) {
    const std::string found = complaint(std::move(from));
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  EXPECT_EQ(complaint({-1, 0, -1}), "");
  EXPECT_EQ(complaint({-1, 0, 0}), "");  // keys that a file has all the same are not read
  expect({-1, 2, -1}, "layer 1: reads keys of layer 2, which does not come before it");
  expect({-1, 1, -1}, "layer 1: reads keys of layer 1, which does not come before it");
  expect({-1, 0, 1}, "layer 2: reads keys of layer 1, which has none of its own");
  expect({-1, 0}, "a list of 3 whole numbers");
  expect({-1, -7, -1}, "layer 1 cannot read keys of layer -7");
  expect({-1, -1, -1}, "self_attn.k_proj.weight' is missing");
  Edited states("mamba");
  states.config["kv_from"] = JsonArray(states.config["num_hidden_layers"].to_number<size_t>(), 0);
  const auto source = states.source();
  ASSERT_FALSE(source.ok());
  EXPECT_NE(source.error().message.find("layer 0 cannot read keys of layer 0"), std::string::npos)
      << source.error().message;
  Edited gemma("gemma4_text");
  gemma.config["kv_from"] = JsonArray{0};
  EXPECT_NE(gemma.source().error().message.find("num_kv_shared_layers"), std::string::npos);
}

}  // namespace
}  // namespace millrace
