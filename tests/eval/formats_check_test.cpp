// verify formats: pairs of bytes and numbers, right, wrong and misshapen.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "eval/formats_check.h"

namespace millrace {
namespace {

// A safetensors file of TQ2_0.raw (one group of codes 1, and d = 1) and its values, of which `wrong` are not zero.
std::filesystem::path written(int wrong, const std::string& name, int raw_bytes = 66) {
  std::string header = fmt::format(R"({{"{0}.raw":{{"dtype":"U8","shape":[{1}],"data_offsets":[0,{1}]}},)"
                                   R"("{0}.values":{{"dtype":"F32","shape":[256],"data_offsets":[{1},{2}]}}}})",
                                   name, raw_bytes, raw_bytes + 1024);
  std::string raw(static_cast<size_t>(raw_bytes), '\x55');
  raw[static_cast<size_t>(raw_bytes) - 2] = 0, raw[static_cast<size_t>(raw_bytes) - 1] = 0x3c;
  std::vector<float> values(256, 0.0f);
  for (int i = 0; i < wrong; ++i) values[static_cast<size_t>(10 + i)] = 0.5f;
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("formats-{}-{}.safetensors", name, wrong);
  std::ofstream out(path, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header << raw;
  out.write(reinterpret_cast<const char*>(values.data()), 1024);
  return path;
}

FormatResult checked(const std::filesystem::path& path) {
  auto file = Checkpoint::open(path);
  EXPECT_TRUE(file.ok()) << file.error().message;
  auto results = check_formats(*file);
  EXPECT_TRUE(results.ok()) << results.error().message;
  EXPECT_EQ(results->size(), 1u);
  return results->front();
}

TEST(FormatsCheck, EqualNumbersPass) {
  const FormatResult result = checked(written(0, "TQ2_0"));
  EXPECT_TRUE(result.passed()) << result.failure;
  EXPECT_EQ(result.values, 256);
}

TEST(FormatsCheck, OneDifferentNumberIsFound) {
  const FormatResult result = checked(written(2, "TQ2_0"));
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(result.different, 2);
  EXPECT_EQ(result.first_difference, 10);
  EXPECT_EQ(result.expected, 0.5f);
}

TEST(FormatsCheck, SaysWhatDoesNotFit) {
  EXPECT_EQ(checked(written(0, "Q9_Z")).failure, "'Q9_Z' is no format known here");
  EXPECT_EQ(checked(written(0, "Q8_K")).failure, "Q8_K cannot be read");
  EXPECT_EQ(checked(written(0, "TQ2_0", 67)).failure, "expected 66 bytes for 256 values, found 67");
}

}  // namespace
}  // namespace millrace
