// The cache and attention: every kind of it against the reference, and a row's bits whatever chunks, steps, pages and
// sequences it is computed among.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

struct Kind {
  std::string name;
  int32_t heads, kv_heads, k_dim, v_dim, page_tokens;
  int32_t window = 0;
  float softcap = 0;
  bool slopes = false, sinks = false;
  int32_t grid = 0, value_dim = 0;
  int32_t kept = 0;  // first positions beside the window; queries are turned back to where they are seen from
  bool neighbours = false;
  int32_t value_width() const { return v_dim > 0 ? v_dim : value_dim; }
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"four queries a key, 64 wide", 12, 3, 64, 64, 16},
      {"one key for all, 128 wide", 8, 1, 128, 128, 32},
      {"as many keys, 128 wide", 4, 4, 128, 128, 64},
      {"80 wide", 4, 4, 80, 80, 16},
      {"256 wide", 4, 2, 256, 256, 16},
      {"unlike keys and values", 6, 2, 24, 40, 8},
      {"a window", 8, 2, 64, 64, 16, 37},
      {"a window of more than a chunk", 8, 2, 128, 128, 16, 150},
      {"capped scores", 4, 2, 64, 64, 16, 0, 5},
      {"slopes", 6, 3, 64, 64, 16, 0, 0, true},
      {"sinks and a window", 16, 2, 64, 64, 16, 100, 0, false, true},
      {"sinks, 128 wide", 8, 1, 128, 128, 16, 0, 0, false, true},
      {"sinks, 80 wide", 4, 1, 80, 80, 16, 0, 0, false, true},
      {"a grid of positions", 8, 2, 64, 64, 16, 0, 0, false, false, 96},
      {"a grid and a window, 80 wide", 4, 2, 80, 80, 16, 70, 0, false, false, 128},
      {"latents of 576, values of 512", 16, 1, 576, 0, 16, 0, 0, false, false, 0, 512},
      {"latents of 288, values of 256, a window", 40, 1, 288, 0, 32, 100, 0, false, true, 0, 256},
      {"a window and 4 kept", 8, 2, 64, 64, 16, 37, 0, false, false, 0, 0, 4},
      {"a window and 100 kept, 128 wide", 4, 4, 128, 128, 32, 60, 0, false, false, 0, 0, 100},
      {"a window and 20 kept, 80 wide, slopes", 4, 2, 80, 80, 8, 50, 0, true, false, 0, 0, 20, true},
      {"a window and 9 kept, sinks, capped", 16, 2, 64, 64, 16, 130, 5, false, true, 0, 0, 9},
      {"latents of 80, values of 64", 40, 1, 80, 0, 16, 0, 0, false, false, 0, 64},
  };
  return all;
}

// Every sequence has the same queries, keys and values, on pages of its own among everybody's.
class Sequences {
 public:
  static constexpr int32_t kCount = 6;

  Sequences(Rig& rig, const Kind& kind, const KvForm& form, int32_t tokens, uint64_t seed) : rig_(rig), kind_(kind) {
    Chance chance(seed);
    q_ = Numbers(tokens, int64_t{kind.heads} * kind.k_dim, chance);
    k_ = Numbers(tokens, int64_t{kind.kv_heads} * kind.k_dim, chance);
    v_ = Numbers(tokens, int64_t{kind.kv_heads} * kind.v_dim, chance);
    stride_ = (tokens + kind.page_tokens - 1) / kind.page_tokens;
    for (int32_t i = 0; i < stride_ * kCount; ++i) pages_.push_back(i);
    for (size_t i = pages_.size(); i > 1; --i)
      std::swap(pages_[i - 1], pages_[static_cast<size_t>(chance.below(static_cast<int32_t>(i)))]);
    const int64_t each = int64_t{kind.kv_heads} * kind.page_tokens;
    const int64_t k = (each * kv_bytes(form.k, kind.k_dim) + 63) & ~63, v = each * kv_bytes(form.v, kind.v_dim),
                  bytes = (k + v + 63) & ~63;
    std::byte* base = rig.memory(Purpose::kv, bytes * static_cast<int64_t>(pages_.size()));
    // Whoever reads what was never written shows it.
    const std::vector<std::byte> nan(static_cast<size_t>(bytes) * pages_.size(), std::byte{0xff});
    if (base != nullptr) rig.backend().copy(base, nan.data(), static_cast<int64_t>(nan.size()));
    view_ = {base, bytes, 0, k, kind.page_tokens, kind.kv_heads, kind.k_dim, kind.v_dim, form, 0};
    attention_ = {.heads = kind.heads,
                  .scale = 1 / std::sqrt(static_cast<float>(kind.k_dim)),
                  .value_dim = kind.value_dim,
                  .window = kind.window,
                  .grid = kind.grid,
                  .softcap = kind.softcap,
                  .slopes = kind.slopes ? rig.vector(chance.normals(kind.heads, 0.1f)) : nullptr,
                  .sinks = kind.sinks ? rig.vector(chance.normals(kind.heads, 2)) : nullptr,
                  .kept = kind.kept,
                  .turn = {}};
    if (kind.kept == 0) return;
    std::vector<float> frequencies;
    for (int32_t i = 0; i < kind.k_dim / 4; ++i) frequencies.push_back(std::pow(0.1f, static_cast<float>(i) / 8));
    attention_.turn = {rig.vector(frequencies), kind.k_dim / 2, 1, kind.neighbours};
  }

