// Layers that read the keys and values of an earlier one, in any model that says so: `kv_from`.
#include "model/convert.h"
#include "model/edit.h"

namespace millrace {
namespace {

using test::Edited;
using test::Golden;
using test::Runner;

constexpr std::string_view kGolden = "llama-gqa-rope3";  // three layers

std::string layer(int index, std::string_view name) { return fmt::format("model.layers.{}.{}.weight", index, name); }

// The first layer adds nothing to the stream, and the second begins with the same norm: both read the same rows. Keys
// and values of the second, made of the first one's matrices, are then those of the first.
class TwiceTheSame : public Edited {
 public:
  TwiceTheSame();
};

TwiceTheSame::TwiceTheSame() : Edited(std::string(kGolden)) {
  for (std::string_view name : {"self_attn.o_proj", "mlp.down_proj"}) {
    std::string& bytes = tensor(layer(0, name)).bytes;
    std::fill(bytes.begin(), bytes.end(), '\0');
  }
  for (std::string_view name : {"input_layernorm", "self_attn.k_proj", "self_attn.v_proj"})
    tensor(layer(1, name)).bytes = tensor(layer(0, name)).bytes;
}

void share(Edited& edited, JsonArray from) {
  edited.config["kv_from"] = std::move(from);
  for (std::string_view name : {"self_attn.k_proj", "self_attn.v_proj"}) edited.remove(layer(1, name));
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
