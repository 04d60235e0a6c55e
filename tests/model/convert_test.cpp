// Converting: what comes back out of a GGUF file is the model that went in, and the file is as llama.cpp lays it out.
#include "model/convert.h"

#include <cstring>

#include "model/edit.h"

namespace millrace {
namespace {

using test::Edited;
using test::Golden;
using test::Runner;

std::vector<float> logits_of(const Checkpoint& checkpoint, const std::vector<int32_t>& input) {
  auto backend = make_reference_backend();
  auto model = Model::load(checkpoint, *backend, {.context = static_cast<int64_t>(input.size())});
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  return Runner(**model, *backend, 1, static_cast<int>(input.size())).step(0, 0, input);
}

Result<Checkpoint> converted(const Checkpoint& from, const std::filesystem::path& to, std::string_view type) {
  TRY(const ModelSource source, ModelSource::open(from));
  TRY(const FileType file_type, FileType::parse(type));
  TRY_VOID([&]() -> Result<void> {
    TRY(const ConvertReport report, convert(source, to, {.type = file_type, .threads = 1}));
    EXPECT_EQ(report.bytes, std::filesystem::file_size(to));
    return {};
  }());
  return Checkpoint::open(to);
}

class ConvertTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ConvertTest, ThereAndBackIsTheSameModel) {
  const auto folder = test::golden_path(GetParam());
  const Golden golden = Golden::read(folder);
  const test::Folder room;
  auto original = Checkpoint::open(folder).value();
  auto file = converted(original, room.path() / "f32.gguf", "F32");
  const std::string type = ModelSource::open(original).value().spec().architecture;
  if (find_architecture(type).value()->gguf.name.empty()) {
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().message,
              fmt::format("GGUF has no name for the architecture {}, so it cannot be converted", type));
    return;
  }
  ASSERT_TRUE(file.ok()) << file.error().message;
  const float limit = test::golden_limit(GetParam());
  EXPECT_LE(test::worst_difference(logits_of(*file, golden.input), golden.logits), limit);
  auto half = converted(original, room.path() / "f16.gguf", "f16");
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_LE(test::worst_difference(logits_of(*half, golden.input), golden.logits), limit);

  // From GGUF to GGUF: the same bytes as straight from the original, and the same keys.
  auto straight = converted(original, room.path() / "a.gguf", "Q8_0"),
       round = converted(*file, room.path() / "b.gguf", "Q8_0");
  ASSERT_TRUE(straight.ok() && round.ok());
  ASSERT_EQ(straight->tensors().size(), round->tensors().size());
  for (const StoredTensor& tensor : straight->tensors()) {
    const StoredTensor* other = round->find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(tensor.type, other->type) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, other->bytes)) << tensor.name;
  }
  for (const MetaEntry& entry : straight->metadata().entries()) {
    EXPECT_NE(round->metadata().find(entry.key), nullptr) << entry.key;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, ConvertTest, ::testing::ValuesIn(test::golden_names()), test::test_name);

TEST(Convert, PutsRowsThatTurnTogetherSideBySide) {
  const test::Folder room;
  auto original = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  auto file = converted(original, room.path() / "x.gguf", "BF16").value();
  const StoredTensor& in = *original.find("model.layers.0.self_attn.k_proj.weight");  // 2 heads of 16
  const StoredTensor& out = *file.find("blk.0.attn_k.weight");
  const size_t row = 64 * 2;
  for (size_t head = 0; head < 2; ++head) {
    for (size_t i = 0; i < 16; ++i) {
      const size_t from = head * 16 + i / 2 + (i % 2) * 8;
      EXPECT_EQ(0, std::memcmp(&out.bytes[(head * 16 + i) * row], &in.bytes[from * row], row)) << head << " " << i;
    }
  }
  const std::vector<float> factors = *read_floats(*file.find("rope_freqs.weight"));
  EXPECT_EQ(factors.front(), 1.0f);  // the quickest pair is left alone, the slowest is stretched eightfold
  EXPECT_NEAR(factors.back(), 8.0f, 1e-5);
}

