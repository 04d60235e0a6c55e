// What is said of a model before it runs.
#include "apps/cli/summary.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include "tensor/gguf_writer.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// A file with 66,000 bytes of IQ2_XXS (a thousand groups of 66) and 4,000 of F32.
class PackedNote : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / fmt::format("millrace-packed-{}.gguf", ::getpid());
    GgufWriter writer;
    ASSERT_TRUE(writer.put("general.architecture", "llama").ok());
    ASSERT_TRUE(writer.add("blk.0.ffn_up.weight", DType::iq2_xxs, {1000, 256}).ok());
    ASSERT_TRUE(writer.add("output_norm.weight", DType::f32, {1000}).ok());
    ASSERT_TRUE(writer.begin(path_).ok());
    ASSERT_TRUE(writer.write(std::vector<std::byte>(writer.bytes_wanted())).ok());
    ASSERT_TRUE(writer.write(std::vector<std::byte>(writer.bytes_wanted())).ok());
    ASSERT_TRUE(writer.finish().ok());
  }
  void TearDown() override { fs::remove(path_); }
  std::optional<std::string> note(int64_t packed) const { return packed_note(Checkpoint::open(path_).value(), packed); }
  fs::path path_;
};

TEST_F(PackedNote, SaysBothSizesAndWhatMostOfItIs) {
  EXPECT_EQ(note(280'000),
            "68.4 KiB of weights in the file (most of them IQ2_XXS) become 273.4 KiB in memory: they are packed for "
            "this machine's arithmetic");
  EXPECT_NE(note(35'000).value_or("").find("become 34.2 KiB in memory"), std::string::npos);
}

TEST_F(PackedNote, IsSilentAboutATenth) {
  EXPECT_EQ(note(70'000), std::nullopt);
  EXPECT_EQ(note(76'900), std::nullopt);
  EXPECT_EQ(note(63'100), std::nullopt);
  EXPECT_TRUE(note(77'100).has_value());
  EXPECT_TRUE(note(62'900).has_value());
}

}  // namespace
}  // namespace millrace::apps
