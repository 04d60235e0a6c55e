#include "tensor/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "tensor/files.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

using namespace test;

std::string failure(const Result<GgufFile>& result) { return result.ok() ? "no error" : result.error().message; }

void expect_refused(std::span<const std::byte> file, std::string_view part, Code code = Code::corrupt) {
  const Result<GgufFile> result = parse_gguf(file);
  ASSERT_FALSE(result.ok()) << "accepted, though: " << part;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_EQ(code_name(result.error().code), code_name(code)) << result.error().message;
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  const std::string text = whole_gguf();
  const auto file = parse_gguf(bytes_view(text));
  ASSERT_TRUE(file.ok()) << failure(file);
  EXPECT_EQ(file->version, 3u);
  const Metadata& metadata = file->metadata;
  EXPECT_EQ(metadata.entries().size(), 13u);
  EXPECT_EQ(*metadata.get_string("general.name", ""), "a model");
  EXPECT_EQ(*metadata.get_int("llama.context_length", 0), 2048);
  EXPECT_EQ(*metadata.get_int("some.negative", 0), -5);
  EXPECT_EQ(*metadata.get_int("some.small", 0), -(int64_t{1} << 40));
  EXPECT_EQ(*metadata.get_number("some.large", 0), 0x1p63);
  EXPECT_EQ(*metadata.get_number("llama.rope.freq_base", 0), 10000.0);
  EXPECT_EQ(*metadata.get_number("some.double", 0), 0.1);
  EXPECT_EQ(*metadata.get_number("some.negative", 0), -5.0);
  EXPECT_TRUE(*metadata.get_bool("some.flag", false));
  ASSERT_NE(metadata.find_array("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(*metadata.find_array("tokenizer.ggml.tokens")->strings(),
            (std::vector<std::string_view>{"", "one", "two \xe2\x82\xac", "three"}));
  EXPECT_EQ(*metadata.find_array("tokenizer.ggml.scores")->floats(), (std::vector<float>{0.0f, -1.5f, 2.5f}));
  EXPECT_EQ(*metadata.find_array("tokenizer.ggml.token_type")->integers(), (std::vector<int64_t>{1, -2, 3}));

  ASSERT_EQ(file->tensors.size(), 8u);
  const StoredTensor& first = file->tensors[0];
  EXPECT_EQ(first.name, "token_embd.weight");
  EXPECT_EQ(first.type, DType::q8_0);
  EXPECT_EQ(first.shape, (std::vector<int64_t>{64, 256}));
  EXPECT_EQ(first.bytes.size(), 64u * 8 * 34);
  EXPECT_EQ((first.bytes.data() - bytes_view(text).data()) % 32, 0);
  EXPECT_EQ(file->tensors[3].shape, (std::vector<int64_t>{2, 8, 32}));
  EXPECT_EQ(file->tensors[5].values(), 1);
  EXPECT_EQ(file->tensors[6].values(), 0);
}

TEST(Gguf, MetadataSaysWhatIsWrong) {
  const std::string text = whole_gguf();
  const auto file = parse_gguf(bytes_view(text));
  ASSERT_TRUE(file.ok());
  const Metadata& metadata = file->metadata;
  EXPECT_EQ(*metadata.get_int("absent", 7), 7);
  EXPECT_EQ(*metadata.get_string("absent", "x"), "x");
  EXPECT_EQ(*metadata.get_number("absent", 0.5), 0.5);
  EXPECT_TRUE(*metadata.get_bool("absent", true));
  EXPECT_EQ(metadata.find_array("absent"), nullptr);
  EXPECT_EQ(metadata.find_array("general.name"), nullptr);
  EXPECT_EQ(metadata.get_int("general.name", 0).error().message,
            "metadata 'general.name' should be a whole number, but is of type string");
  EXPECT_FALSE(metadata.get_int("some.double", 0).ok());
  EXPECT_FALSE(metadata.get_int("some.large", 0).ok());
  EXPECT_FALSE(metadata.get_string("some.flag", "").ok());
  EXPECT_FALSE(metadata.get_bool("some.negative", false).ok());
  EXPECT_FALSE(metadata.get_number("some.flag", 0).ok());
  EXPECT_FALSE(metadata.find_array("tokenizer.ggml.tokens")->floats().ok());
  EXPECT_FALSE(metadata.find_array("tokenizer.ggml.tokens")->integers().ok());
  EXPECT_FALSE(metadata.find_array("tokenizer.ggml.scores")->integers().ok());
  EXPECT_FALSE(metadata.find_array("tokenizer.ggml.scores")->strings().ok());
}

TEST(Gguf, EveryMetadataTypeWidens) {
  RawGguf raw(0, 8);
  raw.key("a", MetaType::u8).number<uint8_t>(200).key("b", MetaType::i8).number<int8_t>(-100);
  raw.key("c", MetaType::u16).number<uint16_t>(60000).key("d", MetaType::i16).number<int16_t>(-30000);
  raw.key("e", MetaType::array).number(static_cast<uint32_t>(MetaType::boolean)).number<uint64_t>(2);
  raw.number<uint8_t>(1).number<uint8_t>(0);
  raw.key("f", MetaType::array)
      .number(static_cast<uint32_t>(MetaType::u16))
      .number<uint64_t>(1)
      .number<uint16_t>(65535);
  raw.key("g", MetaType::array)
      .number(static_cast<uint32_t>(MetaType::u64))
      .number<uint64_t>(1)
      .number<uint64_t>(~0ull);
  raw.key("h", MetaType::array).number(static_cast<uint32_t>(MetaType::f64)).number<uint64_t>(1).number<double>(0.5);
  const auto file = parse_gguf(raw);
  ASSERT_TRUE(file.ok()) << failure(file);
  const Metadata& metadata = file->metadata;
  EXPECT_EQ(*metadata.get_int("a", 0), 200);
  EXPECT_EQ(*metadata.get_int("b", 0), -100);
  EXPECT_EQ(*metadata.get_int("c", 0), 60000);
  EXPECT_EQ(*metadata.get_int("d", 0), -30000);
  EXPECT_EQ(*metadata.find_array("e")->integers(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(*metadata.find_array("f")->integers(), (std::vector<int64_t>{65535}));
  EXPECT_FALSE(metadata.find_array("g")->integers().ok());
  EXPECT_EQ(*metadata.find_array("h")->floats(), (std::vector<float>{0.5f}));
}

TEST(Gguf, VersionTwoIsReadAndOthersAreNamed) {
  EXPECT_TRUE(parse_gguf(RawGguf(0, 0, 2)).ok());
  expect_refused(RawGguf(0, 0, 1), "version 1", Code::unsupported);
  expect_refused(RawGguf(0, 0, 0x03000000), "big-endian", Code::unsupported);
  expect_refused(RawGguf(0, 0, 4), "version 4", Code::unsupported);
  expect_refused(RawGguf(0, 0, 0), "version 0", Code::unsupported);
  expect_refused(bytes_view("GGML12345678"), "does not begin", Code::invalid);
}

TEST(Gguf, CountsAreComparedWithTheFile) {
  expect_refused(RawGguf(0, ~0ull), "18446744073709551615 metadata entries");
  expect_refused(RawGguf(~0ull, 0), "18446744073709551615 tensors");
  expect_refused(RawGguf(0, 1).number(~0ull).data(8), "ends inside its header");
  expect_refused(RawGguf(0, 1).key("a", MetaType::string).number(~0ull), "ends inside its header");
  const auto array = [](MetaType type, uint64_t count) {
    return RawGguf(0, 1).key("a", MetaType::array).number(static_cast<uint32_t>(type)).number(count);
  };
  expect_refused(array(MetaType::u64, uint64_t{1} << 61), "ends inside its header");  // 2^64 bytes
  expect_refused(array(MetaType::string, uint64_t{1} << 61), "2305843009213693952 strings");
  expect_refused(array(MetaType::u8, 1), "ends inside its header");
}

TEST(Gguf, MetadataThatMakesNoSense) {
  expect_refused(RawGguf(0, 1).string("").number(uint32_t{0}).data(8), "has no key");
  expect_refused(RawGguf(0, 1).key("a", static_cast<MetaType>(13)).data(8), "unknown type 13");
  expect_refused(RawGguf(0, 1).key("a", MetaType::boolean).number<uint8_t>(2), "neither 0 nor 1");
  expect_refused(
      RawGguf(0, 1).key("a", MetaType::array).number(static_cast<uint32_t>(MetaType::array)).number(1ull).data(16),
      "array of arrays", Code::unsupported);
  expect_refused(
      RawGguf(0, 2).key("a\nb", MetaType::u8).number<uint8_t>(1).key("a\nb", MetaType::u8).number<uint8_t>(1),
      "key 'a\\x0ab' twice");
  expect_refused(RawGguf(0, 1).string(std::string(65536, 'k')).number(uint32_t{0}).data(8),
                 "more than the 65535 allowed");
  for (const uint32_t alignment : {0u, 3u, 24u, 1u << 21}) {
    expect_refused(RawGguf(0, 1).key("general.alignment", MetaType::u32).number(alignment), "must be a power of two");
  }
  expect_refused(RawGguf(0, 1).key("general.alignment", MetaType::string).string("32"), "but is string");
  expect_refused(RawGguf(0, 1).key("general.alignment", MetaType::u64).number(uint64_t{32}), "but is 32 of type u64");
}

TEST(Gguf, TensorsThatMakeNoSense) {
  const auto one = [](const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset) {
    return RawGguf(1).tensor("a", dimensions, type, offset).pad().data(64);
  };
  EXPECT_TRUE(parse_gguf(one({16}, 0, 0)).ok());
  EXPECT_TRUE(parse_gguf(one({2, 2, 2, 2}, 0, 0)).ok());
  expect_refused(one({1, 1, 1, 1, 16}, 0, 0), "5 dimensions");
  expect_refused(one({16}, 4, 0), "number format 4", Code::unsupported);
  expect_refused(one({16}, 43, 0), "number format 43", Code::unsupported);
  expect_refused(one({16}, 8, 0), "not a multiple of that format's 32");
  expect_refused(one({~0ull}, 0, 0), "impossible dimension");
  expect_refused(one({1ull << 40, 1ull << 40}, 0, 0), "more values than any file");
  expect_refused(one({1ull << 40, 1ull << 22, 2}, 0, 0), "more values than any file");  // 2^63 values
  expect_refused(one({1ull << 40, 1ull << 22}, 28, 0), "more values than any file");    // 2^65 bytes
  expect_refused(one({16}, 0, 32), "begins at byte 32 of the data, but everything before it ends at 0");
  expect_refused(one({16}, 0, 1), "begins at byte 1");
  expect_refused(one({17}, 0, 0), "is incomplete");
  expect_refused(one({4}, 0, 0), "48 bytes behind its last tensor");
  expect_refused(RawGguf(1).tensor("", {16}, 0, 0).pad().data(64), "without a name");
  expect_refused(RawGguf(1).tensor(std::string(1025, 'n'), {16}, 0, 0).pad().data(64), "more than the 1024 allowed");
  expect_refused(RawGguf(2).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).pad().data(64), "the tensor 'a' twice");
}

TEST(Gguf, TensorsNeitherOverlapNorLeaveHoles) {
  const auto two = [](uint64_t first, uint64_t second, size_t data) {
    return RawGguf(2).tensor("a", {8}, 0, first).tensor("b", {8}, 0, second).pad().data(data);
  };
  EXPECT_TRUE(parse_gguf(two(0, 32, 64)).ok());
  EXPECT_TRUE(parse_gguf(two(32, 0, 64)).ok()) << "the header may list them in another order";
  expect_refused(two(0, 0, 64), "the tensor before it reaches to 32");
  expect_refused(two(0, 16, 64), "the tensor before it reaches to 32");
  expect_refused(two(0, 64, 96), "everything before it ends at 32");
  expect_refused(two(0, ~0ull - 31, 96), "begins at byte 18446744073709551584");
}

TEST(Gguf, PaddingBehindTheLastTensorMayBeMissingOrZero) {
  const auto file = [](size_t zeros) { return RawGguf(1).tensor("a", {4}, 0, 0).pad().data(16).data(zeros, '\0'); };
  EXPECT_TRUE(parse_gguf(file(0)).ok());
  EXPECT_TRUE(parse_gguf(file(5)).ok());
  EXPECT_TRUE(parse_gguf(file(16)).ok());
  expect_refused(file(17), "17 bytes behind its last tensor");
  expect_refused(RawGguf(1).tensor("a", {4}, 0, 0).pad().data(17), "1 bytes behind its last tensor");
  EXPECT_TRUE(parse_gguf(RawGguf().pad()).ok());
  expect_refused(RawGguf().pad().data(1, '\0'), "belong to nothing");
}

TEST(Gguf, AlignmentIsTheFiles) {
  RawGguf raw(2, 1);
  raw.key("general.alignment", MetaType::u32).number<uint32_t>(256);
  raw.tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 256).pad(256).data(256).data(32);
  const auto file = parse_gguf(raw);
  ASSERT_TRUE(file.ok()) << failure(file);
  EXPECT_EQ(file->tensors[1].bytes.data() - bytes_view(raw.text()).data(),
            static_cast<ptrdiff_t>(raw.text().size() - 32));
}

TEST(Gguf, TruncationSaysHowMuchIsMissing) {
  const std::string text = RawGguf(1).tensor("a", {1000}, 0, 0).pad().data(4000).text();
  const std::string wanted =
      fmt::format("is incomplete: {} bytes expected, {} bytes found", text.size(), text.size() - 3000);
  expect_refused(bytes_view(text).first(text.size() - 3000), wanted);
  expect_refused(bytes_view(text).first(40), "the download is incomplete");
  expect_refused(bytes_view(text).first(52), "ends inside its header");
}

// ---- the writer
// ---------------------------------------------------------------------------------------------------------

TEST(GgufWriter, StreamsToAFileThatAppearsWhole) {
  const Folder folder;
  const auto target = folder.path() / "model.gguf";
  GgufWriter writer = whole_gguf_writer();
  const std::string wanted = whole_gguf();
  ASSERT_TRUE(writer.begin(target).ok());
  const auto parsed = parse_gguf(bytes_view(wanted));
  ASSERT_TRUE(parsed.ok());
  for (const StoredTensor& tensor : parsed->tensors) {
    for (size_t done = 0; done < tensor.bytes.size(); done += 1000) {
      EXPECT_FALSE(std::filesystem::exists(target));
      ASSERT_TRUE(writer.write(tensor.bytes.subspan(done, std::min<size_t>(1000, tensor.bytes.size() - done))).ok());
    }
  }
  EXPECT_EQ(writer.tensors_written(), 8u);
  EXPECT_EQ(writer.bytes_wanted(), 0u);
  ASSERT_TRUE(writer.finish().ok());
  const auto text = read_file(target);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size(), writer.file_bytes());
  const auto again = parse_gguf(bytes_view(*text));
  ASSERT_TRUE(again.ok()) << failure(again);
  for (size_t i = 0; i < parsed->tensors.size(); ++i) {
    const auto &a = parsed->tensors[i], &b = again->tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << a.name;
  }
}