TEST(Convert, ChoosesFormatsByUseAndByWhatFits) {
  const test::Folder room;
  auto original = Checkpoint::open(test::golden_folder() / "llama-mha").value();
  const ModelSource source = ModelSource::open(original).value();
  auto report = convert(source, room.path() / "x.gguf", {.type = *FileType::parse("Q4_K"), .threads = 1});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->fallbacks, 2 + 3 * 7);  // no row has 256 numbers
  auto file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(file.find("blk.1.ffn_down.weight")->type, DType::q5_0);
  EXPECT_EQ(file.find("output.weight")->type, DType::q8_0);
  EXPECT_EQ(file.find("output_norm.weight")->type, DType::f32);
  EXPECT_EQ(file.metadata().get_int("general.file_type", 0).value(), 14);

  ModelSpec spec = source.spec();
  spec.layers.resize(1);
  const FileType mixed = *FileType::parse("Q4_K_M");
  auto type_of = [&](std::string name, int32_t layer, int64_t cols) {
    return stored_type(spec, {.name = std::move(name), .layer = layer, .rows = 64, .cols = cols}, mixed);
  };
  EXPECT_EQ(type_of("blk.0.attn_v", 0, 512), DType::q6_k);
  EXPECT_EQ(type_of("blk.0.attn_q", 0, 512), DType::q4_k);
  EXPECT_EQ(type_of("output", -1, 512), DType::q6_k);
  EXPECT_EQ(type_of("token_embd", -1, 512), DType::q4_k);
  EXPECT_EQ(type_of("blk.0.attn_q", 0, 100), DType::f16);
  EXPECT_NE(FileType::parse("Q9").error().message.find("Q8_0"), std::string::npos);
}

TEST(Convert, WritesTheKeysLoadersExpect) {
  const test::Folder room;
  auto file =
      converted(Checkpoint::open(test::golden_folder() / "gemma2").value(), room.path() / "x.gguf", "F16").value();
  const Metadata& keys = file.metadata();
  EXPECT_EQ(keys.get_string("general.architecture", "").value(), "gemma2");
  EXPECT_EQ(keys.get_string("general.name", "").value(), "gemma2");
  EXPECT_EQ(keys.get_string("tokenizer.ggml.model", "").value(), "none");
  EXPECT_EQ(keys.get_int("gemma2.block_count", 0).value(), 4);
  EXPECT_EQ(keys.get_int("gemma2.attention.key_length", 0).value(), 32);
  EXPECT_EQ(keys.get_int("gemma2.attention.sliding_window", 0).value(), 16);
  EXPECT_EQ(keys.get_int("gemma2.attention.sliding_window_pattern", 0).value(), 2);
  EXPECT_EQ(keys.get_number("gemma2.final_logit_softcapping", 0).value(), 30);
  EXPECT_NEAR(keys.get_number("gemma2.attention.layer_norm_rms_epsilon", 0).value(), 1e-6, 1e-12);
}

TEST(Convert, TakesTheTokenizersKeysFromOutside) {
  const test::Folder room;
  auto original = Checkpoint::open(test::golden_folder() / "qwen2").value();
  const ModelSource source = ModelSource::open(original).value();
  ConvertOptions options = {.name = "A name", .threads = 1};
  options.tokenizer = [](GgufWriter& writer) { return writer.put("tokenizer.ggml.model", "gpt2"); };
  ASSERT_TRUE(convert(source, room.path() / "x.gguf", options).ok());
  auto file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(file.metadata().get_string("tokenizer.ggml.model", "").value(), "gpt2");
  EXPECT_EQ(file.metadata().get_string("general.name", "").value(), "A name");
}

