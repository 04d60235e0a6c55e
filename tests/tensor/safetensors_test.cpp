#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include "tensor/files.h"

namespace millrace {
namespace {

using namespace test;

void expect_refused(std::string_view file, std::string_view part, Code code = Code::corrupt) {
  const Result<SafetensorsFile> result = parse_safetensors(bytes_view(file));
  ASSERT_FALSE(result.ok()) << "accepted, though: " << part;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << result.error().message;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = raw_safetensors(
      R"({"b":{"shape":[2,3],"dtype":"BF16","data_offsets":[8,20]},"__metadata__":{"format":"pt","k":"v"},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"U8","shape":[0],"data_offsets":[20,20]},)"
      R"("s":{"dtype":"I64","shape":[],"data_offsets":[20,28]}}      )",
      28);
  ASSERT_TRUE(looks_like_safetensors(bytes_view(file)));
  const auto parsed = parse_safetensors(bytes_view(file));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[1].name, "b");
  EXPECT_EQ(parsed->tensors[1].type, DType::bf16);
  EXPECT_EQ(parsed->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(parsed->tensors[1].bytes.size(), 12u);
  EXPECT_EQ(parsed->tensors[1].bytes.data(), bytes_view(file).data() + file.size() - 20);
  EXPECT_EQ(parsed->tensors[2].values(), 0);
  EXPECT_EQ(parsed->tensors[3].values(), 1);
  EXPECT_EQ(parsed->metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"k", "v"}}));
}

TEST(Safetensors, AnEmptyFileOfTensorsIsFine) {
  EXPECT_TRUE(parse_safetensors(bytes_view(raw_safetensors("{}", 0))).ok());
  EXPECT_TRUE(parse_safetensors(bytes_view(raw_safetensors(R"({"__metadata__":{}})", 0))).ok());
}

TEST(Safetensors, HeaderMustBeWhatTheFormatSays) {
  expect_refused("", "too few");
  expect_refused("1234567", "too few");
  expect_refused(std::string(8, '\xff') + "{}", "more than the 100000000 allowed");
  expect_refused(raw_safetensors("", 0), "not valid JSON");
  expect_refused(raw_safetensors("[]", 0), "not a JSON object");
  expect_refused(raw_safetensors("7", 0), "not a JSON object");
  expect_refused(raw_safetensors("{", 0), "not valid JSON");
  expect_refused(raw_safetensors("{} x", 0), "goes on behind its JSON");
  expect_refused(raw_safetensors("{}{}", 0), "goes on behind its JSON");
  expect_refused(raw_safetensors(R"({"a":1})", 0), "a number where none belongs, under 'a'");
  expect_refused(raw_safetensors(R"({"a":"x"})", 0), "a string where none belongs");
  expect_refused(raw_safetensors(R"({"a":null})", 0), "null where none belongs");
  expect_refused(raw_safetensors(R"({"a":[1]})", 0), "an array where none belongs");
  expect_refused(raw_safetensors(R"({"a":{"b":{}}})", 0), "unknown field 'b'");
  expect_refused(raw_safetensors(R"({"__metadata__":{"a":1}})", 0), "a number where none belongs");
  expect_refused(raw_safetensors(R"({"__metadata__":{"a":{}}})", 0), "an object where none belongs");
  expect_refused(raw_safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0), "'__metadata__' twice");
  expect_refused(raw_safetensors(R"({"__metadata__":{"a":"1","a":"1"}})", 0), "metadata key 'a' twice");
  expect_refused(raw_safetensors(std::string(100, '['), 0), "not a JSON object");
  expect_refused(raw_safetensors("{\"" + std::string(1025, 'n') + "\":{}}", 0), "more than 1024 bytes");
  expect_refused(raw_safetensors("{\"a\":{\"shape\":" + std::string(1000, '['), 0), "an array where none belongs");
}

