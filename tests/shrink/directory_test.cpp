// Directories for other engines: packed bytes are those of the makers' own packers, what is written is read again bit
// for bit, and a directory appears whole or not at all.
#include "model/directory.h"

#include <sys/resource.h>

#include <csignal>
#include <set>

#include "base/file.h"
#include "model/directory_config.h"
#include "shrink/affine.h"
#include "shrink/rig.h"
#include "shrink/rounding.h"
#include "tensor/files.h"
#include "tensor/stored_matrix.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

fs::path quant_folder(const std::string& name) {
  const fs::path own = fs::path(MILLRACE_SOURCE_DIR) / "tests/tensor/data/quant" / name;
  return fs::exists(own) ? own : fs::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/golden-formats/quant" / name;
}

uint32_t word(const StoredTensor& tensor, int64_t i) {
  uint32_t out;
  std::memcpy(&out, tensor.bytes.data() + i * 4, 4);
  return out;
}

// A module of a golden, unpacked by hand.
GroupedCodes unpacked(const Checkpoint& from, const std::string& stem, PackLayout layout, CodeGrid grid) {
  auto need = [&](const char* ending) -> const StoredTensor& { return *from.find(stem + ending); };
  constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const StoredMatrixPtr stored = stored_matrix(from, stem).value();
  GroupedCodes out = {.grid = grid, .rows = stored->rows(), .cols = stored->cols()};
  const bool turned = layout == PackLayout::gptq || layout == PackLayout::awq;
  const StoredTensor& scales = need(turned ? ".scales" : ".weight_scale");
  const std::vector<float> factors = read_floats(scales).value();
  out.grid.scale_type = scales.type;
  const int64_t rows = out.rows, groups = out.groups();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < out.cols; ++c) {
      uint32_t code = 0;
      if (layout == PackLayout::gptq) code = word(need(".qweight"), c / 8 * rows + r) >> (c % 8 * 4) & 15;
      if (layout == PackLayout::awq) code = word(need(".qweight"), c * (rows / 8) + r / 8) >> (4 * kNibble[r % 8]) & 15;
      if (layout == PackLayout::packed)
        code = word(need(".weight_packed"), r * (out.cols / 8) + c / 8) >> (c % 8 * 4) & 15;
      if (layout == PackLayout::int8)
        code = static_cast<uint32_t>(static_cast<int8_t>(need(".weight").bytes[static_cast<size_t>(r * out.cols + c)]) +
                                     128);
      out.codes.push_back(static_cast<uint8_t>(code));
    }
    for (int64_t g = 0; g < groups; ++g) {
      uint32_t zero = static_cast<uint32_t>(grid.middle());
      if (layout == PackLayout::gptq) zero = (word(need(".qzeros"), g * (rows / 8) + r / 8) >> (r % 8 * 4) & 15) + 1;
      if (layout == PackLayout::awq) zero = word(need(".qzeros"), g * (rows / 8) + r / 8) >> (4 * kNibble[r % 8]) & 15;
      if (layout == PackLayout::packed && !grid.symmetric)
        zero = word(need(".weight_zero_point"), r / 8 * groups + g) >> (r % 8 * 4) & 15;
      out.zeros.push_back(static_cast<uint8_t>(zero));
      out.scales.push_back(factors[static_cast<size_t>(turned ? g * rows + r : r * groups + g)]);
    }
  }
  return out;
}

struct Golden {
  const char* name;
  PackLayout layout;
  CodeGrid grid;
};

class PackedAsMakersDo : public ::testing::TestWithParam<Golden> {};