TEST(GgufWriter, LeavesNothingBehindWhenUnfinished) {
  const Folder folder;
  {
    GgufWriter writer;
    ASSERT_TRUE(writer.add("a", DType::f32, {8}).ok());
    ASSERT_TRUE(writer.begin(folder.path() / "model.gguf").ok());
    ASSERT_TRUE(writer.write(bytes_view("0123456789")).ok());
    EXPECT_EQ(writer.bytes_wanted(), 22u);
    EXPECT_FALSE(writer.finish().ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, CopiesEveryKindOfMetadataByteForByte) {
  RawGguf raw(0, 14);
  raw.key("u8", MetaType::u8).number<uint8_t>(200).key("i8", MetaType::i8).number<int8_t>(-1);
  raw.key("u16", MetaType::u16).number<uint16_t>(60000).key("i16", MetaType::i16).number<int16_t>(-2);
  raw.key("u32", MetaType::u32).number<uint32_t>(4000000000u).key("i32", MetaType::i32).number<int32_t>(-3);
  raw.key("u64", MetaType::u64).number<uint64_t>(~0ull).key("i64", MetaType::i64).number<int64_t>(-4);
  raw.key("f32", MetaType::f32).number(0.1f).key("f64", MetaType::f64).number(0.1);
  raw.key("bool", MetaType::boolean).number<uint8_t>(1).key("string", MetaType::string).string("text");
  raw.key("words", MetaType::array)
      .number(static_cast<uint32_t>(MetaType::string))
      .number<uint64_t>(2)
      .string("a")
      .string("");
  raw.key("array", MetaType::array)
      .number(static_cast<uint32_t>(MetaType::i16))
      .number<uint64_t>(1)
      .number<int16_t>(-9)
      .pad();
  const auto file = parse_gguf(raw);
  ASSERT_TRUE(file.ok()) << failure(file);
  GgufWriter writer;
  for (const MetaEntry& entry : file->metadata.entries()) ASSERT_TRUE(writer.put(entry).ok());
  EXPECT_EQ(writer.header(), raw.text());
}

TEST(GgufWriter, RefusesWhatNoFileCanHold) {
  GgufWriter writer;
  ASSERT_TRUE(writer.put("a", uint32_t{1}).ok());
  EXPECT_FALSE(writer.put("a", uint32_t{1}).ok());
  EXPECT_FALSE(writer.put("", uint32_t{1}).ok());
  EXPECT_FALSE(writer.put("general.alignment", uint32_t{48}).ok());
  EXPECT_FALSE(writer.put("general.alignment", uint64_t{64}).ok());
  ASSERT_TRUE(writer.put("general.alignment", uint32_t{64}).ok());
  ASSERT_TRUE(writer.add("t", DType::f32, {1}).ok());
  EXPECT_EQ(writer.file_bytes() % 64, 0u);
  EXPECT_FALSE(writer.add("t", DType::f32, {1}).ok());
  EXPECT_FALSE(writer.add("", DType::f32, {1}).ok());
  EXPECT_FALSE(writer.add("q", DType::q4_k, {4, 128}).ok());
  EXPECT_FALSE(writer.add("f8", DType::f8_e4m3, {4}).ok());
  EXPECT_FALSE(writer.add("five", DType::f32, {1, 1, 1, 1, 1}).ok());
  EXPECT_FALSE(writer.add("huge", DType::f32, {int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(writer.add("negative", DType::f32, {-4}).ok());
  EXPECT_TRUE(parse_gguf(bytes_view(writer.header() + std::string(64, '\0'))).ok());
}

}  // namespace
}  // namespace millrace
