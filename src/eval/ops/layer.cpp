// A whole layer of a network, call after call, against the same calls each finished before the next: a device may hold
// calls back to do several at once, and nobody may see that. Rows in any company too.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

struct LayerKind {
  std::string name;
  DType type, down_type;  // of all matrices but the last, and of that
  int32_t heads, kv_heads, head_dim;
  KvForm kv;
  bool qk_norm = false, neighbours = false;
};

constexpr int64_t kLayerWidth = 512, kInner = 768;
constexpr int32_t kLayerTokens = 200, kPageTokens = 16, kPages = 16;

struct LayerWeightsOnRig {
  Weight q, k, v, out, gate, up, down;
  Norm first, second, q_norm;
  Rope rope;
};

struct LayerFiles {
  LayerFiles(const LayerKind& kind, Chance& chance)
      : q(kind.type, int64_t{kind.heads} * kind.head_dim, kLayerWidth, chance),
        k(kind.type, int64_t{kind.kv_heads} * kind.head_dim, kLayerWidth, chance),
        v(kind.type, int64_t{kind.kv_heads} * kind.head_dim, kLayerWidth, chance),
        out(kind.type, kLayerWidth, int64_t{kind.heads} * kind.head_dim, chance),
        gate(kind.type, kInner, kLayerWidth, chance),
        up(kind.type, kInner, kLayerWidth, chance),
        down(kind.down_type, kLayerWidth, kInner, chance),
        first(chance.normals(kLayerWidth)),
        second(chance.normals(kLayerWidth)),
        q_norm(chance.normals(kind.head_dim)),
        frequencies(static_cast<size_t>(kind.head_dim / 2)) {
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = std::pow(10000.0f, -2 * static_cast<float>(i) / static_cast<float>(kind.head_dim));
  }
  LayerWeightsOnRig on(Rig& rig, const LayerKind& kind) const {
    return {.q = rig.weight(q),
            .k = rig.weight(k),
            .v = rig.weight(v),
            .out = rig.weight(out),
            .gate = rig.weight(gate),
            .up = rig.weight(up),
            .down = rig.weight(down),
            .first = {NormKind::rms, 1e-5f, rig.vector(first), nullptr, kLayerWidth},
            .second = {NormKind::rms, 1e-5f, rig.vector(second), nullptr, kLayerWidth},
            .q_norm = {NormKind::rms, 1e-5f, rig.vector(q_norm), nullptr, kind.head_dim},
            .rope = {rig.vector(frequencies), kind.head_dim, 1, kind.neighbours}};
  }

  FileMatrix q, k, v, out, gate, up, down;
  std::vector<float> first, second, q_norm, frequencies;
};

// The layer on one rig, with a cache for two sequences.
class Layer {
 public:
  Layer(Rig& rig, const LayerKind& kind, const LayerFiles& files)
      : rig_(rig), kind_(kind), weights_(files.on(rig, kind)) {
    const int64_t each = int64_t{kind.kv_heads} * kPageTokens;
    const int64_t side = each * std::max(kv_bytes(kind.kv.k, kind.head_dim), kv_bytes(kind.kv.v, kind.head_dim));
    view_ = {.base = rig.memory(Purpose::kv, 4 * kPages * 2 * side),
             .page_stride = 2 * side,
             .k_offset = 0,
             .v_offset = side,
             .page_tokens = kPageTokens,
             .kv_heads = kind.kv_heads,
             .k_dim = kind.head_dim,
             .v_dim = kind.head_dim,
             .form = kind.kv};
    for (int32_t i = 0; i < 4 * kPages; ++i) pages_.push_back((i * 7 + 3) % (4 * kPages));
  }

  // The stream behind the layer, of rows of these pieces. at_once: each call is finished before the next.
  Numbers run(const Numbers& all, std::span<const StepPiece> pieces, bool at_once) {
    std::vector<int32_t> rows;
    for (const StepPiece& piece : pieces)
      for (int32_t i = 0; i < piece.rows; ++i) rows.push_back(piece.begin + i);
    rig_.begin(pieces, pages_, kPages);
    const Tensor x = rig_.bring(all.picked(rows)), normed = rig_.blank(x.rows, kLayerWidth);
    auto done = [&] {
      if (at_once) rig_.finish();
    };
    Ops& ops = rig_.ops();
    ops.norm(weights_.first, 1, x, normed), done();
    const Tensor y = ops.scratch(x.rows, kLayerWidth);
    mix(normed, y, done);
    ops.add_norm(y, 0.8f, x, weights_.second, normed), done();
    const int64_t start = ops.mark();
    const Tensor inner = ops.scratch(x.rows, kInner);
    ops.linear_glu(weights_.gate, weights_.up, Activation::silu, normed, inner), done();
    ops.linear(weights_.down, inner, y), done();
    ops.restore(start);
    ops.add(y, 1, x), done();
    return rig_.read(x);
  }

