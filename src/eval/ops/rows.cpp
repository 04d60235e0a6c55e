// Operations on rows: norms, activations, sums, rotation. Float32 on every device, so they are near to the reference.
#include <cmath>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr double kAllowed = 2e-5;
constexpr double kRounded = 5e-3;  // results that are kept in 16 bits
// Angles are float32 products with positions of a thousand: what that rounds is seen in the result.
constexpr double kTurned = 2e-4;
constexpr int32_t kRows = kJudgedRows;

struct NormCase {
  NormKind kind;
  int32_t parts;
  bool weight, bias;
  int64_t cols;
};

void check_norm(Scene& scene, Verdict& verdict) {
  Chance chance(201);
  for (const NormCase& c : {NormCase{NormKind::rms, 1, true, false, 384},
                            {NormKind::layer, 1, true, true, 768},
                            {NormKind::rms, 6, true, false, 384},
                            {NormKind::layer, 4, false, false, 4096},
                            {NormKind::rms, 1, true, false, 5000},
                            {NormKind::rms, 1, false, false, 96}}) {
    const Numbers in(kRows, c.cols, chance, 3);
    const std::vector<float> weight = chance.normals(c.cols / c.parts), bias = chance.normals(c.cols / c.parts);
    auto run = [&](Rig& rig, const Numbers& some, bool in_place) {
      const Norm norm = {c.kind, 1e-5f, c.weight ? rig.vector(weight) : nullptr, c.bias ? rig.vector(bias) : nullptr,
                         c.cols / c.parts};
      rig.begin(static_cast<int32_t>(some.rows));
      const Tensor from = rig.bring(some), to = in_place ? from : rig.blank(some.rows, some.cols);
      rig.ops().norm(norm, c.parts, from, to);
      return rig.read(to);
    };
    const std::string what =
        fmt::format("{} of {} in {} parts", c.kind == NormKind::rms ? "rms" : "layer norm", c.cols, c.parts);
    for (const bool in_place : {false, true}) {
      const Numbers all = run(scene.device, in, in_place);
      verdict.close(all, run(scene.reference, in, in_place), in_place ? kAllowed : kRounded,
                    what + (in_place ? ", in place" : ""));
      for (const int32_t count : {1, 2, 3, 9})
        verdict.same(run(scene.device, in.some(5, count), in_place), all.some(5, count),
                     fmt::format("{}: {} rows by themselves", what, count));
    }
  }
}

void check_add_norm(Scene& scene, Verdict& verdict) {
  Chance chance(202);
  const int64_t cols = 1536;
  const Numbers in(kRows, cols, chance), stream(kRows, cols, chance);
  const std::vector<float> weight = chance.normals(cols);
  struct Both {
    Numbers stream, normed;
  };
  auto run = [&](Rig& rig, int32_t count, bool body) {
    const Norm norm = {NormKind::rms, 1e-6f, rig.vector(weight), nullptr, cols};
    rig.begin(count);
    const Tensor from = rig.bring(in.some(0, count)), to = rig.bring(stream.some(0, count)),
                 out = rig.blank(count, cols);
    if (body)
      rig.ops().Ops::add_norm(from, 0.5f, to, norm, out);
    else
      rig.ops().add_norm(from, 0.5f, to, norm, out);
    return Both{rig.read(to), rig.read(out)};
  };
  const Both all = run(scene.device, kRows, false), right = run(scene.reference, kRows, false);
  verdict.close(all.stream, right.stream, "stream");
  verdict.close(all.normed, right.normed, kRounded, "norm");
  for (const int32_t count : {1, 2, 3, 33}) {
    const Both some = run(scene.device, count, false), body = run(scene.device, count, true);
    verdict.same(some.stream, all.stream.some(0, count), fmt::format("stream of {} rows", count));
    verdict.same(some.normed, all.normed.some(0, count), fmt::format("norm of {} rows", count));
    verdict.same(some.stream, body.stream, fmt::format("stream of {} rows against the body", count));
    verdict.same(some.normed, body.normed, fmt::format("norm of {} rows against the body", count), true);
  }
}

void check_activations(Scene& scene, Verdict& verdict) {
  Chance chance(203);
  const int64_t cols = 300;
  const Numbers in(kRows, cols, chance, 4), up(kRows, cols, chance);
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                      Activation::relu_squared, Activation::sigmoid, Activation::none}) {
    auto run = [&](Rig& rig, int32_t count, bool gated) {
      rig.begin(count);
      const Tensor from = rig.bring(in.some(0, count)), other = rig.bring(up.some(0, count)),
                   to = rig.blank(count, cols);
      if (gated)
        rig.ops().glu(activation, from, other, to);
      else
        rig.ops().activate(activation, from, to);
      return rig.read(to);
    };
    for (const bool gated : {false, true}) {
      const std::string what = fmt::format("activation {}{}", static_cast<int>(activation), gated ? ", gated" : "");
      const Numbers all = run(scene.device, kRows, gated);
      verdict.close(all, run(scene.reference, kRows, gated), what);
      verdict.same(run(scene.device, 3, gated), all.some(0, 3), what + ", three rows");
    }
  }
}