TEST_P(PackedAsMakersDo, ByteForByte) {
  const Golden& golden = GetParam();
  if (!fs::exists(quant_folder(golden.name))) GTEST_SKIP() << golden.name << " is not there";
  const Checkpoint from = Checkpoint::open(quant_folder(golden.name)).value();
  int modules = 0;
  for (const char* stem :
       {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.down_proj"}) {
    const GroupedCodes codes = unpacked(from, stem, golden.layout, golden.grid);
    std::set<std::string> written;
    for (const PackedTensor& each : pack(golden.layout, codes)) {
      const StoredTensor* wanted = from.find(std::string(stem) + "." + each.ending);
      ASSERT_NE(wanted, nullptr) << stem << " " << each.ending;
      EXPECT_EQ(each.type, wanted->type) << wanted->name;
      EXPECT_EQ(each.shape, wanted->shape) << wanted->name;
      EXPECT_TRUE(std::ranges::equal(each.bytes, wanted->bytes)) << wanted->name;
      written.insert(wanted->name);
    }
    for (const StoredTensor& each : from.tensors()) {
      const bool own = each.name.starts_with(std::string(stem) + ".") && !each.name.ends_with(".bias");
      EXPECT_TRUE(!own || written.contains(each.name)) << each.name;
    }
    ++modules;
  }
  EXPECT_EQ(modules, 3);
  // What the configuration says, key by key.
  const Json ours = quantisation_config({golden.layout, golden.grid, {}, "x"});
  const Json& theirs = *find(from.config(), "quantization_config");
  for (const auto& [key, value] : theirs.as_object()) {
    if (key == "meta" || key == "damp_percent") continue;
    const Json* mine = ours.as_object().if_contains(key);
    ASSERT_NE(mine, nullptr) << std::string_view(key);
    EXPECT_EQ(to_text(*mine), to_text(value)) << std::string_view(key);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, PackedAsMakersDo,
    ::testing::Values(Golden{"gptq-4-sym-v1", PackLayout::gptq, {.group = 128, .symmetric = true}},
                      Golden{"gptq-4-asym-v1", PackLayout::gptq, {.group = 32}},
                      Golden{"awq-gemm-g32", PackLayout::awq, {.group = 32}},
                      Golden{"awq-gemm-big", PackLayout::awq, {.group = 128}},
                      Golden{"ct-w4-sym", PackLayout::packed, {.group = 128, .symmetric = true}},
                      Golden{"ct-w4-asym", PackLayout::packed, {.group = 32}},
                      Golden{"ct-w8a8-int", PackLayout::int8, {.bits = 8, .group = 0, .symmetric = true}}),
    [](const auto& each) {
      std::string name = each.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

struct Written {
  Written(const std::string& name, PackLayout kind, const CodeGrid& codes)
      : checkpoint(Checkpoint::open(test::golden_path(name)).value()),
        source(ModelSource::open(checkpoint).value()),
        layout(kind),
        grid(codes),
        student{source, {}} {
    Team team(2);
    const CodeRounding rounding(grid, [this](const Slot& slot) { return can_pack(source, slot, layout, grid); });
    EXPECT_TRUE(round_matrices(team, source, {}, rounding, nullptr, nullptr, student).ok());
  }
  Result<DirectoryReport> write(const fs::path& target) const {
    DirectoryOptions options = {.layout = layout, .grid = grid, .maker = "test"};
    options.codes = [&](const Slot& slot, int64_t expert) -> const GroupedCodes* {
      const auto found = student.codes.find(code_name(slot, expert));
      return found != student.codes.end() ? found->second.get() : nullptr;
    };
    return write_directory(student.source, target, options);
  }
  Checkpoint checkpoint;
  ModelSource source;
  PackLayout layout;
  CodeGrid grid;
  Student student;
};

// What is read again is what was decided, in fused tensors and experts too.
void expect_read_again(const std::string& name, PackLayout layout, const CodeGrid& grid, size_t least) {
  SCOPED_TRACE(name);
  const test::Folder room;
  Written made(name, layout, grid);
  const auto report = made.write(room.path() / "out");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_GE(made.student.codes.size(), least);
  const Checkpoint again = Checkpoint::open(room.path() / "out").value();
  const auto opened = ModelSource::open(again);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (const Slot& slot : slots(made.source.spec())) {
    if (slot.kind != SlotKind::matrix || !slot.weight) continue;
    for (int64_t e = 0; e < slot.matrices(); ++e)
      EXPECT_EQ(read_matrix(*opened, slot, e).value(), read_matrix(made.student.source, slot, e).value()) << slot.name;
  }
  EXPECT_TRUE(fs::exists(room.path() / "out/config.json"));
  size_t entries = 0;
  for (const auto& each : fs::directory_iterator(room.path())) ++entries, static_cast<void>(each);
  EXPECT_EQ(entries, 1u);  // no part is left
}

TEST(Directory, IsReadAgainBitForBit) {
  const CodeGrid asym = {.group = 32}, sym = {.group = 32, .symmetric = true};
  CodeGrid v1 = asym, half = sym;
  v1.least_zero = 1;
  half.scale_type = DType::bf16;
  expect_read_again("llama-gqa-rope3", PackLayout::gptq, v1, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::gptq, sym, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::gptq, {.bits = 8, .group = 32, .symmetric = true}, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::awq, asym, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::packed, half, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::packed, asym, 14);
  expect_read_again("llama-gqa-rope3", PackLayout::int8, {.bits = 8, .group = 0, .symmetric = true}, 14);
  expect_read_again("phi3", PackLayout::gptq, sym, 4);      // fused qkv and gate
  expect_read_again("gemma2", PackLayout::packed, sym, 7);  // norms stored less one
}

TEST(Directory, FoldedNormsAreWrittenAsTheyAreStored) {
  const test::Folder room;
  Written made("gemma2", PackLayout::packed, {.group = 32, .symmetric = true});
  const FoldPlan plan = fold_plan(made.source.spec());
  ASSERT_FALSE(plan.groups.empty());
  ASSERT_TRUE(can_write(made.source, plan.groups.front().giver));
  Folds folds;
  folds.set(plan.groups.front(), 0, std::vector<float>(static_cast<size_t>(plan.groups.front().size), 2.0f));
  Team team(1);
  const CodeRounding rounding(made.grid,
                              [&](const Slot& slot) { return can_pack(made.source, slot, made.layout, made.grid); });
  ASSERT_TRUE(round_matrices(team, made.source, folds, rounding, nullptr, nullptr, made.student).ok());
  ASSERT_TRUE(made.write(room.path() / "out").ok());
  const Checkpoint again = Checkpoint::open(room.path() / "out").value();
  const ModelSource opened = ModelSource::open(again).value();
  const Slot& norm = plan.groups.front().giver;
  const auto before = made.source.norm_weight(norm).value(), after = opened.norm_weight(norm).value();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] / 2, 4e-3 * std::abs(before[i]) + 4e-3);
}

TEST(Directory, AppearsWholeOrNotAtAll) {
  const test::Folder room;
  Written made("llama-gqa-rope3", PackLayout::awq, {.group = 32});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto report = made.write(room.path() / "out");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(fs::is_empty(room.path())) << "something was left behind";
  EXPECT_TRUE(made.write(room.path() / "out").ok());
}

TEST(Affine, ScalesFollowImportanceAndGptqLosesLess) {
  constexpr int64_t kCols = 256, kRows = 16, kTokens = 600;
  const std::vector<float> inputs = test::related_rows(kTokens, kCols, 21);
  const std::vector<double> products = test::products_of(inputs, kTokens, kCols);
  std::vector<float> weights(kRows * kCols);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(0.1 * (test::draw(8, static_cast<uint32_t>(i), 0) - 0.5));
  Team one(1), three(3);
  const Curvature curvature = Curvature::make(one, products, kCols, kTokens, 0.01).value();
  auto floats = [](const GroupedCodes& codes) {
    std::vector<float> out(static_cast<size_t>(codes.rows * codes.cols));
    for (int64_t r = 0; r < codes.rows; ++r) codes.floats(r, &out[static_cast<size_t>(r * codes.cols)]);
    return out;
  };
  for (const CodeGrid& grid :
       {CodeGrid{.group = 64}, CodeGrid{.group = 128, .symmetric = true}, CodeGrid{.group = 0, .symmetric = true},
        CodeGrid{.bits = 8, .group = 0, .symmetric = true}}) {
    const GroupedCodes rounded = round_to_codes(one, grid, weights, kRows, kCols, {});
    const GroupedCodes chosen = gptq_codes(one, grid, weights, kRows, curvature);
    EXPECT_EQ(chosen.codes, gptq_codes(three, grid, weights, kRows, curvature).codes);
    auto lost = [&](const GroupedCodes& codes) {
      return output_error(one, weights, floats(codes), kRows, products, kCols, kTokens);
    };
    EXPECT_LT(lost(chosen), 0.8 * lost(rounded)) << grid.bits << " " << grid.group;
    // A planted column is kept by importance.
    std::vector<float> importance(kCols, 1.0f);
    importance[37] = 5000;
    const std::vector<float> plain = floats(rounded),
                             kept = floats(round_to_codes(three, grid, weights, kRows, kCols, importance));
    double before = 0, after = 0;
    for (size_t r = 0; r < kRows; ++r) {
      before += std::pow(static_cast<double>(plain[r * kCols + 37] - weights[r * kCols + 37]), 2);
      after += std::pow(static_cast<double>(kept[r * kCols + 37] - weights[r * kCols + 37]), 2);
    }
    EXPECT_LT(after, 0.5 * before) << grid.bits << " " << grid.group;
  }
}

}  // namespace
}  // namespace millrace