// Files of Falcon H1 have no words for its factors: they are in the weights, whose rows say so.
TEST(Convert, PutsFactorsWhereTheFormatHasNoWordForThem) {
  const test::Folder room;
  Edited model("falcon_h1");
  const Golden golden = Golden::read(test::golden_path("falcon_h1"));
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, double>>{{"embedding_multiplier", 1.5},
                                                             {"lm_head_multiplier", 0.4},
                                                             {"key_multiplier", 0.7},
                                                             {"attention_in_multiplier", 1.2},
                                                             {"attention_out_multiplier", 0.9},
                                                             {"ssm_in_multiplier", 1.3},
                                                             {"ssm_out_multiplier", 0.6}})
    model.config[key] = value;
  model.config["mlp_multipliers"] = JsonArray{0.8, 0.5};
  model.config["ssm_multipliers"] = JsonArray{0.3, 0.25, 0.7, 1.4, 1.1};
  for (const bool tied : {false, true}) {
    model.config["tie_word_embeddings"] = tied;
    if (tied) model.remove("lm_head.weight");
    const Checkpoint original = model.open().value();
    const std::vector<float> expected = logits_of(original, golden.input);
    EXPECT_GT(test::worst_difference(expected, golden.logits), 1e-2f);  // the factors change something
    auto file = converted(original, room.path() / fmt::format("{}.gguf", tied), "F32");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_LE(test::worst_difference(logits_of(*file, golden.input), expected), 2e-5f);
    EXPECT_NE(file->find("blk.0.ffn_norm"), nullptr);  // where llama.cpp looks for it
    const StoredTensor *keys = file->find("blk.0.attn_k.weight"),
                       *own = original.find("model.layers.0.self_attn.k_proj.weight");
    EXPECT_NEAR((*read_floats(*keys))[5], (*read_floats(*own))[5] * 0.7f * 1.2f * 1.2f, 1e-6f);
  }
}

// What llama.cpp's loaders of qwen3next read: queries and gates head by head, shares and steps by key head.
TEST(Convert, WeavesProductsThatLieInOneTensor) {
  const auto folder = test::golden_path("qwen3_next");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
  const test::Folder room;
  const Checkpoint original = Checkpoint::open(folder).value();
  const Checkpoint file = converted(original, room.path() / "x.gguf", "BF16").value();
  auto same = [&](std::string_view ours, std::string_view theirs) {
    const StoredTensor *out = file.find(ours), *in = original.find(theirs);
    ASSERT_TRUE(out != nullptr && in != nullptr) << ours;
    EXPECT_EQ(out->shape, in->shape) << ours;
    EXPECT_TRUE(std::ranges::equal(out->bytes, in->bytes)) << ours;
  };
  same("blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight");
  same("blk.0.ssm_ba.weight", "model.layers.0.linear_attn.in_proj_ba.weight");
  EXPECT_EQ(file.find("blk.3.attn_gate.weight"), nullptr);
  EXPECT_EQ(file.find("blk.0.attn_gate.weight")->shape, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(file.metadata().get_int("qwen3next.full_attention_interval", 0).value(), 4);
  EXPECT_EQ(file.metadata().get_int("qwen3next.ssm.group_count", 0).value(), 2);
}

// What llama.cpp's loaders of qwen35 read: value heads that share a key stand apart, in every tensor that has them.
TEST(Convert, StripesValueHeads) {
  const test::Folder room;
  const Checkpoint original = Checkpoint::open(test::golden_path("qwen3_5_text")).value();
  const Checkpoint file = converted(original, room.path() / "x.gguf", "BF16").value();
  constexpr int64_t kKeys = 2, kShared = 2, kDim = 16, kWidth = 64;
  auto numbers = [](const Checkpoint& from, std::string_view name) {
    const StoredTensor* tensor = from.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor != nullptr ? *read_floats(*tensor) : std::vector<float>(1 << 16);
  };
  auto rows = [&](std::string_view ours, std::string_view theirs, int64_t before, int64_t dim, int64_t width) {
    const std::vector<float> out = numbers(file, ours), in = numbers(original, theirs);
    for (int64_t head = 0; head < kKeys * kShared; ++head) {
      const int64_t from = head % kKeys * kShared + head / kKeys;  // of neighbours that share a key
      for (int64_t i = 0; i < dim * width; ++i)
        ASSERT_EQ(out[static_cast<size_t>((before + head * dim) * width + i)],
                  in[static_cast<size_t>((before + from * dim) * width + i)])
            << ours << " " << head;
    }
    for (int64_t i = 0; i < before * width; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], in[static_cast<size_t>(i)]);
  };
  const std::string theirs = "model.layers.0.linear_attn.";
  rows("blk.0.attn_qkv.weight", theirs + "in_proj_qkv.weight", 2 * kKeys * kDim, kDim, kWidth);
  rows("blk.0.attn_gate.weight", theirs + "in_proj_z.weight", 0, kDim, kWidth);
  rows("blk.0.ssm_beta.weight", theirs + "in_proj_b.weight", 0, 1, kWidth);
  rows("blk.0.ssm_alpha.weight", theirs + "in_proj_a.weight", 0, 1, kWidth);
  rows("blk.0.ssm_dt.bias", theirs + "dt_bias", 0, 1, 1);
  rows("blk.0.ssm_conv1d.weight", theirs + "conv1d.weight", 2 * kKeys * kDim, kDim, 4);
  const std::vector<float> out = numbers(file, "blk.0.ssm_out.weight"),
                           in = numbers(original, theirs + "out_proj.weight");
  for (int64_t i = 0; i < kWidth * kWidth; ++i) {
    const int64_t head = i % kWidth / kDim, from = head % kKeys * kShared + head / kKeys;
    ASSERT_EQ(out[static_cast<size_t>(i)], in[static_cast<size_t>(i + (from - head) * kDim)]) << i;
  }
  EXPECT_EQ(file.find("blk.3.attn_q.weight")->shape, (std::vector<int64_t>{256, 64}));  // queries and gates
  EXPECT_NE(file.find("blk.0.post_attention_norm.weight"), nullptr);
  const Metadata& keys = file.metadata();
  EXPECT_EQ(keys.get_string("general.architecture", "").value(), "qwen35");
  EXPECT_EQ(keys.get_int("qwen35.ssm.group_count", 0).value(), 2);
  EXPECT_EQ(keys.get_int("qwen35.ssm.time_step_rank", 0).value(), 4);
  EXPECT_EQ(keys.get_int("qwen35.full_attention_interval", 0).value(), 4);
  EXPECT_EQ(keys.get_int("qwen35.rope.dimension_count", 0).value(), 8);
  ASSERT_NE(keys.find("qwen35.rope.dimension_sections"), nullptr);
}

