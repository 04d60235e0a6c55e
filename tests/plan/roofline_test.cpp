#include "plan/roofline.h"

#include <gtest/gtest.h>

#include "model/shapes.h"

namespace millrace {
namespace {

// Llama-2-7B in float16 as everybody computes it by hand: 13.5 GB of weights of which the embedding table is not read,
// and 2 * 32 layers * 4096 * 2 bytes of keys and values a token.
TEST(Roofline, DecodeOfLlama7BIsItsWeightsAndItsCache) {
  auto backend = make_trace_backend();
  auto model = Model::outline(named_shape("llama-2-7b").value(), DType::f16, *backend).value();
  PassRows one = {.begin = 1023, .count = 1, .wanted = 1};
  Machine machine = {.read_bytes = 1e12, .f32_operations = 1e15};
  Floor floor = floor_of(trace_pass(*model, DType::f16, {&one, 1}), machine, false);
  double weights = 2.0 * (32.0 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008) + 4096.0 * 32000);
  double cache = 2.0 * 32 * 4096 * 2 * 1024;
  EXPECT_NEAR(floor.bytes, weights + cache, 0.002 * weights);
  EXPECT_EQ(floor.bound(), Bound::memory);
  EXPECT_NEAR(floor.seconds, floor.bytes / 1e12, 0.01 * floor.seconds);
}

TEST(Roofline, PrefillIsBoundByArithmetic) {
  auto backend = make_trace_backend();
  auto model = Model::outline(named_shape("tinyllama-1.1b").value(), DType::bf16, *backend).value();
  PassRows prompt = {.begin = 0, .count = 512, .wanted = 1};
  Machine machine = {.read_bytes = 60e9, .int8_operations = 1.3e12, .bf16_operations = 660e9, .f32_operations = 166e9};
  Floor floor = floor_of(trace_pass(*model, DType::f16, {&prompt, 1}), machine, true);
  EXPECT_EQ(floor.bound(), Bound::compute);
  double body = 22.0 * (2 * 2048.0 * 2048 + 2 * 2048.0 * 256 + 3 * 2048.0 * 5632);
  EXPECT_NEAR(floor.flops, 2 * body * 512, 0.1 * floor.flops);
  Floor slower = floor_of(trace_pass(*model, DType::f16, {&prompt, 1}), machine, false);
  EXPECT_GT(slower.seconds, 2 * floor.seconds);
}

// Where float16 products are made of two bfloat16 ones, that is their limit, and not float32's.
TEST(Roofline, Float16IsHeldToTheArithmeticItHas) {
  const Machine plain = {.read_bytes = 60e9, .bf16_operations = 660e9, .f32_operations = 166e9};
  EXPECT_EQ(ceilings_of(plain, true).f16, 166e9);
  const Machine tiles = {
      .read_bytes = 60e9, .bf16_operations = 2000e9, .f32_operations = 166e9, .f16_operations = 1000e9};
  EXPECT_EQ(ceilings_of(tiles, true).f16, 1000e9);
  EXPECT_EQ(ceilings_of(tiles, false).f16, 166e9) << "asked for float32, all is float32";
}

// Where a state stands for the past, a token costs the same at any depth, the state's bytes included; where some layers
// attend, it grows by their keys and values alone. This is what explain draws as "a token by context".
TEST(Roofline, ATokenOfARecurrentModelDoesNotGrowWithItsDepth) {
  const Machine machine = {.read_bytes = 1e12, .f32_operations = 1e15};
  auto floor_at = [&](std::string_view shape, int32_t depth) {
    auto backend = make_trace_backend();
    auto model = Model::outline(named_shape(shape).value(), DType::q8_0, *backend).value();
    PassRows one = {.begin = depth, .count = 1, .wanted = 1};
    return floor_of(trace_pass(*model, DType::f16, {&one, 1}), machine, false);
  };
  for (std::string_view shape : {"mamba-130m", "mamba2-130m"}) {
    const Floor first = floor_at(shape, 15), late = floor_at(shape, 60000);
    EXPECT_EQ(first.bytes, late.bytes) << shape;
    EXPECT_EQ(first.flops, late.flops) << shape;
  }
  const double states = 24.0 * 24 * 128 * 64 * 4;  // read and written by every token
  EXPECT_GT(floor_at("mamba2-130m", 15).bytes, 2 * states);
  const double grown = floor_at("qwen3.5-9b", 10015).bytes - floor_at("qwen3.5-9b", 15).bytes;
  EXPECT_NEAR(grown, 10000.0 * 8 * 2 * 4 * 256 * 2, 0.02 * grown);
}

}  // namespace
}  // namespace millrace
