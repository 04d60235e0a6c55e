#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <random>

#include "cache/page_table.h"

namespace millrace {
namespace {

TEST(PagePool, TakesEveryPageOnceThenNone) {
  PagePool pool(5);
  std::vector<bool> seen(5, false);
  for (int i = 0; i < 5; ++i) {
    PageId page = pool.take();
    ASSERT_NE(page, kNoPage);
    EXPECT_FALSE(seen[static_cast<size_t>(page)]);
    seen[static_cast<size_t>(page)] = true;
  }
  EXPECT_EQ(pool.take(), kNoPage);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_TRUE(pool.check().ok());
}

TEST(PagePool, FreesAtTheLastDrop) {
  PagePool pool(2);
  PageId page = pool.take();
  pool.keep(page);
  EXPECT_FALSE(pool.alone(page));
  EXPECT_FALSE(pool.drop(page));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_TRUE(pool.drop(page));
  EXPECT_EQ(pool.free(), 2);
  EXPECT_DEATH(pool.drop(page), "nobody holds");
  EXPECT_DEATH(pool.keep(page), "nobody holds");
  EXPECT_DEATH(pool.drop(7), "nobody holds");
}

TEST(PagePool, CheckComparesWithTheHolders) {
  PagePool pool(3);
  PageId page = pool.take();
  std::vector<int> holders(3, 0);
  EXPECT_FALSE(pool.check(&holders).ok());
  holders[static_cast<size_t>(page)] = 1;
  EXPECT_TRUE(pool.check(&holders).ok());
  holders[static_cast<size_t>(page)] = 2;
  EXPECT_FALSE(pool.check(&holders).ok());
}

TEST(PagePool, RandomUseAgreesWithAModel) {
  std::mt19937 random(7);
  PagePool pool(12);
  std::vector<int> model(12, 0);
  for (int step = 0; step < 20000; ++step) {
    PageId page = static_cast<PageId>(random() % 12);
    int action = static_cast<int>(random() % 3);
    if (action == 0) {
      PageId taken = pool.take();
      if (taken == kNoPage) {
        EXPECT_EQ(std::count(model.begin(), model.end(), 0), 0);
      } else {
        EXPECT_EQ(model[static_cast<size_t>(taken)]++, 0);
      }
    } else if (model[static_cast<size_t>(page)] > 0) {
      if (action == 1) pool.keep(page), ++model[static_cast<size_t>(page)];
      if (action == 2) {
        EXPECT_EQ(pool.drop(page), --model[static_cast<size_t>(page)] == 0);
      }
    }
    ASSERT_TRUE(pool.check(&model).ok());
    EXPECT_EQ(pool.free(), std::count(model.begin(), model.end(), 0));
  }
}

TEST(PageTable, FindsPositions) {
  PageTable table(4);
  table.push(7);
  table.push(3);
  EXPECT_EQ(table.at(0).page, 7);
  EXPECT_EQ(table.at(3).offset, 3);
  EXPECT_EQ(table.at(4).page, 3);
  EXPECT_EQ(table.at(6).offset, 2);
  EXPECT_DEATH(table.at(8), "position 8");
}

TEST(PageTable, PinnedEntriesStay) {
  PageTable table(4, 2);
  for (PageId page : {5, 6, 7, 8, 9}) table.push(page);
  EXPECT_EQ(table.first(), 0);
  EXPECT_EQ(table.replace(2, kNoPage), 7);
  EXPECT_EQ(table.replace(3, kNoPage), 8);
  EXPECT_EQ(table.first(), 4);
  EXPECT_EQ(table.gap(), 2);
  EXPECT_EQ(table.held(), 3);
  EXPECT_EQ(table.at(5).page, 6);
  PageTable again(4, 2);  // as it is taken over
  for (PageId page : table.pages()) again.push(page);
  EXPECT_EQ(again.first(), 4);
  EXPECT_EQ(again.held(), 3);
  EXPECT_EQ(table.pop(), 9);
  EXPECT_EQ(table.pop(), kNoPage);
  EXPECT_EQ(table.gap(), 1);
  EXPECT_EQ(table.pop(), kNoPage);
  EXPECT_EQ(table.pop(), 6);
  EXPECT_EQ(table.first(), 0);
  EXPECT_EQ(table.gap(), 0);
}

TEST(PageTable, EntriesLeaveTheWindow) {
  PageTable table(4);
  for (PageId page : {5, 6, 7}) table.push(page);
  EXPECT_EQ(table.replace(1, kNoPage), 6);
  EXPECT_EQ(table.first(), 0);
  EXPECT_EQ(table.held(), 2);
  EXPECT_EQ(table.replace(0, kNoPage), 5);
  EXPECT_EQ(table.first(), 2);
  EXPECT_EQ(table.replace(1, 9), kNoPage);
  EXPECT_EQ(table.first(), 1);
  EXPECT_EQ(table.pop(), 7);
  EXPECT_EQ(table.pop(), 9);
  EXPECT_EQ(table.pop(), kNoPage);
  EXPECT_EQ(table.first(), 0);
  EXPECT_EQ(table.size(), 0);
}

}  // namespace
}  // namespace millrace
