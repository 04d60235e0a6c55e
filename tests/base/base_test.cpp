#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "base/rng.h"

namespace millrace {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return error(Code::invalid, "{} is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  TRY(int first, half(value));
  TRY(int second, half(first));
  return second;
}

TEST(Result, PassesErrorsUp) {
  EXPECT_EQ(quarter(12).value(), 3);
  auto failed = quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "3 is odd");
}

TEST(Checked, NeverWraps) {
  EXPECT_EQ((Checked(3u) * Checked(4u) + Checked(5u)).get(), 17u);
  EXPECT_FALSE((Checked(~uint64_t{0}) + Checked(1u)).ok());
  EXPECT_FALSE((Checked(uint64_t{1} << 32) * Checked(uint64_t{1} << 32) * Checked(0u)).ok());
  EXPECT_FALSE((Checked(3u) - Checked(4u)).ok());
  EXPECT_FALSE((Checked(3u) / Checked(0u)).ok());
  EXPECT_FALSE(Checked(-1).ok());
  EXPECT_EQ(Checked(33u).aligned(32).get(), 64u);
  EXPECT_FALSE(Checked(~uint64_t{0}).aligned(32).ok());
  EXPECT_TRUE(Checked(7u).within(7));
  EXPECT_FALSE(Checked(8u).within(7));
}

TEST(Json, LimitsAndDuplicates) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})").ok());
  EXPECT_FALSE(parse_json(R"({"a":1} x)").ok());
  EXPECT_FALSE(parse_json(R"({"a":)").ok());
  EXPECT_FALSE(parse_json(std::string(1000, '[')).ok());
  JsonLimits strict;
  strict.refuse_duplicate_keys = true;
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", strict).ok());
  EXPECT_TRUE(parse_json(R"({"a":1,"b":{"a":2}})", strict).ok());
}

TEST(Json, GettersNameTheKey) {
  Json json = parse_json(R"({"n":3,"x":1.5,"s":"t","f":4.0})").value();
  EXPECT_EQ(get_int(json, "n", 0).value(), 3);
  EXPECT_EQ(get_int(json, "f", 0).value(), 4);
  EXPECT_EQ(get_int(json, "none", 7).value(), 7);
  auto wrong = get_int(json, "s", 0);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("'s'"), std::string::npos);
  EXPECT_FALSE(get_int(json, "x", 0).ok());
}

// Known-answer vectors of Philox4x32-10 from the Random123 distribution.
TEST(Rng, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, UniformIsUniform) {
  double sum = 0;
  for (uint32_t i = 0; i < 10000; ++i) sum += uniform({.seed = 42, .position = i});
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  auto path = std::filesystem::temp_directory_path() / "millrace_atomic_test";
  std::filesystem::remove(path);
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("whole").ok());
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_EQ(read_file(path).value(), "whole");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace millrace