TEST(Safetensors, TensorsMustBeComplete) {
  const auto with = [](std::string_view body, size_t bytes = 8) {
    return raw_safetensors("{\"a\":{" + std::string(body) + "}}", bytes);
  };
  EXPECT_TRUE(parse_safetensors(bytes_view(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"))).ok());
  expect_refused(with(""), "lacks its dtype");
  expect_refused(with(R"("dtype":"F32","shape":[2])"), "lacks its");
  expect_refused(with(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), "has its dtype twice");
  expect_refused(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), "unknown field 'x'");
  expect_refused(with(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), "'F33', which is not supported",
                 Code::unsupported);
  expect_refused(with(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), "a number where none belongs");
  expect_refused(with(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "a number where none belongs");
  expect_refused(with(R"("dtype":"F32","shape":"2","data_offsets":[0,8])"), "a string where none belongs");
  expect_refused(with(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), "an array where none belongs");
  expect_refused(with(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "a fraction where none belongs");
  expect_refused(with(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "negative");
  expect_refused(with(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), "impossible");
  expect_refused(with(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), "impossible");
  expect_refused(with(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "two data_offsets, but has 1");
  expect_refused(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "two data_offsets, but has 3");
  expect_refused(with(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "shape [3] cannot lie at bytes 0 to 8");
  expect_refused(with(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "begins at byte 8");
  expect_refused(with(R"("dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8])"), "cannot lie");
  expect_refused(with(R"("dtype":"F64","shape":[1099511627776,2097152],"data_offsets":[0,0])"),
                 "cannot lie");  // 2^64 bytes
}

TEST(Safetensors, EveryByteBelongsToOneTensor) {
  const auto two = [](std::string_view first, std::string_view second, size_t bytes) {
    return raw_safetensors(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},)"
                                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}}}})",
                                       first, second),
                           bytes);
  };
  EXPECT_TRUE(parse_safetensors(bytes_view(two("4,8", "0,4", 8))).ok());
  expect_refused(two("0,4", "3,7", 7), "begins at byte 3 of the data, but what is before it ends at 4");
  expect_refused(two("0,4", "5,9", 9), "begins at byte 5");
  expect_refused(two("0,4", "0,4", 4), "begins at byte 0 of the data, but what is before it ends at 4");
  expect_refused(two("0,4", "4,8", 9), "1 bytes behind its last tensor");
  expect_refused(two("1,5", "5,9", 9), "begins at byte 1");
  expect_refused(raw_safetensors("{}", 1), "1 bytes behind its last tensor");
  expect_refused(raw_safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 2),
                 "the tensor 'a' twice");
}

TEST(Safetensors, TruncationSaysHowMuchIsMissing) {
  const std::string file = raw_safetensors(R"({"a":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}})", 1000);
  expect_refused(std::string_view(file).substr(0, file.size() - 400),
                 fmt::format("is incomplete: {} bytes expected, {} bytes found", file.size(), file.size() - 400));
  expect_refused(std::string_view(file).substr(0, 20), "ends inside its header: at least");
}

TEST(ShardIndex, ReadsWhichFileHoldsWhat) {
  const auto index =
      parse_shard_index(R"({"metadata":{"total_size":1},"weight_map":{"x":"b.safetensors","y":"a.safetensors",)"
                        R"("z":"b.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_EQ(index->files, (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(index->tensors, (std::vector<std::pair<std::string, size_t>>{{"x", 1}, {"y", 0}, {"z", 1}}));
}

TEST(ShardIndex, NamesAreNotPaths) {
  for (const char* name : {"../a.safetensors", "/etc/a.safetensors", "x/a.safetensors", "a.bin", "", ".a.safetensors",
                           "a\\\\b.safetensors"}) {
    const auto index = parse_shard_index(fmt::format(R"({{"weight_map":{{"x":"{}"}}}})", name));
    ASSERT_FALSE(index.ok()) << name;
    EXPECT_NE(index.error().message.find("not the plain name"), std::string::npos) << index.error().message;
  }
  EXPECT_FALSE(parse_shard_index(R"({"weight_map":{"x":1}})").ok());
  EXPECT_FALSE(parse_shard_index(R"({"weight_map":{"x":"a.safetensors","x":"b.safetensors"}})").ok());
  EXPECT_FALSE(parse_shard_index(R"({"weight_map":[]})").ok());
  EXPECT_FALSE(parse_shard_index("{}").ok());
  EXPECT_FALSE(parse_shard_index("nonsense").ok());
}

}  // namespace
}  // namespace millrace