std::vector<float> numbers_of(const ModelSource& source, const Slot& slot) {
  std::vector<float> out;
  if (slot.weight && slot.kind == SlotKind::matrix) {
    std::vector<std::byte> room;
    for (int64_t expert = 0; expert < slot.matrices(); ++expert) {
      const HostMatrix matrix = source.matrix(slot, expert, room).value();
      std::vector<float> some(static_cast<size_t>(matrix.rows * matrix.cols));
      format(matrix.type).to_float(matrix.bytes.data(), some.data(), matrix.rows * matrix.cols);
      out.insert(out.end(), some.begin(), some.end());
    }
  } else if (slot.weight) {
    out = slot.kind == SlotKind::norm ? source.norm_weight(slot).value() : source.vector(slot).value();
  }
  if (slot.bias) {
    const std::vector<float> bias = source.bias(slot).value();
    out.insert(out.end(), bias.begin(), bias.end());
  }
  return out;
}

// Encoders and their classifiers: the same slots with the same numbers, and rows that become one in the same way.
TEST(Convert, EncodersComeBackAsTheyWent) {
  for (const char* name : {"bert-reranker", "nomic-bert-mean", "modernbert-cls"}) {
    const test::Folder room;
    const Checkpoint original =
        Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/eval/embed" / name).value();
    auto file = converted(original, room.path() / "x.gguf", "F32");
    ASSERT_TRUE(file.ok()) << name << ": " << file.error().message;
    const ModelSource in = ModelSource::open(original).value();
    auto opened = ModelSource::open(*file);
    ASSERT_TRUE(opened.ok()) << name << ": " << opened.error().message;
    const ModelSpec &a = in.spec(), &b = opened->spec();
    EXPECT_EQ(a.pool->pooling, b.pool->pooling) << name;
    EXPECT_EQ(a.pool->scores, b.pool->scores) << name;
    EXPECT_EQ(a.context, b.context) << name;
    EXPECT_EQ(a.positions, b.positions) << name;
    EXPECT_EQ(a.token_types, b.token_types) << name;
    EXPECT_TRUE(sees_ahead(b)) << name;
    EXPECT_FALSE(b.head) << name;
    ASSERT_EQ(a.ropes.size(), b.ropes.size()) << name;
    for (size_t i = 0; i < a.ropes.size(); ++i) EXPECT_EQ(a.ropes[i].frequencies, b.ropes[i].frequencies) << name;
    for (size_t i = 0; i < a.layers.size(); ++i) {
      const auto &one = std::get<GqaSpec>(a.layers[i].mixer), &other = std::get<GqaSpec>(b.layers[i].mixer);
      EXPECT_EQ(one.window, other.window) << name << " " << i;
      EXPECT_EQ(one.ahead, other.ahead) << name << " " << i;
      EXPECT_EQ(one.rope, other.rope) << name << " " << i;
      EXPECT_EQ(one.scale, other.scale) << name << " " << i;
      EXPECT_EQ(std::get<DenseSpec>(a.layers[i].ffn).activation, std::get<DenseSpec>(b.layers[i].ffn).activation);
    }
    const std::vector<Slot> slots_in = slots(a), slots_out = slots(b);
    ASSERT_EQ(slots_in.size(), slots_out.size()) << name;
    for (size_t i = 0; i < slots_in.size(); ++i) {
      ASSERT_EQ(slots_in[i].name, slots_out[i].name) << name;
      EXPECT_EQ(numbers_of(in, slots_in[i]), numbers_of(*opened, slots_out[i])) << name << " " << slots_in[i].name;
    }
  }
  const test::Folder room;
  const Checkpoint dense =
      Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/eval/embed/bert-mean-dense").value();
  auto refused = converted(dense, room.path() / "y.gguf", "F32");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("layers after its pooling"), std::string::npos) << refused.error().message;
}