  // A step; what the pieces' rows give, in their order.
  Numbers step(std::span<const StepPiece> pieces) {
    std::vector<int32_t> rows;
    for (const StepPiece& piece : pieces)
      for (int32_t i = 0; i < piece.rows; ++i) rows.push_back(piece.begin + i);
    rig_.begin(pieces, pages_, stride_);
    const Tensor q = rig_.bring(q_.picked(rows)), k = rig_.bring(k_.picked(rows)), v = rig_.bring(v_.picked(rows)),
                 out = rig_.blank(q.rows, int64_t{kind_.heads} * kind_.value_width());
    rig_.ops().kv_store(k, v, view_);
    rig_.ops().attend(attention_, q, view_, out);
    return rig_.read(out);
  }
  int32_t tokens() const { return static_cast<int32_t>(q_.rows); }

 private:
  Rig& rig_;
  const Kind& kind_;
  Numbers q_, k_, v_;
  std::vector<int32_t> pages_;
  int32_t stride_ = 0;
  KvView view_;
  Attention attention_;
};

// Whether a cache may have heads of this kind in this form.
bool spec_fits(const Kind& kind, const KvForm& form) {
  const int k_group = format(form.k).group, v_group = format(form.v).group;
  return kind.k_dim % k_group == 0 && kind.v_dim % v_group == 0 && (kind.v_dim > 0 || k_group == 1);
}

// What each row of a step must be.
Numbers expected(const Numbers& whole, std::span<const StepPiece> pieces) {
  std::vector<int32_t> rows;
  for (const StepPiece& piece : pieces)
    for (int32_t i = 0; i < piece.rows; ++i) rows.push_back(piece.begin + i);
  return whole.picked(rows);
}

void check_kind(const Kind& kind, const KvForm& form, Scene& scene, Verdict& verdict) {
  constexpr int32_t kTokens = 330;
  Sequences right(scene.reference, kind, form, kTokens, 7), device(scene.device, kind, form, kTokens, 7);
  if (!scene.device.failure().empty()) return;
  const StepPiece all = {0, 0, kTokens};
  const Numbers whole = device.step({&all, 1});
  verdict.close(whole, right.step({&all, 1}), "a prompt");
  auto same = [&](const std::vector<StepPiece>& pieces, const std::string& what) {
    verdict.same(device.step(pieces), expected(whole, pieces), what);
  };
  int32_t at = 0;
  for (const int32_t rows : {110, 1, 1, 16, 1, 126, 1, 1, 70, 1, 1, 1}) {
    same({{1, at, rows}}, fmt::format("positions {} to {} in a step", at, at + rows - 1));
    at += rows;
  }
  same({{1, 0, 1}, {2, 0, 64}, {3, 0, 127}, {4, 0, 128}, {5, 0, 300}}, "five prompts together");
  same({{1, 1, 1}, {2, 64, 1}, {3, 127, 1}, {4, 128, 1}, {5, 300, 1}}, "five single rows together");
  same({{1, 2, 40}, {2, 65, 1}, {3, 128, 2}, {4, 129, 1}, {5, 301, 20}}, "single rows beside longer pieces");
  same({{5, 321, 1}}, "a single row");
}

}  // namespace

void add_attention_checks(std::vector<OpsCheck>& checks, double allowed, bool apart) {
  const KvForm forms[] = {DType::f32,
                          DType::f16,
                          DType::bf16,
                          DType::i8,
                          DType::f8_e4m3,
                          DType::q4_0,
                          {DType::i8, DType::f16, true},
                          {DType::q4_0, DType::i8, false}};
  for (const KvForm& form : forms) {
    if (apart && form == DType::f32) continue;  // such devices keep 16 bits or fewer
    for (const Kind& kind : kinds()) {
      if (!spec_fits(kind, form)) continue;
      checks.push_back({fmt::format("attend over {}, {}", form.name(), kind.name), allowed,
                        [&kind, form](Scene& s, Verdict& v) { check_kind(kind, form, s, v); }});
    }
  }
}

}  // namespace millrace
