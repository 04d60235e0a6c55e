// Attention by tiles of AMX, on any machine with AVX-512: the kernel itself over tiles in plain C++.
#include "backend/emulated/tiles.h"
#include "backend/attend_scene.h"
#include "backend/cpu/ops.h"

namespace millrace::testing {
namespace {

struct Emulated {
  explicit Emulated(int threads)
      : team(threads),
        kernels(cpu::choose_kernels("avx512").value()),
        room(static_cast<size_t>(cpu::fixed_bytes(threads) + kWorkspace + kAlignment)) {
    there = add_emulated_tiles(kernels);
    auto* place = reinterpret_cast<std::byte*>(aligned(reinterpret_cast<int64_t>(room.data())));
    Arena arena(place + cpu::fixed_bytes(threads), kWorkspace);
    ops = std::make_unique<cpu::CpuOps>(team, kernels, Activations::fast, arena, place);
  }
  Team team;
  cpu::Kernels kernels;
  std::vector<std::byte> room;
  std::unique_ptr<cpu::CpuOps> ops;
  bool there = false;
};

bool has_avx512() {
  const auto isas = cpu_isas();
  return std::find(isas.begin(), isas.end(), "avx512") != isas.end();
}

std::vector<Case> sixteen_bits() {
  std::vector<Case> all = cases();
  std::erase_if(
      all, [](const Case& c) { return !(c.shape.form == KvForm(DType::f16) || c.shape.form == KvForm(DType::bf16)); });
  for (DType type : {DType::f16, DType::bf16}) {
    all.push_back({"wide", 4, {2, 144, 128, 16, type}});
    all.push_back({"many heads", 100, {1, 32, 16, 16, type}});
    all.push_back({"a latent of 576", 13, {1, 576, 0, 16, type}, 0, 0, false, false, 512});
  }
  return all;
}

TEST(Tiles, AttentionMatchesReference) {
  if (!has_avx512()) GTEST_SKIP() << "needs AVX-512";
  for (const Case& c : sixteen_bits()) {
    Scene scene(c, 150, 3);
    Machine oracle = reference();
    Emulated machine(1);
    ASSERT_TRUE(machine.there);
    expect_close(scene.run(machine, {150}, 1), scene.run(oracle, {150}, 1), 2e-2f, c.name);
  }
}

// One row alone and rows together, in tiles of any number of queries, by one worker and by three.
TEST(Tiles, AttentionOfARowIsItsOwn) {
  if (!has_avx512()) GTEST_SKIP() << "needs AVX-512";
  for (const Case& c : sixteen_bits()) {
    Scene scene(c, 200, 4);
    Emulated one(1), three(3);
    Rows whole = scene.run(one, {200}, 1);
    expect_same_bits(scene.run(one, {120, 1, 1, 1, 75, 1}, 2), whole, 0, 0, 200, c.name + ", row by row");
    expect_same_bits(scene.run(three, {3, 124, 2, 70}, 3), whole, 0, 0, 200, c.name + ", three workers");
  }
}

// Several runs of chunks, so that tiles merge chunks themselves and runs are merged for them.
TEST(Tiles, AttentionFarBack) {
  if (!has_avx512()) GTEST_SKIP() << "needs AVX-512";
  for (int32_t window : {0, 300}) {
    Case c{"deep", 4, {1, 32, 32, 16, DType::bf16}, window, 0, false, window > 0};
    Scene scene(c, 1100, 5);
    Machine oracle = reference();
    Emulated one(1), two(2);
    Rows whole = scene.run(one, {1100}, 1);
    expect_close(whole, scene.run(oracle, {1100}, 1), 2e-2f, "deep");
    expect_same_bits(scene.run(two, {700, 1, 300, 1, 97, 1}, 2), whole, 0, 0, 1100, "deep");
  }
}

}  // namespace
}  // namespace millrace::testing
