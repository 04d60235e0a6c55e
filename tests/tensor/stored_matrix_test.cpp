// Quantised Hugging Face checkpoints against what their makers' own code makes of them: dequantised.json holds the hash
// of every weight's float32 numbers. One checkpoint per kind is in the tree, the others are read where they lie.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>

#include "base/file.h"
#include "tensor/files.h"
#include "tensor/hugging_face.h"
#include "tensor/sha256.h"
#include "tensor/stored_matrix.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> cases() {
  std::vector<fs::path> found;
  std::set<std::string> names;
  for (const char* folder :
       {MILLRACE_SOURCE_DIR "/tests/tensor/data/quant", MILLRACE_SOURCE_DIR "/../shared/golden-formats/quant"}) {
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent))
      if (names.insert(entry.path().filename().string()).second) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return a.filename() < b.filename(); });
  return found;
}

std::string name_of(const testing::TestParamInfo<fs::path>& row) {
  std::string name = row.param.filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Quantised : public testing::TestWithParam<fs::path> {};
INSTANTIATE_TEST_SUITE_P(StoredMatrix, Quantised, testing::ValuesIn(cases()), name_of);

Json expected_of(const fs::path& folder) {
  const auto text = read_file(folder / "dequantised.json");
  EXPECT_TRUE(text.ok());
  return parse_json(*text).value();
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) error += std::pow(double{a[i]} - b[i], 2), size += double{a[i]} * a[i];
  return size == 0 ? error : std::sqrt(error / size);
}

// The numbers of a matrix as it is kept.
std::vector<float> kept(const StoredMatrix& matrix, Keep keep) {
  std::vector<int64_t> rows(static_cast<size_t>(matrix.rows()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const int64_t values = matrix.rows() * matrix.cols();
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(matrix.type(keep), values)));
  matrix.read(rows, keep, bytes);
  std::vector<float> out(static_cast<size_t>(values));
  format(matrix.type(keep)).to_float(bytes.data(), out.data(), values);
  return out;
}

// The same of inputs in the order of their groups, put back.
std::vector<float> kept_in_order(const StoredMatrix& matrix) {
  std::vector<int64_t> rows(static_cast<size_t>(matrix.rows()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const int64_t values = matrix.rows() * matrix.cols();
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(matrix.ordered_type(), values)));
  matrix.read_ordered(rows, bytes);
  std::vector<float> ordered(static_cast<size_t>(values)), out(static_cast<size_t>(values));
  format(matrix.ordered_type()).to_float(bytes.data(), ordered.data(), values);
  for (int64_t i = 0; i < values; ++i)
    out[static_cast<size_t>(i / matrix.cols() * matrix.cols() +
                            matrix.order()[static_cast<size_t>(i % matrix.cols())])] = ordered[static_cast<size_t>(i)];
  return out;
}

TEST_P(Quantised, EqualsTheMakersNumbersBitForBit) {
  const auto checkpoint = Checkpoint::open(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(unsupported_quantisation(*checkpoint), std::nullopt);
  const Json expected = expected_of(GetParam());
  int quantised = 0;
  for (const auto& [key, about] : expected.get_object()) {
    const std::string name(key);
    if (!name.ends_with(".weight")) continue;
    const auto matrix = stored_matrix(*checkpoint, name.substr(0, name.size() - 7));
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    if (*matrix == nullptr) continue;
    ++quantised;
    const auto& shape = find(about, "shape")->get_array();
    ASSERT_EQ((*matrix)->rows(), shape[0].get_int64()) << name;
    ASSERT_EQ((*matrix)->cols(), shape[1].get_int64()) << name;
    std::vector<float> numbers(static_cast<size_t>((*matrix)->rows() * (*matrix)->cols()));
    (*matrix)->floats(0, (*matrix)->rows(), numbers.data());
    EXPECT_EQ(test::sha256(numbers.data(), numbers.size() * 4),
              std::string_view(find(about, "sha256_of_float32_bytes")->get_string()))
        << name << " " << (*matrix)->method();
    // The exact form loses nothing; the small one no more than its format's step.
    EXPECT_EQ(kept(**matrix, Keep::exact), numbers) << name;
    EXPECT_LT(relative_error(numbers, kept(**matrix, Keep::small)), 0.012)
        << name << " as " << format((*matrix)->type(Keep::small)).name;
    if (!(*matrix)->order().empty()) {
      EXPECT_LT(relative_error(numbers, kept_in_order(**matrix)), 0.002)
          << name << " as " << format((*matrix)->ordered_type()).name << " in another order";
    }
  }
  EXPECT_GT(quantised, 0);
}

TEST_P(Quantised, FourAndEightBitsTakeLittleMoreThanTheFile) {
  const auto checkpoint = Checkpoint::open(GetParam());
  ASSERT_TRUE(checkpoint.ok());
  int64_t stored = 0, small = 0;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    bool codes = false;
    for (const std::string_view ending : {".qweight", ".weight_packed", ".weight"}) {
      if (codes || !tensor.name.ends_with(ending)) continue;
      const auto matrix = stored_matrix(*checkpoint, tensor.name.substr(0, tensor.name.size() - ending.size()));
      ASSERT_TRUE(matrix.ok());
      if (*matrix == nullptr) continue;
      codes = true;
      const auto order = (*matrix)->order();
      const DType type = order.empty() ? (*matrix)->type(Keep::small) : (*matrix)->ordered_type();
      small += bytes_of(type, (*matrix)->rows() * (*matrix)->cols()) + static_cast<int64_t>(order.size_bytes());
    }
    if (!codes && !is_beside_codes(tensor.name)) small += static_cast<int64_t>(tensor.bytes.size());
    stored += static_cast<int64_t>(tensor.bytes.size());
  }
  const std::string name = GetParam().filename().string();
  const bool fewer_bits = name.find("-2-") != std::string::npos || name.find("-3-") != std::string::npos ||
                          name.find("-w3") != std::string::npos;
  if (fewer_bits) GTEST_SKIP() << name << ": " << stored << " bytes become " << small;
  EXPECT_LE(static_cast<double>(small), 1.2 * static_cast<double>(stored));
}

