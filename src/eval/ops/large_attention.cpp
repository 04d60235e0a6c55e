// Attention over thousands of positions: some rows against the reference, and many against themselves, however they are
// cut into pieces and whoever is beside them. Kernels split such sequences over the machine in several ways.
#include <fmt/format.h>

#include "eval/ops/sequences.h"

namespace millrace {
namespace {

constexpr int32_t kLongSequences = 3;
constexpr int32_t kTail = 130, kMiddle = 40;  // rows that are computed at the end and in the middle

struct LongKind {
  AttentionKind kind;
  int32_t tokens;
};

const std::vector<LongKind>& long_kinds() {
  static const std::vector<LongKind> all = {
      // 64 rows of it at once have more partial results than there is room for.
      {{"sixteen queries a key, 128 wide", 32, 2, 128, 128, 16}, 40003},
      {{"as many keys, 64 wide, pages of 8", 3, 3, 64, 64, 8}, 20000},
      {{"sinks, pages of 64", 16, 1, 64, 64, 64, 0, 0, false, true}, 20002},
      // A few chunks more than one cluster of thread groups takes.
      {{"as many keys, 128 wide, pages of 32", 2, 2, 128, 128, 32}, 4503},
      {{"a window of 517, pages of 256", 8, 2, 64, 64, 256, 517}, 20000},
      {{"capped scores, pages of 128", 8, 2, 128, 128, 128, 0, 10}, 9001},
      {{"slopes, pages of 256", 8, 1, 128, 128, 256, 0, 0, true}, 9500},
      {{"80 wide, pages of 256", 4, 4, 80, 80, 256}, 9000},
      {{"a window of 1000 and 4 kept", 8, 2, 64, 64, 16, 1000, 0, false, false, 0, 0, 4}, 20000},
      {{"latents of 576, values of 512", 16, 1, 576, 0, 64, 0, 0, false, false, 0, 512}, 20000},
  };
  return all;
}

void check_long(const LongKind& kind, const KvForm& form, Scene& scene, Verdict& verdict) {
  const int32_t end = kind.tokens, tail = end - kTail, middle = end / 2;
  KvSequences device(scene.device, kind.kind, form, end, 9, kLongSequences),
      right(scene.reference, kind.kind, form, end, 9, 1);
  if (!scene.device.failure().empty()) return;
  for (int32_t sequence = 0; sequence < kLongSequences; ++sequence) device.fill(sequence);
  right.fill(0);
  const StepPiece pieces[] = {{0, tail, kTail}, {1, middle, kMiddle}};
  const Numbers whole = device.step(pieces);
  verdict.hash(whole);
  auto of = [&](const std::vector<StepPiece>& some) {
    std::vector<int32_t> rows = positions_of(some);
    for (int32_t& row : rows) row = row >= tail ? row - tail : kTail + row - middle;
    return whole.picked(rows);
  };
  for (const StepPiece& piece : {StepPiece{0, tail, 1}, {0, middle + 7, 1}, {0, end - 1, 1}})
    verdict.close(of({piece}), right.step({&piece, 1}), fmt::format("position {}", piece.begin));
  auto same = [&](const std::vector<StepPiece>& some, const std::string& what) {
    verdict.same(device.step(some), of(some), what);
  };
  same({{2, end - 1, 1}}, "the last row alone");
  same({{2, end - 77, 1}}, "a row alone");
  same({{2, middle, 1}}, "a row of the middle alone");
  same({{2, tail, 3}}, "three rows");
  same({{2, tail + 3, 64}}, "64 rows");
  same({{2, tail, kTail}}, "all rows of the end alone");
  same({{0, end - 1, 1}, {1, middle + 3, 1}, {2, end - 64, 1}}, "three single rows together");
  same({{0, end - 1, 1}, {1, tail, 40}, {2, middle, 17}}, "a single row beside longer pieces");
  // As drafted tokens are, of which sixteen may follow one another.
  std::vector<StepPiece> rows;
  for (int32_t i = 0; i < Rig::kMostSequences; ++i)
    rows.push_back({i / 16 % kLongSequences, end - Rig::kMostSequences + i, 1});
  same(rows, "every row a sequence of its own");
}

}  // namespace

void add_large_attention_checks(std::vector<OpsCheck>& checks, double allowed, bool apart) {
  const KvForm forms[] = {DType::f32, DType::f16, DType::bf16, DType::i8, DType::f8_e4m3, DType::q4_0};
  for (const KvForm& form : forms) {
    if (apart && form == DType::f32) continue;  // such devices keep 16 bits or fewer
    for (const LongKind& kind : long_kinds()) {
      if (!kind.kind.fits(form)) continue;
      checks.push_back({fmt::format("attend far over {}, {}", form.name(), kind.kind.name), allowed,
                        [&kind, form](Scene& s, Verdict& v) { check_long(kind, form, s, v); }});
    }
  }
}

}  // namespace millrace