TEST(Convert, LeavesNothingBehindWhenStopped) {
  const test::Folder room;
  auto original = Checkpoint::open(test::golden_folder() / "qwen2").value();
  const ModelSource source = ModelSource::open(original).value();
  auto stopped =
      convert(source, room.path() / "x.gguf", {.progress = [](uint64_t, uint64_t) { return false; }, .threads = 1});
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(room.path()));
}

TEST(Convert, RefusesWhatTheFormatCannotSay) {
  const test::Folder room;
  Edited bloom("bloom");
  bloom.config["apply_residual_connection_post_layernorm"] = true;
  const ModelSource source = bloom.source().value();
  EXPECT_NE(convert(source, room.path() / "x.gguf", {}).error().message.find("norms on the residual stream"),
            std::string::npos);
}

TEST(Gguf, NamesTheKeyThatIsMissingOrWrong) {
  const test::Folder room;
  GgufWriter writer;
  ASSERT_TRUE(writer.put("general.architecture", "llama").ok());
  ASSERT_TRUE(writer.put("llama.embedding_length", uint32_t{64}).ok());
  ASSERT_TRUE(writer.begin(room.path() / "x.gguf").ok() && writer.finish().ok());
  auto file = Checkpoint::open(room.path() / "x.gguf").value();
  EXPECT_EQ(ModelSource::open(file).error().message, "x.gguf: the key 'llama.context_length' is missing");

  GgufWriter moe;
  ASSERT_TRUE(moe.put("general.architecture", "hunyuan-moe").ok());
  ASSERT_TRUE(moe.begin(room.path() / "y.gguf").ok() && moe.finish().ok());
  auto experts = Checkpoint::open(room.path() / "y.gguf").value();
  EXPECT_EQ(ModelSource::open(experts).error().message,
            "y.gguf: hunyuan-moe (mixture of experts) is not supported yet; the nearest that is: hunyuan_v1_dense");
}

}  // namespace
}  // namespace millrace
