// Damaged quantised checkpoints: one each, made from a sound one, with the sentence that names tensor, expected and
// found.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tensor/files.h"
#include "tensor/hugging_face.h"
#include "tensor/stored_matrix.h"

namespace millrace {
namespace {

using test::Folder;

struct Piece {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A golden's tensors of one module, to be changed and opened again.
class Module {
 public:
  Module(const std::string& golden, std::string stem) : stem_(std::move(stem)) {
    const auto from = Checkpoint::open(std::string(MILLRACE_SOURCE_DIR "/tests/tensor/data/quant/") + golden);
    EXPECT_TRUE(from.ok()) << from.error().message;
    config = from->config();
    for (const StoredTensor& tensor : from->tensors())
      if (tensor.name.starts_with(stem_ + "."))
        pieces.push_back({tensor.name, tensor.type, tensor.shape,
                          std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
  }
  Piece& operator[](const std::string& ending) {
    for (Piece& piece : pieces)
      if (piece.name == stem_ + ending) return piece;
    ADD_FAILURE() << "no " << ending;
    return pieces.front();
  }
  void remove(const std::string& ending) {
    std::erase_if(pieces, [&](const Piece& piece) { return piece.name == stem_ + ending; });
  }
  // What is said of it; empty: it is fine.
  std::string complaint() {
    JsonObject header;
    std::string data;
    for (const Piece& piece : pieces) {
      JsonArray shape;
      for (const int64_t extent : piece.shape) shape.emplace_back(extent);
      header[piece.name] = {{"dtype", std::string(format(piece.type).name)},
                            {"shape", shape},
                            {"data_offsets", JsonArray{data.size(), data.size() + piece.bytes.size()}}};
      data += piece.bytes;
    }
    const std::string text = to_text(header);
    const uint64_t size = text.size();
    folder_.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
    folder_.write("config.json", to_text(config));
    const auto opened = Checkpoint::open(folder_.path());
    if (!opened.ok()) return opened.error().message;
    if (const auto refused = refused_quantisation(opened->config())) return *refused;
    const auto found = stored_matrix(*opened, stem_);
    if (!found.ok()) return found.error().message;
    EXPECT_NE(*found, nullptr);
    return {};
  }
  Json& said(std::string_view key) { return config.get_object()["quantization_config"].get_object()[key]; }

  Json config;
  std::vector<Piece> pieces;

 private:
  std::string stem_;
  Folder folder_;
};

Module gptq() { return {"gptq-4-asym-v1-borrow", "model.layers.0.self_attn.k_proj"}; }
Module packed() { return {"ct-mixed", "model.layers.0.self_attn.k_proj"}; }
Module nvfp4() { return {"ct-mixed", "model.layers.0.mlp.gate_proj"}; }
Module nf4() { return {"bnb-nf4-nested", "model.layers.0.self_attn.k_proj"}; }

void put_word(Piece& piece, size_t index, uint32_t word) { std::memcpy(&piece.bytes[index * 4], &word, 4); }

TEST(StoredDamage, SoundOnesAreFine) {
  EXPECT_EQ(gptq().complaint(), "");
  EXPECT_EQ(packed().complaint(), "");
  EXPECT_EQ(nvfp4().complaint(), "");
  EXPECT_EQ(nf4().complaint(), "");
}

TEST(StoredDamage, TruncatedWords) {
  Module module = gptq();
  Piece& words = module[".qweight"];
  words.shape[0] -= 1;
  words.bytes.resize(words.bytes.size() - static_cast<size_t>(words.shape[1]) * 4);
  EXPECT_EQ(module.complaint(), "the tensor 'model.layers.0.self_attn.k_proj.g_idx' has shape [256]: expected [248]");
}

TEST(StoredDamage, WrongShapeOfScales) {
  Module module = packed();
  Piece& scales = module[".weight_scale"];
  scales.shape[0] -= 1;
  scales.bytes.resize(scales.bytes.size() - 16);
  EXPECT_EQ(module.complaint(),
            "the tensor 'model.layers.0.self_attn.k_proj.weight_scale' has shape [47, 8]: expected [48, 8]");
}

TEST(StoredDamage, GroupsOutOfRange) {
  for (const uint32_t group : {8u, 0xffffffffu}) {
    Module module = gptq();
    put_word(module[".g_idx"], 5, group);
    EXPECT_EQ(
        module.complaint(),
        fmt::format("the tensor 'model.layers.0.self_attn.k_proj.g_idx' puts input 5 into group {}: expected 0 to "
                    "7",
                    static_cast<int32_t>(group)));
  }
}

TEST(StoredDamage, NoGroups) {
  Module module = gptq();
  for (const char* name : {".scales", ".qzeros"}) {
    module[name].shape[0] = 0;
    module[name].bytes.clear();
  }
  EXPECT_NE(module.complaint().find("model.layers.0.self_attn.k_proj.scales' has 0 groups for 256 inputs"),
            std::string::npos)
      << module.complaint();
}

TEST(StoredDamage, FiveBits) {
  Module module = gptq();
  module.said("bits") = 5;
  Piece& zeros = module[".qzeros"];
  zeros.shape[1] = 8;
  zeros.bytes.resize(8 * 8 * 4);
  EXPECT_EQ(
      module.complaint(),
      "the tensor 'model.layers.0.self_attn.k_proj.qzeros' has format I32 and shape [8, 8]: expected I32 [8, 48 * "
      "bits / 32] with 2, 3, 4 or 8 bits (config.json says 5)");
}

TEST(StoredDamage, ZeroPointsMissingThoughAsymmetric) {
  Module module = gptq();
  module.remove(".qzeros");
  EXPECT_EQ(module.complaint(),
            "the tensor 'model.layers.0.self_attn.k_proj.qzeros' is missing: expected the zero points of 8 groups");
  Module other = packed();
  for (auto& group : other.said("config_groups").get_object())
    group.value().get_object()["weights"].get_object()["symmetric"] = false;
  EXPECT_EQ(other.complaint(),
            "the tensor 'model.layers.0.self_attn.k_proj.weight_zero_point' is missing: expected [6, 8]");
}

TEST(StoredDamage, ShapeLargerThanWords) {
  Module module = packed();
  const int64_t cols = 300;
  std::memcpy(&module[".weight_shape"].bytes[8], &cols, 8);
  EXPECT_EQ(module.complaint(),
            "the tensor 'model.layers.0.self_attn.k_proj.weight_packed' has shape [48, 32]: expected [48, 38] for 4 "
            "bits, 75 for 8, 19 for 2, 30 or 29 for 3 ('model.layers.0.self_attn.k_proj.weight_shape' says 48 x 300)");
}

TEST(StoredDamage, ScalesThatAreNotFinite) {
  for (const uint16_t bits : {uint16_t{0x7fc0}, uint16_t{0xff80}}) {
    Module module = packed();
    std::memcpy(&module[".weight_scale"].bytes[6], &bits, 2);
    EXPECT_NE(module.complaint().find("the tensor 'model.layers.0.self_attn.k_proj.weight_scale' has the scale"),
              std::string::npos)
        << module.complaint();
  }
}

TEST(StoredDamage, GlobalScaleOfZero) {
  Module module = nvfp4();
  put_word(module[".weight_global_scale"], 0, 0);
  EXPECT_EQ(module.complaint(),
            "the tensor 'model.layers.0.mlp.gate_proj.weight_global_scale' is 0: expected a positive number");
}

TEST(StoredDamage, StateThatIsNoJson) {
  Module broken = nf4();
  Piece& state = broken[".weight.quant_state.bitsandbytes__nf4"];
  state.bytes[0] = '[';
  EXPECT_NE(broken.complaint().find("model.layers.0.self_attn.k_proj.weight.quant_state.bitsandbytes__nf4"),
            std::string::npos)
      << broken.complaint();
  Module large = nf4();
  Piece& long_state = large[".weight.quant_state.bitsandbytes__nf4"];
  long_state.bytes.append(1 << 20, ' ');
  long_state.shape[0] = static_cast<int64_t>(long_state.bytes.size());
  EXPECT_NE(large.complaint().find("expected JSON of at most 65536"), std::string::npos) << large.complaint();
}

TEST(StoredDamage, MethodsThatAreNotReadAreNamed) {
  for (const char* method : {"hqq", "aqlm", "quip", "vptq", "spqr", "higgs", "exl2", "exl3", "quark", "torchao"}) {
    Module module = packed();
    module.said("quant_method") = method;
    EXPECT_EQ(module.complaint().find(fmt::format("its weights are quantised ({}", method)), 0u) << module.complaint();
  }
  Module turned = packed();
  turned.said("transform_config") = JsonObject{{"config_groups", JsonObject{}}};
  EXPECT_NE(turned.complaint().find("rotations"), std::string::npos) << turned.complaint();
  Module marlin = gptq();
  marlin.said("checkpoint_format") = "marlin";
  EXPECT_NE(marlin.complaint().find("gptq, marlin"), std::string::npos) << marlin.complaint();
  Module planar = gptq();
  planar.said("checkpoint_format") = "gptq_p";
  EXPECT_NE(planar.complaint().find("gptq, gptq_p"), std::string::npos) << planar.complaint();
}

}  // namespace
}  // namespace millrace
