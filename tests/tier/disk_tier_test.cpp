// Pages in a file: what was put comes back, also to another process; what is damaged, of another model or written over
// does not.
#include "tier/disk_tier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

namespace millrace {
namespace {

Identity identity(int number) {
  Identity made;
  made.bytes.fill(7);
  made.bytes[0] = static_cast<uint8_t>(number);
  return made;
}

NodeSeal seal_with(int model = 1, uint8_t secret = 3) {
  std::array<uint8_t, 32> bytes;
  bytes.fill(secret);
  return make_seal(identity(model), bytes, 3, 1000);
}

TierNode node(int number) {
  TierNode made{.chain = identity(number), .present = {1, 0, 1}};
  made.pages.assign(2000, static_cast<char>('a' + number % 26));
  return made;
}

class DiskTierTest : public ::testing::Test {
 protected:
  void SetUp() override { path_ = ::testing::TempDir() + fmt::format("pages-{}", ::getpid()); }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<PageTier> open(NodeSeal seal = seal_with(), int64_t places = 8) {
    const int file = open_page_file(path_).value();
    return make_disk_tier(file, {.bytes = 4096 * (places + 1), .wait = 60}, seal).value();
  }
  static std::vector<TierNode> get(PageTier& tier, std::vector<int> numbers) {
    std::vector<Identity> chains;
    for (int number : numbers) chains.push_back(identity(number));
    std::promise<std::vector<TierNode>> come;
    tier.get(std::move(chains), 60, [&](std::vector<TierNode> nodes) { come.set_value(std::move(nodes)); });
    return come.get_future().get();
  }
  // Puts are done in the order they came, one after the other.
  static void put(PageTier& tier, std::vector<int> numbers) {
    const int64_t before = tier.counters().stored + tier.counters().dropped;
    std::vector<TierNode> nodes;
    for (int number : numbers) nodes.push_back(node(number));
    tier.put(std::move(nodes));
    while (tier.counters().stored + tier.counters().dropped < before + std::ssize(numbers)) ::usleep(1000);
  }
  void damage(int64_t at) {
    FILE* file = std::fopen(path_.c_str(), "r+b");
    std::fseek(file, at, SEEK_SET);
    const int there = std::fgetc(file);
    std::fseek(file, at, SEEK_SET);
    std::fputc(there ^ 1, file);
    std::fclose(file);
  }
  std::string path_;
};

TEST_F(DiskTierTest, WhatWasPutComesBackAlsoAfterARestart) {
  {
    const auto tier = open();
    EXPECT_TRUE(get(*tier, {1}).empty());
    put(*tier, {1, 2, 3});
    const auto found = get(*tier, {1, 2, 4, 3});  // up to the first that is not there
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[1].pages, node(2).pages);
    EXPECT_EQ(found[1].present, node(2).present);
    EXPECT_FALSE(open_page_file(path_).ok());  // somebody has it
  }
  const auto tier = open();
  const auto found = get(*tier, {3, 2, 1});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].pages, node(3).pages);
  EXPECT_EQ(tier->counters().found, 3);
}

TEST_F(DiskTierTest, TheLongestUnusedIsWrittenOver) {
  const auto tier = open(seal_with(), 4);
  put(*tier, {1, 2, 3, 4});
  EXPECT_EQ(get(*tier, {1}).size(), 1u);
  put(*tier, {5, 6});
  EXPECT_EQ(std::filesystem::file_size(path_) <= 4096 * 5, true);
  for (int there : {1, 4, 5, 6}) EXPECT_EQ(get(*tier, {there}).size(), 1u) << there;
  for (int gone : {2, 3}) EXPECT_TRUE(get(*tier, {gone}).empty()) << gone;
}

TEST_F(DiskTierTest, DamageIsNotBelieved) {
  constexpr int64_t kSealed = 8 + 64 + 4 + 3 + 8 + 2000 + 32;
  for (int64_t byte = 0; byte < kSealed; byte += 13) {
    std::filesystem::remove(path_);
    {
      const auto tier = open();
      put(*tier, {1, 2});
    }
    damage(4096 + byte);
    const auto tier = open();
    const auto found = get(*tier, {1});
    EXPECT_TRUE(found.empty()) << byte;
    EXPECT_EQ(get(*tier, {2}).size(), 1u) << byte;
    put(*tier, {1});
    ASSERT_EQ(get(*tier, {1}).size(), 1u) << byte;
    EXPECT_EQ(get(*tier, {1})[0].pages, node(1).pages);
  }
}

TEST_F(DiskTierTest, CutOffAndForeignFiles) {
  {
    const auto tier = open();
    put(*tier, {1, 2});
  }
  std::filesystem::resize_file(path_, 4096 + 4096 + 500);
  {
    const auto tier = open();
    EXPECT_EQ(get(*tier, {1}).size(), 1u);
    EXPECT_TRUE(get(*tier, {2}).empty());
    EXPECT_EQ(tier->counters().refused, 1);
  }
  {
    const auto other_secret = open(seal_with(1, 4));
    EXPECT_TRUE(get(*other_secret, {1}).empty());
  }
  const auto other_model = open(seal_with(2));
  EXPECT_TRUE(get(*other_model, {1}).empty());
  EXPECT_EQ(other_model->counters().refused, 0);  // it was emptied
}

TEST_F(DiskTierTest, WhatCannotBeIsRefused) {
  EXPECT_FALSE(open_page_file("/no/such/folder/pages").ok());
  const int file = open_page_file(path_).value();
  const auto small = make_disk_tier(file, {.bytes = 5000}, seal_with());
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("--page-store-size"), std::string::npos);
}

}  // namespace
}  // namespace millrace