 private:
  template <class F>
  void mix(Tensor normed, Tensor y, F&& done) {
    Ops& ops = rig_.ops();
    const int64_t start = ops.mark(), width = int64_t{kind_.heads} * kind_.head_dim,
                  kv_width = int64_t{kind_.kv_heads} * kind_.head_dim;
    const Tensor q = ops.scratch(y.rows, width), k = ops.scratch(y.rows, kv_width), v = ops.scratch(y.rows, kv_width);
    ops.linear_qkv(weights_.q, weights_.k, weights_.v, normed, q, k, v), done();
    const QkvFinish finish = {.q_norm = kind_.qk_norm ? &weights_.q_norm : nullptr,
                              .k_norm = kind_.qk_norm ? &weights_.q_norm : nullptr,
                              .rope = weights_.rope};
    ops.finish_qkv(finish, kind_.heads, q, k, v, view_), done();
    const Tensor mixed = ops.scratch(y.rows, width);
    ops.attend({.heads = kind_.heads, .scale = 0.02f}, q, view_, mixed), done();
    ops.linear(weights_.out, mixed, y), done();
    ops.restore(start);
  }

  Rig& rig_;
  const LayerKind& kind_;
  LayerWeightsOnRig weights_;
  KvView view_;
  std::vector<int32_t> pages_;
};

void check_layer(const LayerKind& kind, Scene& scene, Verdict& verdict) {
  Chance chance(301);
  const LayerFiles files(kind, chance);
  const Numbers in(kLayerTokens, kLayerWidth, chance);
  Layer device(scene.device, kind, files), right(scene.reference, kind, files);
  if (!scene.device.failure().empty()) return;
  const StepPiece all = {0, 0, kLayerTokens};
  const Numbers whole = device.run(in, {&all, 1}, false);
  verdict.close(whole, right.run(in, {&all, 1}, false), "a prompt");
  auto same = [&](const std::vector<StepPiece>& pieces, const std::string& what) {
    std::vector<int32_t> rows;
    for (const StepPiece& piece : pieces)
      for (int32_t i = 0; i < piece.rows; ++i) rows.push_back(piece.begin + i);
    verdict.same(device.run(in, pieces, false), whole.picked(rows), what);
    verdict.same(device.run(in, pieces, true), whole.picked(rows), what + ", each call at once");
  };
  same({all}, "a prompt");
  same({{1, 0, 1}}, "the first row");
  same({{1, 1, 2}}, "two rows");
  same({{1, 3, 1}}, "a row");
  same({{1, 4, 5}}, "five rows");
  same({{1, 9, 20}, {2, 0, 30}}, "two sequences");
  same({{1, 29, 1}, {2, 30, 1}}, "a row of each");
  same({{1, 30, 100}, {2, 31, 1}}, "a row beside many");
}

}  // namespace

void add_layer_checks(std::vector<OpsCheck>& checks, double allowed) {
  const std::vector<LayerKind> kinds = {
      {"BF16", DType::bf16, DType::bf16, 8, 2, 64, DType::bf16},
      {"BF16, 128 wide, F16 cache", DType::bf16, DType::bf16, 4, 1, 128, DType::f16, false, true},
      {"BF16, heads normed", DType::bf16, DType::bf16, 8, 2, 64, DType::bf16, true},
      {"BF16, 32 wide", DType::bf16, DType::bf16, 4, 4, 32, DType::bf16},
      {"Q8_0", DType::q8_0, DType::q8_0, 8, 2, 64, DType::bf16},
      {"Q4_K and Q6_K", DType::q4_k, DType::q6_k, 8, 2, 64, DType::bf16},
      {"Q4_0 and MXFP4", DType::q4_0, DType::mxfp4, 8, 2, 64, DType::f16},
      {"F16 among BF16", DType::f16, DType::bf16, 8, 2, 64, DType::bf16},
      {"BF16, then F16", DType::bf16, DType::f16, 8, 2, 64, DType::bf16},
      {"F32", DType::f32, DType::f32, 8, 2, 64, DType::f16},
      {"FP8_128", DType::fp8_128, DType::fp8_128, 8, 2, 64, DType::bf16},
      {"INT8_128", DType::int8_128, DType::int8_128, 8, 2, 64, DType::bf16},
      {"Q8_0, Q8 cache", DType::q8_0, DType::q8_0, 8, 2, 64, DType::i8},
      {"Q8_0, 128 wide, Q4 cache", DType::q8_0, DType::q8_0, 8, 2, 128, DType::q4_0},
  };
  constexpr double kCodedInputs = 0.15;  // four products whose inputs are rounded to FP8 or INT8
  // Keys of four bits: what differs by a bit before may be another code.
  auto coarse = [](const LayerKind& kind) {
    return kind.type == DType::fp8_128 || kind.type == DType::int8_128 || kind.kv.k == DType::q4_0;
  };
  for (const LayerKind& kind : kinds)
    checks.push_back({"a layer of " + kind.name, coarse(kind) ? kCodedInputs : allowed,
                      [kind](Scene& scene, Verdict& verdict) { check_layer(kind, scene, verdict); }});
  checks.push_back({"a layer of F16 among float16 activations", allowed,
                    [](Scene& scene, Verdict& verdict) {
                      check_layer({"F16", DType::f16, DType::f16, 8, 2, 64, DType::f16}, scene, verdict);
                    },
                    true});
}

}  // namespace millrace
