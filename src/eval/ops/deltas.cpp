// What adapters add to products: rows with adapters of several ranks beside rows without, which stay as they are to the
// bit.
#include <fmt/format.h>

#include <algorithm>

#include "eval/ops/scene.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr double kAllowed = 2e-5;
constexpr int32_t kRows = 70;
constexpr int32_t kRanks[] = {1, 8, 33, 0, 64};  // 0: an adapter that leaves the matrix alone
constexpr int32_t kWidest = 64;

struct Case {
  int64_t ins = 0, outs = 0;
  bool table = false;
  std::vector<std::vector<float>> down, up;  // by adapter
  std::vector<int32_t> adapters, ids;        // by row
  std::vector<float> strengths;
};

// Each way that numbers can lie.
DeltaNumbers lie_of(size_t adapter) { return static_cast<DeltaNumbers>(adapter % 3); }

std::vector<uint16_t> halves_of(const std::vector<float>& numbers, DeltaNumbers lie) {
  std::vector<uint16_t> halves;
  for (const float number : numbers)
    halves.push_back(lie == DeltaNumbers::bf16 ? f32_to_bf16(number) : f32_to_f16(number));
  return halves;
}

// Numbers that lose nothing where they lie.
std::vector<float> kept(std::vector<float> numbers, DeltaNumbers lie) {
  if (lie == DeltaNumbers::f32) return numbers;
  const std::vector<uint16_t> halves = halves_of(numbers, lie);
  std::ranges::transform(halves, numbers.begin(), lie == DeltaNumbers::bf16 ? bf16_to_f32 : f16_to_f32);
  return numbers;
}

Case make_case(int64_t ins, int64_t outs, bool table, Chance& chance) {
  Case made = {.ins = ins, .outs = outs, .table = table};
  for (size_t i = 0; i < std::size(kRanks); ++i) {
    made.down.push_back(kept(chance.normals(kRanks[i] * ins, 0.1f), lie_of(i)));
    made.up.push_back(kept(chance.normals(kRanks[i] * outs, 0.1f), lie_of(i)));
  }
  for (int32_t row = 0; row < kRows; ++row) {
    made.adapters.push_back(chance.below(static_cast<int32_t>(std::size(kRanks)) + 1) - 1);
    made.strengths.push_back(row % 3 == 0 ? 0.5f : 1.0f);
    made.ids.push_back(chance.below(static_cast<int32_t>(ins)));
  }
  return made;
}

template <class T>
T* brought(Rig& rig, std::span<const T> values) {
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  std::byte* place = rig.memory(Purpose::weights, bytes);
  if (place != nullptr) rig.backend().copy(place, reinterpret_cast<const std::byte*>(values.data()), bytes);
  return reinterpret_cast<T*>(place);
}

std::byte* lying(Rig& rig, const std::vector<float>& numbers, DeltaNumbers lie) {
  if (lie == DeltaNumbers::f32) return reinterpret_cast<std::byte*>(brought<float>(rig, numbers));
  return reinterpret_cast<std::byte*>(brought<uint16_t>(rig, halves_of(numbers, lie)));
}

// What rows [first, first + count) of `to` become; `wide`: all numbers lie as float32.
Numbers run(Rig& rig, const Case& one, const Numbers& in, const Numbers& to, int32_t first, int32_t count,
            bool wide = false) {
  std::vector<Delta> changes;
  for (size_t i = 0; i < std::size(kRanks); ++i) {
    if (kRanks[i] == 0) {
      changes.emplace_back();
      continue;
    }
    const DeltaNumbers lie = wide ? DeltaNumbers::f32 : lie_of(i);
    changes.push_back({lying(rig, one.down[i], lie), lying(rig, one.up[i], lie), kRanks[i], 1.5f, lie});
  }
  auto rows = [&](const auto& values) {
    return std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  };
  const std::vector<float> room(static_cast<size_t>(count * kWidest));
  RowDeltas deltas = {.changes = brought<Delta>(rig, changes),
                      .listed = changes.data(),
                      .adapters = brought<int32_t>(rig, rows(one.adapters)),
                      .strengths = brought<float>(rig, rows(one.strengths)),
                      .ids = one.table ? brought<int32_t>(rig, rows(one.ids)) : nullptr,
                      .low = brought<float>(rig, room),
                      .rank = kWidest};
  rig.begin(count);
  const Tensor from = one.table ? Tensor{} : rig.bring(in.some(first, count)), out = rig.bring(to.some(first, count));
  if (rig.failure().empty()) rig.ops().linear_delta(deltas, from, out);
  return rig.read(out);
}

void check_linear_delta(Scene& scene, Verdict& verdict) {
  Chance chance(701);
  struct Shape {
    int64_t ins, outs;
    bool table;
  };
  for (const Shape& shape : {Shape{384, 1024, false}, {515, 97, false}, {33, 2048, false}, {300, 96, true}}) {
    const Case one = make_case(shape.ins, shape.outs, shape.table, chance);
    const Numbers in(kRows, shape.ins, chance), to(kRows, shape.outs, chance);
    const std::string what = fmt::format("{} x {}{}", shape.outs, shape.ins, shape.table ? " by ids" : "");
    const Numbers all = run(scene.device, one, in, to, 0, kRows);
    verdict.close(all, run(scene.reference, one, in, to, 0, kRows), what);
    verdict.same(run(scene.device, one, in, to, 0, kRows, true), all, what + ": in 16 bits and in 32");
    for (const int32_t count : {1, 2, 9, 33})
      verdict.same(run(scene.device, one, in, to, 7, count), all.some(7, count),
                   fmt::format("{}: {} rows by themselves", what, count));
    for (int32_t row = 0; row < kRows; ++row) {
      const int32_t adapter = one.adapters[static_cast<size_t>(row)];
      if (adapter < 0 || kRanks[adapter] == 0)
        verdict.same(all.some(row, 1), to.some(row, 1), fmt::format("{}: row {} has no adapter", what, row));
    }
  }
}

}  // namespace

void add_delta_checks(std::vector<OpsCheck>& checks) {
  checks.push_back({"linear_delta", kAllowed, check_linear_delta});
}

}  // namespace millrace