// add, clamp, gather and finish_logits.
void check_plain(Scene& scene, Verdict& verdict) {
  Chance chance(204);
  const int64_t cols = 515;
  const Numbers in(kRows, cols, chance, 3), to(kRows, cols, chance);
  std::vector<int32_t> chosen;
  for (int32_t i = 0; i < kRows; ++i) chosen.push_back(i == 1 ? 69 : i * 3 % kRows);
  auto run = [&](Rig& rig, int which, int32_t first, int32_t count) {
    rig.begin(which == 2 ? kRows : count);
    const std::span<const int32_t> wanted(chosen.data() + first, static_cast<size_t>(count));
    const int32_t* rows = which == 2 ? rig.integers(wanted) : nullptr;
    const Tensor from = rig.bring(which == 2 ? in : in.some(first, count)), out = rig.bring(to.some(first, count));
    if (which == 0) rig.ops().add(from, 0.7f, out);
    if (which == 1) rig.ops().clamp(1.5f, out);
    if (which == 2) rig.ops().gather(rows, from, out);
    if (which == 3) rig.ops().finish_logits(0.5f, 0, out);
    if (which == 4) rig.ops().finish_logits(0.25f, 3, out);
    return rig.read(out);
  };
  const char* names[] = {"add", "clamp", "gather", "finish_logits", "finish_logits with a cap"};
  for (int which = 0; which < 5; ++which)
    judge_rows(scene, verdict, names[which],
               [&](Rig& rig, int32_t first, int32_t count) { return run(rig, which, first, count); });
}

// A step of rows [first, first + count) of a sequence, from this position on.
void begin_at(Rig& rig, int32_t position, int32_t first, int32_t count) {
  const StepPiece piece = {0, position + first, count};
  const std::vector<int32_t> pages(128);
  rig.begin({&piece, 1}, pages, 128);
}

void check_rope(Scene& scene, Verdict& verdict) {
  Chance chance(205);
  for (const auto& shape :
       {std::tuple{64, 64, false}, {128, 128, false}, {32, 80, true}, {64, 64, true}, {20, 24, false}}) {
    const int dims = std::get<0>(shape), width = std::get<1>(shape);
    const bool neighbours = std::get<2>(shape);
    const int32_t heads = 3;
    std::vector<float> frequencies(static_cast<size_t>(dims / 2));
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / dims));
    const Numbers in(kRows, int64_t{heads} * width, chance);
    judge_rows(scene, verdict, fmt::format("{} of {} dimensions{}", dims, width, neighbours ? ", neighbours" : ""),
               [&](Rig& rig, int32_t first, int32_t count) {
                 const Rope rope = {rig.vector(frequencies), dims, 1.1f, neighbours};
                 begin_at(rig, 1000, first, count);
                 const Tensor inout = rig.bring(in.some(first, count));
                 rig.ops().rope(rope, heads, inout);
                 return rig.read(inout);
               });
  }
}

void check_position_scale(Scene& scene, Verdict& verdict) {
  Chance chance(206);
  const Numbers in(kRows, 192, chance);
  judge_rows(scene, verdict, "rows from position 500 on", [&](Rig& rig, int32_t first, int32_t count) {
    begin_at(rig, 500, first, count);
    const Tensor inout = rig.bring(in.some(first, count));
    rig.ops().scale_by_position({.factor = 0.1f, .every = 64, .offset = 1}, inout);
    return rig.read(inout);
  });
}

// Texts of several lengths, each as one row.
void check_pool(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_streams()) return verdict.unsupported("no pooling");
  Chance chance(207);
  const std::vector<int32_t> lengths = {1, 70, 2, 300, 33};
  const std::vector<int32_t> pages(lengths.size());
  for (const int64_t cols : {96, 515, 1024}) {
    for (const Pooling pooling :
         {Pooling::first, Pooling::last, Pooling::mean, Pooling::mean_root, Pooling::mean_weighted, Pooling::most}) {
      const Numbers in(300, cols, chance);
      auto run = [&](Rig& rig, std::span<const int32_t> texts) {
        std::vector<StepPiece> pieces;
        for (const int32_t rows : texts) pieces.push_back({static_cast<int32_t>(pieces.size()), 0, rows});
        rig.begin(pieces, pages, 1);
        const Tensor from = rig.bring(in.picked(positions_of(pieces))),
                     out = rig.blank(static_cast<int64_t>(texts.size()), cols);
        rig.ops().pool(pooling, rig.step(), from, out);
        return rig.read(out);
      };
      const std::string what = fmt::format("{} columns, pooling {}", cols, static_cast<int>(pooling));
      const Numbers all = run(scene.device, lengths);
      verdict.close(all, run(scene.reference, lengths), what);
      for (size_t i = 0; i < lengths.size(); ++i)
        verdict.same(run(scene.device, {&lengths[i], 1}), all.some(static_cast<int64_t>(i), 1),
                     fmt::format("{}: {} rows by themselves", what, lengths[i]));
    }
  }
}

}  // namespace

void add_row_checks(std::vector<OpsCheck>& checks) {
  checks.push_back({"norm", kAllowed, check_norm});
  checks.push_back({"add_norm", kAllowed, check_add_norm});
  checks.push_back({"activate and glu", kAllowed, check_activations});
  checks.push_back({"add, clamp, gather, finish_logits", kAllowed, check_plain});
  checks.push_back({"rope", kTurned, check_rope});
  checks.push_back({"scale_by_position", kAllowed, check_position_scale});
  checks.push_back({"pool", kAllowed, check_pool});
}

}  // namespace millrace
