// Products of many rows and of long ones: some rows against the reference, and all against themselves. Kernels cut such
// work into tiles and segments of their own, of which a thread group may have several.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

struct LargeProduct {
  int64_t outputs, inputs;
  int32_t rows;
  bool gated = false;
  std::string text() const {
    return fmt::format("{} rows by {} x {}{}", rows, outputs, inputs, gated ? ", gated" : "");
  }
};

constexpr LargeProduct kLargeProducts[] = {
    // An odd number of tiles of rows, several for a thread group.
    {4096, 4096, 1900},
    {4112, 1536, 1900},
    {3000, 1024, 1100},
    {7000, 512, 1900},
    {6256, 512, 1900, true},
    // Sums so long that they are cut.
    {512, 14336, 1900},
    {6144, 4096, 300},
    {2050, 8192, 300},
    {1000, 9216, 300},
};

// A row of zeros, added to next to nothing.
constexpr int32_t kNothing = 80;

// What a product adds to a stream of rows, or what a pair of them gives behind a gate.
Numbers product(Rig& rig, const LargeProduct& shape, std::span<const Weight> weights, const Numbers& in,
                const Numbers& stream) {
  rig.begin(static_cast<int32_t>(in.rows));
  const Tensor from = rig.bring(in), out = rig.blank(in.rows, shape.outputs);
  if (shape.gated) {
    rig.ops().linear_glu(weights[0], weights[1], Activation::silu, from, out);
    return rig.read(out);
  }
  const Tensor to = rig.bring(stream);
  rig.ops().linear(weights[0], from, out);
  rig.ops().add(out, 0.5f, to);
  return rig.read(to);
}

void check_large(const LargeProduct& shape, DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 1000);
  Numbers in(shape.rows, shape.inputs, chance), stream(shape.rows, shape.outputs, chance);
  std::fill_n(in.row(kNothing), in.cols, 0.0f);
  for (int64_t i = 0; i < stream.cols; ++i) stream.row(kNothing)[i] = static_cast<float>(i) * 1e-42f;
  std::vector<Weight> device, right;
  for (int i = 0; i < (shape.gated ? 2 : 1); ++i) {
    const FileMatrix file(type, shape.outputs, shape.inputs, chance);
    device.push_back(scene.device.weight(file));
    right.push_back(scene.reference.weight(file));
  }
  if (!scene.device.failure().empty()) return;
  const Numbers all = product(scene.device, shape, device, in, stream);
  verdict.hash(all);
  const std::array<int32_t, 4> judged = {0, 77, kNothing, shape.rows - 1};
  verdict.close(all.picked(judged), product(scene.reference, shape, right, in.picked(judged), stream.picked(judged)),
                shape.text());
  auto same = [&](int32_t first, int32_t count) {
    verdict.same(product(scene.device, shape, device, in.some(first, count), stream.some(first, count)),
                 all.some(first, count),
                 fmt::format("{}: rows {} to {} by themselves", shape.text(), first, first + count - 1));
  };
  for (const int32_t first : {0, 77})
    for (const int32_t count : {1, 2, 5, 8, 9, 16, 17, 40, 64, 65, 129, 200}) same(first, count);
  for (int32_t first = 300; first < shape.rows; first += 100) same(first, std::min(100, shape.rows - first));
  if (shape.rows > 1024) same(shape.rows - 1024, 1024);
}

// Formats that are multiplied in ways of their own.
constexpr DType kLargeTypes[] = {DType::bf16, DType::f16,  DType::q8_0,    DType::q4_0,
                                 DType::q4_k, DType::q6_k, DType::fp8_128, DType::int8_128};

}  // namespace

void add_large_product_checks(std::vector<OpsCheck>& checks, double allowed) {
  constexpr double kCodedInputs = 4e-2;  // FP8 and INT8 weights may be multiplied with inputs rounded likewise
  for (const DType type : kLargeTypes) {
    const bool coded = type == DType::fp8_128 || type == DType::int8_128;
    for (const LargeProduct& shape : kLargeProducts) {
      if (shape.inputs % format(type).group != 0) continue;
      checks.push_back({fmt::format("{} in {}", shape.text(), format(type).name),
                        (shape.gated ? 2 : 1) * (coded ? kCodedInputs : allowed),
                        [&shape, type](Scene& s, Verdict& v) { check_large(shape, type, s, v); }, type == DType::f16});
    }
  }
}

}  // namespace millrace
