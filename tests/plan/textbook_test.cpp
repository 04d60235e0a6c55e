// Figures that textbooks and lecture notes on inference compute by hand, from the same code that plans for real.
#include <gtest/gtest.h>

#include <cmath>

#include "model/convert.h"
#include "model/shapes.h"
#include "plan/capacity.h"
#include "plan/serving.h"

namespace millrace {
namespace {

// A model outlined in one format on some hardware.
struct Planned {
  std::unique_ptr<Backend> backend = make_trace_backend();
  std::unique_ptr<Model> model;
  std::optional<Planner> planner;

  Planned(const ModelSpec& spec, std::string_view hardware, DeployOptions options = {}, DType type = DType::f16) {
    model = Model::outline(spec, type, *backend).value();
    planner.emplace(Planner::create(*model, *backend, find_hardware(hardware).value(), options).value());
  }
};

ModelSpec shape(std::string_view name) { return named_shape(name).value(); }

// One layer-by-layer model of the given attention, everything else small.
ModelSpec attention_model(int32_t layers, int32_t heads, int32_t kv_heads, int32_t head_dim) {
  ModelSpec spec = shape("llama-2-7b");
  auto layer = spec.layers[0];
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  gqa.heads = heads, gqa.kv_heads = kv_heads, gqa.head_dim = head_dim;
  spec.layers.assign(static_cast<size_t>(layers), layer);
  return spec;
}

int64_t kv(const ModelSpec& spec, int32_t batch, int32_t context, DType type = DType::f16) {
  return kv_bytes(spec, type, batch, context).value();
}

TEST(Textbook, Llama7BAtHalfPrecision) {
  const ModelSpec spec = shape("llama-2-7b");
  EXPECT_EQ(parameters(spec), 6738415616);
  EXPECT_EQ(kv(spec, 1, 2048), 1073741824);     // 1.07 GB
  EXPECT_EQ(kv(spec, 1, 2048) / 32, 33554432);  // 33.5 MB a layer
  EXPECT_EQ(kv(spec, 1, 2048), int64_t{2} * 32 * 2048 * 32 * 128 * 2);
  auto backend = make_trace_backend();
  EXPECT_NEAR(static_cast<double>(plan_weights(spec, DType::f16, *backend).bytes()), 13.5e9, 0.05e9);
}

TEST(Textbook, GroupedHeadsDivideTheCache) {
  EXPECT_EQ(kv(attention_model(32, 32, 8, 128), 8, 4096), 4294967296);  // 4.29 GB
  EXPECT_EQ(kv(attention_model(32, 32, 32, 128), 8, 4096), 4 * int64_t{4294967296});
}

TEST(Textbook, Mistral7BAsItIsAndWithoutSharedHeads) {
  const ModelSpec spec = shape("mistral-7b");
  EXPECT_EQ(kv(spec, 4, 4096), 2147483648);  // 8 key/value heads, the window not yet full
  EXPECT_EQ(kv(with_kv_heads(spec, 32).value(), 4, 4096), 4 * int64_t{2147483648});
  // The window caps the cache: four times the text is not four times the bytes.
  EXPECT_LT(kv(spec, 4, 16384), kv(spec, 4, 4096) * 101 / 100);
}

TEST(Textbook, KindsOfAttentionSideBySide) {
  const auto all = attention_variants(shape("llama-2-13b"));
  auto bytes = [&](std::string_view kind) {
    for (const AttentionVariant& each : all) {
      if (each.name.starts_with(kind)) return static_cast<double>(kv(each.spec, 1, 1024));
    }
    return 0.0;
  };
  const double mha = bytes("MHA");
  EXPECT_DOUBLE_EQ(mha, 2.0 * 40 * 1024 * 40 * 128 * 2);
  EXPECT_DOUBLE_EQ(bytes("GQA") * 5, mha);  // one key/value head for five
  EXPECT_DOUBLE_EQ(bytes("MQA") * 40, mha);
  EXPECT_DOUBLE_EQ(bytes("MLA"), 40.0 * 1024 * (512 + 64) * 2);
  EXPECT_DOUBLE_EQ(bytes("layers share") * 2, mha);
  // Five layers of six keep no more than their window, however long the text (a page more, and room for a step).
  for (const AttentionVariant& each : all) {
    if (!each.name.starts_with("window")) continue;
    const double whole = 16 * mha, kept = static_cast<double>(kv(each.spec, 1, 16 * 1024));
    EXPECT_NEAR(kept / whole, 1.0 / 6 + 5.0 / 6 / 16, 0.02);
  }
}

TEST(Textbook, DeepSeekKeepsALatent) {
  const ModelSpec spec = shape("deepseek-v3");
  EXPECT_NEAR(static_cast<double>(parameters(spec)), 671e9, 1e9);
  EXPECT_NEAR(static_cast<double>(parameters(shape("deepseek-v2"))), 236e9, 1e9);
  EXPECT_NEAR(static_cast<double>(parameters(shape("deepseek-v2-lite"))), 15.7e9, 0.1e9);
  EXPECT_EQ(kv(spec, 1, 1024), int64_t{61} * 1024 * (512 + 64) * 2);  // 70 KB a token
  // 37 billion numbers take part in a token: two operations each.
  Planned planned(spec, "h200");
  const double active = planned.planner->decode(1, 1).floor.flops / 2;
  EXPECT_NEAR(active, 37e9, 1.5e9);
}

TEST(Textbook, MixtralReadsTheExpertsItNeeds) {
  const ModelSpec spec = shape("mixtral-8x7b");
  EXPECT_NEAR(static_cast<double>(parameters(spec)), 46.7e9, 0.1e9);
  Planned planned(spec, "h200");
  const Floor one = planned.planner->decode(1, 1).floor, many = planned.planner->decode(64, 1).floor;
  EXPECT_NEAR(one.flops / 2, 12.9e9, 0.2e9);
  EXPECT_NEAR(one.bytes, 2 * 12.9e9, 0.5e9);  // two experts of eight
  EXPECT_NEAR(many.bytes, 2 * 46.7e9, 1e9);   // 64 tokens need them all
}

TEST(Textbook, ScoresStoredAgainstARunningMaximum) {
  const ScoreMemory memory = score_memory(shape("llama-2-7b"), 2, 4096, 2);
  EXPECT_DOUBLE_EQ(memory.stored, 2.0 * 4096 * 4096 * 32 * 2);  // B * T^2 * H
  EXPECT_DOUBLE_EQ(memory.running, 2.0 * 4096 * 32 * 2 * 4);    // a maximum and a sum for each row
}

TEST(Textbook, PagesWasteLittle) {
  const int64_t lengths[] = {100, 17, 2048, 1};
  const PageWaste waste = page_waste(lengths, 16, 2048).value();
  EXPECT_EQ(waste.used, 2166);
  EXPECT_EQ(waste.paged, 112 + 32 + 2048 + 16);
  EXPECT_EQ(waste.reserved, 8192);
  EXPECT_NEAR(waste.paged_waste(), 42.0 / 2208, 1e-12);
  EXPECT_NEAR(waste.reserved_waste(), 1 - 2166.0 / 8192, 1e-12);
  const int64_t longer[] = {3000};
  EXPECT_FALSE(page_waste(longer, 16, 2048).ok());
}

TEST(Textbook, ContinuousBatchesLeaveLessIdle) {
  const int64_t outputs[] = {10, 100, 20, 30, 10, 10, 10, 10};
  const BatchUse use = batch_use(outputs, 4).value();
  EXPECT_EQ(use.static_steps, 100 + 10);
  EXPECT_NEAR(use.static_use, 200.0 / 440, 1e-12);
  EXPECT_EQ(use.continuous_steps, 100);
  EXPECT_NEAR(use.continuous_use, 200.0 / 400, 1e-12);
  EXPECT_FALSE(batch_use({}, 4).ok());
}

TEST(Textbook, SpeculationSavesPasses) {
  const Speculation four = speculate(0.8, 4, 0.1, 100).value();
  EXPECT_NEAR(four.tokens_per_pass, (1 - std::pow(0.8, 5)) / (1 - 0.8), 1e-12);  // 3.3616
  EXPECT_NEAR(four.passes, 100 / 3.3616, 1e-9);
  EXPECT_NEAR(four.speedup, 3.3616 / 1.4, 1e-9);
  EXPECT_DOUBLE_EQ(speculate(1, 4, 0, 100)->tokens_per_pass, 5);
  EXPECT_DOUBLE_EQ(speculate(0, 4, 0, 100)->tokens_per_pass, 1);
  EXPECT_FALSE(speculate(1.5, 4, 0, 100).ok());
  EXPECT_DOUBLE_EQ(speculate(0.8, 4, 0.1, 100, 2)->speedup, four.tokens_per_pass / 2.4);
  EXPECT_FALSE(speculate(0.5, 4, 0.1, 100, 0).ok());
}

// Decoding is reading: latency = (weights + cache of the batch) / bandwidth, throughput = batch / latency.
TEST(Textbook, Llama13BOnAnH100) {
  Planned planned(shape("llama-2-13b"), "h100");
  Planner& planner = *planned.planner;
  const double weights = 2.0 * (40 * (4 * 5120.0 * 5120 + 3 * 5120.0 * 13824) + 5120.0 * 32000);
  const double cache = 2.0 * 40 * 1024 * 5120 * 2;  // of one sequence: 0.84 GB
  double last = 0;
  for (int32_t batch : {1, 16, 64}) {
    const PassPlan step = planner.decode(batch, 1024);
    EXPECT_NEAR(step.seconds(), (weights + batch * cache) / 3.35e12, 0.02 * step.seconds()) << batch;
    EXPECT_EQ(step.floor.bound(), Bound::memory);
    EXPECT_GT(batch / step.seconds(), last);
    last = batch / step.seconds();
  }
  // 256 sequences would take 26 + 215 GB: memory ends long before.
  EXPECT_FALSE(planner.memory(256, 1024)->fits());
  EXPECT_TRUE(planner.memory(16, 1024)->fits());
  const int32_t most = planner.sequences_that_fit(1024).value();
  EXPECT_GT(most, 50);
  EXPECT_LT(most, 64);
  EXPECT_TRUE(planner.memory(most, 1024)->fits());
  EXPECT_FALSE(planner.memory(most + 1, 1024)->fits());
  // Every fifth key/value head: five times the sequences.
  Planned grouped(with_kv_heads(shape("llama-2-13b"), 8).value(), "h100");
  EXPECT_GT(grouped.planner->sequences_that_fit(1024).value(), 4 * most);
}

// A product of B x D by D x F does 2BDF operations on (BD + DF + BF) numbers: intensity B for small B.
TEST(Textbook, IntensityOfAProductIsItsBatch) {
  for (int64_t batch : {1, 8, 64}) {
    TraceOps ops;
    Step step;
    ops.begin(step);
    const int64_t width = 4096, outputs = 14336;
    Weight weight{DType::f16, outputs, width, reinterpret_cast<const std::byte*>(64), 2 * width * outputs};
    ops.linear(weight, ops.scratch(batch, width), ops.scratch(batch, outputs));
    const Cost& cost = ops.records().back().cost;
    EXPECT_DOUBLE_EQ(cost.flops, 2.0 * static_cast<double>(batch * width * outputs));
    EXPECT_DOUBLE_EQ(cost.flops / static_cast<double>(cost.weight_bytes), static_cast<double>(batch));
    const double all = static_cast<double>(cost.weight_bytes + cost.activation_bytes);
    EXPECT_NEAR(cost.flops / all, static_cast<double>(batch), 0.05 * static_cast<double>(batch));
  }
}

// S queries over T keys: intensity about S * T / (S + T) if queries, keys, values and results all move; with the keys
// alone (a decode step) it is one operation a byte and head of the group, whatever the batch.
TEST(Textbook, IntensityOfAttention) {
  Planned planned(shape("llama-2-7b"), "h100");
  auto intensity = [&](int32_t batch) {
    for (const OpPlan& op : planned.planner->decode_ops(batch, 2048)) {
      if (op.op == "attend") return op.floor.flops / op.floor.bytes;
    }
    return 0.0;
  };
  EXPECT_NEAR(intensity(1), 1, 0.05);
  EXPECT_DOUBLE_EQ(intensity(1), intensity(32));
  // Prefill of S tokens at once: S * T / (S + T) with T = S, of which a causal pass sees half, in numbers of 2 bytes.
  TraceOps ops;
  const int32_t tokens = 1024;
  PassRows rows = {.begin = 0, .count = tokens, .wanted = 1};
  for (const TraceRecord& record : trace_pass(*planned.model, DType::f16, {&rows, 1})) {
    if (record.op != "attend") continue;
    const double numbers =
        static_cast<double>(record.cost.kv_bytes) / 2 + static_cast<double>(record.cost.activation_bytes) / 4;
    const double expected = 1024.0 * 1024 / (1024 + 1024);
    EXPECT_NEAR(record.cost.flops / 2 / numbers, expected / 2, 0.06 * expected);
    return;
  }
  FAIL() << "no attention";
}

TEST(Textbook, AnH100TurnsComputeBoundNear295) {
  Planned planned(shape("llama-2-13b"), "h100");
  EXPECT_NEAR(planned.planner->compute_bound_batch(), 989.4e12 / 3.35e12, 2);
}

// A prompt of 100 tokens and 20 more. With a cache: the prompt once, then contexts 101, 102 ...; without one every
// token computes all before it again.
TEST(Textbook, TheCacheSavesMostOfTheWork) {
  Planned planned(shape("llama-2-7b"), "h100");
  double cached = 0, again = 0, rows_cached = 0, rows_again = 0;
  for (int32_t i = 0; i < 20; ++i) {
    const int32_t known = 100 + i;
    cached += i == 0 ? planned.planner->prefill(100).floor.flops : planned.planner->decode(1, known).floor.flops;
    rows_cached += i == 0 ? 100 : 1;
    again += planned.planner->prefill(known).floor.flops;
    rows_again += known;
  }
  EXPECT_EQ(rows_cached, 119);
  EXPECT_EQ(rows_again, 2190);
  EXPECT_NEAR(again / cached, rows_again / rows_cached, 0.5);
}

TEST(Textbook, CopiesAndPartsOfAModel) {
  const ModelSpec whole = shape("llama-2-70b");
  const ModelSpec part = shard_spec(whole, 8).value();
  Planned alone(part, "h100", {.ranks = 8});
  auto backend = make_trace_backend();
  const double bytes = static_cast<double>(plan_weights(whole, DType::f16, *backend).bytes());
  EXPECT_NEAR(static_cast<double>(alone.model->weight_bytes()), bytes / 8, 0.001 * bytes);
  EXPECT_EQ(kv(part, 4, 4096) * 8, kv(whole, 4, 4096));  // eight key/value heads, one each
  const PassPlan step = alone.planner->decode(16, 2048);
  // A ring sends 2 (R - 1) / R of 16 rows of 8192 half-precision numbers, 161 times; then the logits come together.
  const double rows = 161 * 2 * 7.0 / 8 * 16 * 8192 * 2, logits = 16.0 * 4000 * 2 * 7;
  EXPECT_NEAR(step.reduce_bytes, rows + logits, 1);
  EXPECT_GT(step.reduce_seconds, step.reduce_bytes / 450e9);
  EXPECT_FALSE(shard_spec(whole, 7).ok());
  EXPECT_FALSE(shard_spec(whole, 0).ok());
}

}  // namespace
}  // namespace millrace
