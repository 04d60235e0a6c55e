// Models that can be planned and not run: latent attention.
#include <gtest/gtest.h>

#include "backend/reference/reference.h"
#include "backend/trace/trace.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/shapes.h"

namespace millrace {
namespace {

TEST(Planned, CanBeOutlinedAndNotRun) {
  for (std::string_view name : {"deepseek-v2-lite", "deepseek-v3"}) {
    const ModelSpec spec = named_shape(name).value();
    auto trace = make_trace_backend();
    EXPECT_TRUE(Model::outline(spec, DType::bf16, *trace).ok()) << name;
    auto backend = make_reference_backend();
    const auto model = Model::random(spec, DType::bf16, 1, *backend);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(model.error().message.find("planned but not run"), std::string::npos) << model.error().message;
  }
}

TEST(Planned, BadSizesAreRefused) {
  const ModelSpec good = named_shape("deepseek-v2-lite").value();
  auto refused = [&](auto change) {
    ModelSpec spec = good;
    change(std::get<MlaSpec>(spec.layers[5].mixer), std::get<MoeSpec>(spec.layers[5].ffn));
    return !check_spec(spec).ok();
  };
  EXPECT_FALSE(refused([](MlaSpec&, MoeSpec&) {}));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.heads = 0; }));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.kv_rank = 0; }));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.kv_rank = 1 << 20; }));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.q_rank = -1; }));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.rope_dim = 62; }));
  EXPECT_TRUE(refused([](MlaSpec& mla, MoeSpec&) { mla.rope = -1; }));
  EXPECT_TRUE(refused([](MlaSpec&, MoeSpec& moe) { moe.experts = 0; }));
  EXPECT_TRUE(refused([](MlaSpec&, MoeSpec& moe) { moe.chosen = moe.experts + 1; }));
  EXPECT_TRUE(refused([](MlaSpec&, MoeSpec& moe) { moe.shared_width = -1; }));
  EXPECT_TRUE(refused([](MlaSpec&, MoeSpec& moe) { moe.router.groups = 3; }));
  EXPECT_TRUE(refused([](MlaSpec&, MoeSpec& moe) { moe.router.groups = 64, moe.router.chosen_groups = 5; }));
}

// Every matrix of a layer is read by the pass, experts as far as tokens need them.
TEST(Planned, TraceReadsWhatSlotsList) {
  const ModelSpec spec = named_shape("deepseek-v2-lite").value();
  auto trace = make_trace_backend();
  auto model = Model::outline(spec, DType::bf16, *trace).value();
  std::vector<KvView> views;
  for (const KvShape& shape : kv_shapes(spec, DType::f16))
    views.push_back({.page_tokens = 16,
                     .kv_heads = shape.kv_heads,
                     .k_dim = shape.k_dim,
                     .v_dim = shape.v_dim,
                     .type = DType::f16});
  constexpr int32_t kRows = 512;  // enough for every expert to be chosen
  std::vector<int32_t> positions(kRows), visible(kRows), zeros(kRows);
  for (int32_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = i, visible[static_cast<size_t>(i)] = i + 1;
  const int32_t first_row[] = {0, kRows};
  const PageTables none;
  const Step step = {.rows = kRows,
                     .sequences = 1,
                     .wanted = kRows,
                     .tokens = zeros.data(),
                     .positions = positions.data(),
                     .visible = visible.data(),
                     .sequence = zeros.data(),
                     .first_row = first_row,
                     .wanted_rows = positions.data(),
                     .groups = {&none, 1}};
  TraceOps ops;
  forward(ops, *model, views, step);
  int64_t read = 0, listed = 0;
  for (const TraceRecord& record : ops.records()) {
    if (record.op == "linear" || record.op == "linear_experts") read += record.cost.weight_bytes;
  }
  for (const Slot& slot : slots(spec)) {
    if (slot.kind == SlotKind::matrix && slot.name != "token_embd")
      listed += (slot.float32 ? 4 : 2) * slot.matrices() * slot.rows * slot.cols;
  }
  EXPECT_EQ(read, listed);
}

}  // namespace
}  // namespace millrace