// A module "m" put together by hand.
class Made {
 public:
  void add(const std::string& ending, DType type, const std::vector<int64_t>& shape, const std::string& bytes) {
    JsonArray extents;
    for (const int64_t extent : shape) extents.emplace_back(extent);
    header_["m" + ending] = {{"dtype", std::string(format(type).name)},
                             {"shape", extents},
                             {"data_offsets", JsonArray{data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  // Read as this configuration says.
  StoredMatrixPtr read(const std::string& config) {
    const std::string text = to_text(header_);
    const uint64_t size = text.size();
    folder_.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data_);
    folder_.write("config.json", config);
    auto opened = Checkpoint::open(folder_.path());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    opened_.push_back(std::make_unique<Checkpoint>(std::move(*opened)));
    const auto found = stored_matrix(*opened_.back(), "m");
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : nullptr;
  }

 private:
  test::Folder folder_;
  JsonObject header_;
  std::string data_;
  std::vector<std::unique_ptr<Checkpoint>> opened_;
};

template <class T>
std::string raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::vector<float> floats_of(const StoredMatrix& matrix) {
  std::vector<float> all(static_cast<size_t>(matrix.rows() * matrix.cols()));
  matrix.floats(0, matrix.rows(), all.data());
  return all;
}

// What the checkpoint says of inputs decides whether whole numbers are multiplied; the codes stay in either form.
TEST(StoredMatrix, Int8WhoseInputsAreRoundedToo) {
  std::string codes;
  for (int i = 0; i < 2 * 256; ++i) codes += static_cast<char>(i * 37 % 255 - 127);
  Made made;
  made.add(".weight", DType::i8, {2, 256}, codes);
  made.add(".weight_scale", DType::f32, {2, 1}, raw<float>({0.003f, 0.0071f}));
  const std::string with = R"({"quantization_config":{"config_groups":{"a":{"input_activations":)"
                           R"({"num_bits":8,"type":"int","dynamic":true}}}}})";
  const StoredMatrixPtr both = made.read(with), plain = made.read("{}");
  ASSERT_TRUE(both != nullptr && plain != nullptr);
  EXPECT_EQ(both->type(Keep::small), DType::int8_128);
  EXPECT_EQ(kept(*both, Keep::small), floats_of(*both)) << "factors are float32";
  EXPECT_EQ(plain->type(Keep::small), DType::q8_0);
  const StoredMatrixPtr still = made.read(
      R"({"quantization_config":{"config_groups":{"a":{"input_activations":{"num_bits":8,"type":"int","dynamic":false}}}}})");
  EXPECT_EQ(still->type(Keep::small), DType::q8_0) << "a factor found beforehand may clip";
}

// Eight bits with zero points, whose groups are of inputs that do not follow each other.
TEST(StoredMatrix, CodesStayInTheOrderOfTheirGroups) {
  constexpr int64_t kInputs = 128, kOutputs = 8, kGroups = 2;
  std::vector<uint32_t> words, zeros;
  for (int64_t i = 0; i < kInputs / 4 * kOutputs; ++i) words.push_back(static_cast<uint32_t>(i * 2654435761u));
  for (int64_t i = 0; i < kGroups * kOutputs / 4; ++i) zeros.push_back(static_cast<uint32_t>(i * 40503u + 0x11f00742u));
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < kGroups * kOutputs; ++i) scales.push_back(static_cast<uint16_t>(0x2000 + 37 * i));
  std::vector<int32_t> groups;
  for (int32_t i = 0; i < kInputs; ++i) groups.push_back(i * 7 % 128 < 64 ? 1 : 0);
  Made made;
  made.add(".qweight", DType::i32, {kInputs / 4, kOutputs}, raw(words));
  made.add(".qzeros", DType::i32, {kGroups, kOutputs / 4}, raw(zeros));
  made.add(".scales", DType::f16, {kGroups, kOutputs}, raw(scales));
  made.add(".g_idx", DType::i32, {kInputs}, raw(groups));
  const StoredMatrixPtr matrix = made.read(
      R"({"quantization_config":{"quant_method":"gptq","bits":8,"group_size":64,"checkpoint_format":"gptq_v2"}})");
  ASSERT_NE(matrix, nullptr);
  ASSERT_EQ(static_cast<int64_t>(matrix->order().size()), kInputs);
  EXPECT_EQ(matrix->ordered_type(), DType::q8_zero);
  EXPECT_EQ(kept_in_order(*matrix), floats_of(*matrix)) << "scales are float16: nothing is rounded";
  for (int64_t i = 1; i < kInputs; ++i) {
    const auto before = static_cast<size_t>(matrix->order()[static_cast<size_t>(i - 1)]),
               here = static_cast<size_t>(matrix->order()[static_cast<size_t>(i)]);
    EXPECT_LE(groups[before], groups[here]);
    if (groups[before] == groups[here]) {
      EXPECT_LT(before, here);
    }
  }
}

}  // namespace
}  // namespace millrace
