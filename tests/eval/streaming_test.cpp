#include "eval/streaming.h"

#include <gtest/gtest.h>

#include "backend/reference/reference.h"
#include "eval/compare.h"
#include "model/shapes.h"

namespace millrace {
namespace {

const KvKeep kKeep = {4, 16};

TEST(Streaming, CheapestFirstAndThenTogether) {
  const std::vector<int32_t> layers = {0, 1, 3, 4};
  const std::vector<double> prices = {0.5, 0.1, 9, 0.3, 0.1};
  std::vector<std::string> asked;
  const auto rank = rank_streaming(layers, kKeep, 2, [&](const KvKeep& keep) -> Result<StreamingCost> {
                      asked.push_back(keep.name());
                      StreamingCost cost{.keep = keep};
                      for (const int32_t layer : keep.layers) cost.kl += prices[static_cast<size_t>(layer)];
                      return cost;
                    }).value();
  std::vector<int32_t> order;
  for (const StreamingCost& cost : rank.alone) order.push_back(cost.keep.layers.front());
  EXPECT_EQ(order, (std::vector<int32_t>{1, 4, 3, 0})) << "the earlier layer where they cost the same";
  ASSERT_EQ(rank.together.size(), 2u);
  EXPECT_EQ(rank.together[0].keep.name(), "sinks:4,window:16,layers:1+4");
  EXPECT_EQ(rank.together[1].keep.name(), "sinks:4,window:16,layers:0-1+3-4");
  EXPECT_EQ(asked.size(), 6u);
}

TEST(Streaming, StopsAtTheFirstFailure) {
  const std::vector<int32_t> layers = {0, 1};
  const auto rank = rank_streaming(
      layers, kKeep, 2, [](const KvKeep&) -> Result<StreamingCost> { return error(Code::cancelled, "stopped"); });
  EXPECT_EQ(rank.error().code, Code::cancelled);
  EXPECT_EQ(rank_streaming({}, kKeep, 2, {}).error().code, Code::unsupported);
}

TEST(Streaming, LayersWithWindowsOfTheirOwnAreNotAsked) {
  ModelSpec spec = named_shape("stories-14m").value();
  std::get<GqaSpec>(spec.layers[2].mixer).window = 64;
  spec.layers[5].mixer = NoMixer{};
  EXPECT_EQ(streaming_layers(spec, kKeep), (std::vector<int32_t>{0, 1, 3, 4, 6, 7}));
}

// The bytes are those of a sequence as it is planned: a layer that forgets takes its window and the sinks.
TEST(Streaming, LayersThatForgetSaveBytes) {
  auto backend = make_reference_backend();
  auto bytes = [&](const KvKeep& keep) {
    ModelSpec spec = named_shape("stories-14m").value();
    EXPECT_TRUE(forget(spec, keep).ok());
    const auto model = Model::random(spec, DType::f32, 3, *backend).value();
    const auto plan = Executor::plan(*model, *backend, {.context = 1024, .rows = 16, .kv = DType::f16}).value();
    return plan.layout.pages_for(1024) * plan.layout.page_bytes;
  };
  const int64_t all = bytes({}), half = bytes({4, 64, {0, 2, 4, 6}}), none = bytes({4, 64});
  EXPECT_LT(half, all * 62 / 100) << "half of the layers keep a tenth";
  EXPECT_GT(half, all / 2);
  EXPECT_LT(none, all / 8);
}

}  // namespace
}  // namespace millrace
