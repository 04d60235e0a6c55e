#include "eval/outliers.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"

namespace millrace {
namespace {

OutlierErrors measured(float times, int64_t inputs = 2048) {
  const OutlierAsk ask = {.inputs = inputs, .outputs = 48, .rows = 6, .times = times, .seed = 3};
  return measure_outliers(make_cpu_backend({.threads = 1}).value(), ask).value();
}

TEST(Outliers, OneFactorARowDrowns) {
  const OutlierErrors none = measured(1), some = measured(20), far = measured(100);
  EXPECT_LT(none.plain, 0.02);
  EXPECT_GT(far.plain, 10 * none.plain) << "plain int8 loses what is ordinary";
  // A factor for every 32 keeps an outlier within its group.
  EXPECT_LT(some.grouped, some.plain / 2);
  EXPECT_LT(far.grouped, far.plain / 2);
  // Columns kept in 16 bits take the outliers out, however large they are.
  EXPECT_LT(far.plain_apart, 1.5 * none.plain);
  EXPECT_LT(far.grouped_apart, 1.5 * none.grouped + 1e-3);
}

TEST(Outliers, ColumnsAreFoundOnce) {
  const OutlierErrors one = measured(50), again = measured(50);
  EXPECT_EQ(one.columns.size(), 6u);
  EXPECT_EQ(one.columns, again.columns);
  EXPECT_EQ(one.columns, measured(100).columns) << "they are those that were planted";
  EXPECT_EQ(one.grouped, again.grouped);
}

TEST(Outliers, RefusesWhatHasNoGroups) {
  EXPECT_FALSE(measure_outliers(make_cpu_backend({.threads = 1}).value(), {.inputs = 100}).ok());
  EXPECT_FALSE(measure_outliers(make_cpu_backend({.threads = 1}).value(), {.inputs = 64, .planted = 40}).ok());
}

}  // namespace
}  // namespace millrace
