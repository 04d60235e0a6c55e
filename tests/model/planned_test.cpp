// Models too large for a test, outlined: latent attention with experts.
#include <gtest/gtest.h>

#include "backend/reference/reference.h"
#include "backend/trace/trace.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/shapes.h"

namespace millrace {
namespace {

TEST(Planned, CanBeOutlined) {
  for (std::string_view name : {"deepseek-v2-lite", "deepseek-v3"}) {
    const ModelSpec spec = named_shape(name).value();
    auto trace = make_trace_backend();
    EXPECT_TRUE(Model::outline(spec, DType::bf16, *trace).ok()) << name;
    EXPECT_TRUE(check_runnable(spec).ok()) << name;
  }
}

TEST(Planned, WidthsPastTheKernelsAreRefusedWithTheNumbers) {
  ModelSpec spec = named_shape("deepseek-v2-lite").value();
  for (LayerSpec& layer : spec.layers) std::get<MlaSpec>(layer.mixer).kv_rank = 640;
  ASSERT_TRUE(check_spec(spec).ok());
  const auto refused = check_runnable(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("latents of 704 numbers"), std::string::npos) << refused.error().message;
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

// A layer may read the keys and values of an earlier one that has some of the same shape.
TEST(SharedKeys, AreRefusedWithTheNumbers) {
  const ModelSpec good = named_shape("smollm2-135m").value();
  auto message = [&](auto change) {
    ModelSpec spec = good;
    for (size_t i : {7, 9}) std::get<GqaSpec>(spec.layers[i].mixer).kv_from = 3;
    change(spec, std::get<GqaSpec>(spec.layers[9].mixer));
    const auto checked = check_spec(spec);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(message([](ModelSpec&, GqaSpec&) {}), "");
  auto expect = [&](auto change, std::string_view part) {
    EXPECT_NE(message(change).find(part), std::string::npos) << message(change);
  };
  expect([](ModelSpec&, GqaSpec& gqa) { gqa.kv_from = 9; },
         "layer 9: reads keys of layer 9, which does not come before");
  expect([](ModelSpec&, GqaSpec& gqa) { gqa.kv_from = 12; }, "keys of layer 12, which does not come before it");
  expect([](ModelSpec&, GqaSpec& gqa) { gqa.kv_from = 7; }, "keys of layer 7, which has none of its own");
  expect([](ModelSpec&, GqaSpec& gqa) { gqa.kv_heads = 1; },
         "reads 1 heads of 64 numbers from layer 3, which has 3 of 64");
  expect([](ModelSpec& spec, GqaSpec&) { std::get<GqaSpec>(spec.layers[3].mixer).window = 16; },
         "of layer 3, which keeps 16");
}

// Layers that read another's keys keep nothing, and compute what they would with those keys as their own.
TEST(SharedKeys, NeedNoCache) {
  ModelSpec spec = named_shape("smollm2-135m").value();
  std::get<GqaSpec>(spec.layers[5].mixer).kv_from = 2;
  const std::vector<KvShape> shapes = kv_shapes(spec, DType::f16);
  EXPECT_EQ(shapes[5].kv_heads, 0);
  EXPECT_EQ(shapes[2].kv_heads, 3);
  for (const Slot& slot : slots(spec)) EXPECT_NE(slot.name, "blk.5.attn_k");
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
                     .form = DType::f16});
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
    if (record.op == "linear" || record.op == "linear_experts" || record.op == "linear_heads")
      read += record.cost.weight_bytes;
  }
  for (const Slot& slot : slots(spec)) {
    if (slot.kind == SlotKind::matrix && slot.name != "token_embd")
      listed += (slot.float32 ? 4 : 2) * slot.matrices() * slot.rows * slot.cols;
  }
  EXPECT_EQ(read, listed);
}

}  // namespace
}  // namespace millrace
