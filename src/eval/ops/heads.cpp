// Operations of heads and streams: parts of heads moved, a product for each head, rows scaled, mixed, matched and
// thinned out. What lies beside the numbers an operation writes is judged with them: it stays.
#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr double kAllowed = 2e-5;
constexpr int32_t kRows = kJudgedRows;

void check_copy_heads(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_latents()) return verdict.unsupported("no latent attention");
  Chance chance(601);
  struct Heads {
    int32_t heads;
    int64_t width, in_apart, out_apart;
  };
  for (const Heads& h : {Heads{6, 64, 192, 576}, {16, 128, 128, 192}, {1, 64, 576, 64}, {3, 10, 24, 12}}) {
    const Numbers in(kRows, h.heads * h.in_apart, chance), to(kRows, h.heads * h.out_apart, chance);
    judge_rows(scene, verdict, fmt::format("{} heads of {}", h.heads, h.width),
               [&](Rig& rig, int32_t first, int32_t count) {
                 rig.begin(count);
                 const Tensor from = rig.bring(in.some(first, count)), out = rig.bring(to.some(first, count));
                 rig.ops().copy_heads(h.heads, h.width, from, out);
                 return rig.read(out);
               });
  }
}

void check_linear_heads(DType type, Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_latents()) return verdict.unsupported("no latent attention");
  Chance chance(static_cast<uint64_t>(type) + 610);
  const int64_t cols = std::max<int64_t>(format(type).group, 128);
  struct Heads {
    int32_t heads;
    int64_t rows, in_apart, out_apart;
  };
  // As latents have them: keys into a latent beside its rotary part, and values out of it.
  for (const Heads& h : {Heads{5, 96, cols + 64, 160}, {16, 64, cols, 64}, {3, 48, cols + 8, 56}}) {
    std::vector<FileMatrix> files;
    for (int32_t head = 0; head < h.heads; ++head) files.emplace_back(type, h.rows, cols, chance);
    const Weight device = scene.device.experts(files), reference = scene.reference.experts(files);
    if (!scene.device.failure().empty()) return;
    const Numbers in(kRows, h.heads * h.in_apart, chance), to(kRows, h.heads * h.out_apart, chance);
    auto run = [&](Rig& rig, int32_t first, int32_t count, bool body) {
      const Weight& weight = &rig == &scene.device ? device : reference;
      rig.begin(count);
      const Tensor from = rig.bring(in.some(first, count)), out = rig.bring(to.some(first, count));
      if (body)
        rig.ops().Ops::linear_heads(weight, from, out);
      else
        rig.ops().linear_heads(weight, from, out);
      return rig.read(out);
    };
    const std::string what = fmt::format("{} heads of {} x {}", h.heads, h.rows, cols);
    judge_rows(scene, verdict, what,
               [&](Rig& rig, int32_t first, int32_t count) { return run(rig, first, count, false); });
    // Products for themselves may add in another order than products of experts.
    verdict.close(run(scene.device, 0, 20, false), run(scene.device, 0, 20, true), what + " against the body");
  }
}

void check_scale(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_streams()) return verdict.unsupported("no streams");
  Chance chance(602);
  for (const int64_t cols : {96, 515, 2048}) {
    for (const bool one : {false, true}) {
      const Numbers in(kRows, cols, chance);
      const std::vector<float> factors = chance.normals(one ? 1 : cols);
      judge_rows(scene, verdict, fmt::format("{} by {}", cols, one ? "one factor" : "a factor each"),
                 [&](Rig& rig, int32_t first, int32_t count) {
                   const float* by = rig.vector(factors);
                   rig.begin(count);
                   const Tensor inout = rig.bring(in.some(first, count));
                   rig.ops().scale(by, static_cast<int64_t>(factors.size()), inout);
                   return rig.read(inout);
                 });
    }
  }
}

void check_mix(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_streams()) return verdict.unsupported("no streams");
  Chance chance(603);
  struct Parts {
    int32_t ins, outs;
    int64_t width;
    float more;
  };
  for (const Parts& p : {Parts{4, 4, 96, 0}, {1, 4, 515, 1}, {4, 1, 2048, 0.5f}, {3, 2, 24, 1}}) {
    const Numbers factors(kRows, int64_t{p.ins} * p.outs, chance), in(kRows, p.ins * p.width, chance),
        to(kRows, p.outs * p.width, chance);
    judge_rows(scene, verdict, fmt::format("{} parts of {} into {}", p.ins, p.width, p.outs),
               [&](Rig& rig, int32_t first, int32_t count) {
                 rig.begin(count);
                 const Tensor by = rig.bring(factors.some(first, count)), from = rig.bring(in.some(first, count)),
                              out = rig.bring(to.some(first, count));
                 rig.ops().mix(by, p.more, p.ins, p.outs, from, out);
                 return rig.read(out);
               });
  }
}

void check_match_rms(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_streams()) return verdict.unsupported("no streams");
  Chance chance(604);
  for (const int64_t cols : {96, 515, 2048}) {
    const Numbers like(kRows, cols, chance, 3), in(kRows, cols, chance, 0.2f);
    judge_rows(scene, verdict, fmt::format("rows of {}", cols), [&](Rig& rig, int32_t first, int32_t count) {
      rig.begin(count);
      const Tensor other = rig.bring(like.some(first, count)), inout = rig.bring(in.some(first, count));
      rig.ops().match_rms(other, inout);
      return rig.read(inout);
    });
  }
}

// A number close to the cut may come out as nothing or as next to nothing: both are near.
void check_sparsify(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_streams()) return verdict.unsupported("no streams");
  Chance chance(605);
  for (const float deviations : {0.0f, 0.5f, 1.6449f}) {
    const Numbers in(kRows, 1024, chance, 2);
    judge_rows(scene, verdict, fmt::format("{} deviations", deviations), [&](Rig& rig, int32_t first, int32_t count) {
      rig.begin(count);
      const Tensor inout = rig.bring(in.some(first, count));
      rig.ops().sparsify(deviations, inout);
      return rig.read(inout);
    });
  }
}

}  // namespace

void add_head_checks(std::vector<OpsCheck>& checks, double allowed) {
  checks.push_back({"copy_heads", kAllowed, check_copy_heads});
  for (const DType type : weight_formats())
    checks.push_back({"linear_heads " + std::string(format(type).name), allowed,
                      [type](Scene& s, Verdict& v) { check_linear_heads(type, s, v); }});
  checks.push_back({"scale", kAllowed, check_scale});
  checks.push_back({"mix", kAllowed, check_mix});
  checks.push_back({"match_rms", kAllowed, check_match_rms});
  checks.push_back({"sparsify", kAllowed, check_sparsify});
}

}  // namespace millrace
