// What comes between products and attention: what kv_store leaves in the cache, and finish_qkv against its body, by
// itself and with the attention that follows, in any company.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr int32_t kCacheTokens = 150, kCacheSequences = 3;

struct CacheShape {
  int32_t kv_heads, k_dim, v_dim, page_tokens;
};

// Pages of a few sequences, whose bytes can be looked at.
class CheckedCache {
 public:
  CheckedCache(Rig& rig, const CacheShape& shape, const KvForm& form) : rig_(rig) {
    stride_ = (kCacheTokens + shape.page_tokens - 1) / shape.page_tokens;
    const int32_t pages = stride_ * kCacheSequences;  // fewer than the prime
    for (int32_t i = 0; i < pages; ++i) pages_.push_back((i * 61 + 3) % pages);
    const int64_t each = int64_t{shape.kv_heads} * shape.page_tokens,
                  k = (each * kv_bytes(form.k, shape.k_dim) + 63) & ~63,
                  page = (k + each * kv_bytes(form.v, shape.v_dim) + 63) & ~63;
    // What nobody writes stays.
    const std::vector<std::byte> nan(static_cast<size_t>(page) * pages_.size(), std::byte{0xff});
    size_ = static_cast<int64_t>(nan.size());
    std::byte* base = rig.memory(Purpose::kv, size_);
    if (base != nullptr) rig.backend().copy(base, nan.data(), size_);
    view_ = {base, page, 0, k, shape.page_tokens, shape.kv_heads, shape.k_dim, shape.v_dim, form, 0};
  }

  void begin(std::span<const StepPiece> pieces) { rig_.begin(pieces, pages_, stride_); }
  const KvView& view() const { return view_; }
  std::vector<std::byte> bytes() const {
    rig_.finish();
    std::vector<std::byte> all(static_cast<size_t>(size_));
    if (view_.base != nullptr) rig_.backend().copy(all.data(), view_.base, size_);
    return all;
  }
  // Of one sequence, in the order of its positions.
  std::vector<std::byte> bytes_of(int32_t sequence) const {
    const std::vector<std::byte> all = bytes();
    std::vector<std::byte> own;
    for (int32_t i = 0; i < stride_; ++i) {
      const auto page = all.begin() + pages_[static_cast<size_t>(sequence * stride_ + i)] * view_.page_stride;
      own.insert(own.end(), page, page + view_.page_stride);
    }
    return own;
  }

 private:
  Rig& rig_;
  std::vector<int32_t> pages_;
  int32_t stride_ = 0;
  int64_t size_ = 0;
  KvView view_;
};

bool shape_fits(const CacheShape& shape, const KvForm& form) {
  const int k_group = format(form.k).group, v_group = format(form.v).group;
  return shape.k_dim % k_group == 0 && shape.v_dim % v_group == 0 && (shape.v_dim > 0 || k_group == 1);
}

// How numbers lie in a page is the device's own affair, so its bytes are compared among themselves only. Against the
// reference go the values that rows read which see nothing but their own position.
void check_kv_store(const KvForm& form, Scene& scene, Verdict& verdict) {
  Chance chance(901);
  for (const CacheShape& shape : {CacheShape{4, 64, 64, 16},
                                  {2, 128, 128, 8},
                                  {3, 96, 96, 64},
                                  {2, 256, 256, 32},
                                  {1, 576, 0, 16},
                                  {2, 24, 40, 8}}) {
    if (!shape_fits(shape, form)) continue;
    const Numbers k(kCacheTokens, int64_t{shape.kv_heads} * shape.k_dim, chance),
        v(kCacheTokens, int64_t{shape.kv_heads} * shape.v_dim, chance);
    CheckedCache device(scene.device, shape, form), right(scene.reference, shape, form);
    if (!scene.device.failure().empty()) return;
    const int32_t width = shape.v_dim > 0 ? shape.v_dim : 512;  // of a latent its first numbers
    auto store = [&](Rig& rig, CheckedCache& cache, const std::vector<StepPiece>& pieces) {
      cache.begin(pieces);
      const std::vector<int32_t> rows = positions_of(pieces);
      const Tensor keys = rig.bring(k.picked(rows)), values = rig.bring(v.picked(rows)), q = rig.bring(k.picked(rows)),
                   out = rig.blank(q.rows, int64_t{shape.kv_heads} * width);
      rig.ops().kv_store(keys, values, cache.view());
      rig.ops().attend({.heads = shape.kv_heads, .scale = 0.1f, .value_dim = width, .window = 1}, q, cache.view(), out);
      return rig.read(out);
    };
    const std::string what = fmt::format("{} heads of {} and {}", shape.kv_heads, shape.k_dim, shape.v_dim);
    const std::vector<StepPiece> all = {{0, 0, kCacheTokens}};
    const Numbers whole = store(scene.device, device, all);
    verdict.close(whole, store(scene.reference, right, all), what);
    for (const std::vector<StepPiece>& pieces :
         {std::vector<StepPiece>{{1, 0, 1}, {2, 0, 70}}, {{1, 1, 99}, {2, 70, 1}}, {{2, 71, 79}, {1, 100, 50}}})
      verdict.same(store(scene.device, device, pieces), whole.picked(positions_of(pieces)), what + " in pieces");
    for (const int32_t sequence : {1, 2})
      verdict.expect(device.bytes_of(sequence) == device.bytes_of(0),
                     fmt::format("{}: sequence {} was stored in pieces, and has other bytes", what, sequence));
  }
}

// ---- finish_qkv

enum class HeadNorms : uint8_t { none, each, row };

struct FinishKind {
  std::string name;
  int32_t heads, kv_heads, dim, turned;  // numbers of a head that turn
  bool neighbours = false;
  HeadNorms norms = HeadNorms::none;
  bool norm_after = false;
  float clip = 0;
  bool scaled = false;
};

const std::vector<FinishKind>& finish_kinds() {
  static const std::vector<FinishKind> all = {
      {"turned", 8, 2, 64, 64},
      {"turned neighbours, 128 wide", 4, 1, 128, 128, true},
      {"some of 80 turned", 4, 4, 80, 32},
      {"20 of 96 turned", 3, 3, 96, 20},
      {"heads normed", 8, 2, 64, 64, false, HeadNorms::each},
      {"rows normed", 8, 2, 64, 64, false, HeadNorms::row},
      {"heads normed when turned", 4, 2, 128, 128, false, HeadNorms::each, true},
      {"clipped", 8, 2, 64, 64, false, HeadNorms::none, false, 1.5f},
      {"scaled by position", 8, 2, 64, 64, false, HeadNorms::each, false, 0, true},
      {"not turned", 8, 2, 64, 0},
      {"256 wide", 4, 2, 256, 256},
  };
  return all;
}

struct FinishInputs {
  FinishInputs(const FinishKind& kind, Chance& chance)
      : q(kCacheTokens, int64_t{kind.heads} * kind.dim, chance),
        k(kCacheTokens, int64_t{kind.kv_heads} * kind.dim, chance),
        v(kCacheTokens, int64_t{kind.kv_heads} * kind.dim, chance),
        q_norm(chance.normals(kind.norms == HeadNorms::row ? q.cols : kind.dim)),
        k_norm(chance.normals(kind.norms == HeadNorms::row ? k.cols : kind.dim)) {
    for (int32_t i = 0; i < kind.turned / 2; ++i)
      frequencies.push_back(std::pow(10000.0f, -2 * static_cast<float>(i) / static_cast<float>(kind.turned)));
  }
  Numbers q, k, v;
  std::vector<float> q_norm, k_norm, frequencies;
};

enum class FinishWay : uint8_t { body, alone, joined };  // joined: attention is called before anybody looks

struct Finished {
  Numbers q, mixed;  // q: unless joined
};

// One way on one rig, with a cache of its own.
class FinishRun {
 public:
  FinishRun(Rig& rig, const FinishKind& kind, const FinishInputs& inputs, const KvForm& form, FinishWay way)
      : rig_(rig), kind_(kind), inputs_(inputs), way_(way), cache_(rig, {kind.kv_heads, kind.dim, kind.dim, 16}, form) {
    if (kind.norms != HeadNorms::none) {
      q_norm_ = {NormKind::rms, 1e-5f, rig.vector(inputs.q_norm), nullptr, static_cast<int64_t>(inputs.q_norm.size())};
      k_norm_ = {NormKind::rms, 1e-5f, rig.vector(inputs.k_norm), nullptr, static_cast<int64_t>(inputs.k_norm.size())};
      finish_.q_norm = &q_norm_;
      finish_.k_norm = &k_norm_;
    }
    finish_.norm_per_head = kind.norms != HeadNorms::row;
    finish_.norm_after_rope = kind.norm_after;
    if (kind.turned > 0) finish_.rope = {rig.vector(inputs.frequencies), kind.turned, 1, kind.neighbours};
    finish_.clip = kind.clip;
    if (kind.scaled) finish_.q_scale = {.factor = 0.1f, .every = 64, .offset = 1};
  }
  FinishRun(const FinishRun&) = delete;

  Finished step(std::span<const StepPiece> pieces) {
    const std::vector<int32_t> rows = positions_of(pieces);
    cache_.begin(pieces);
    const Tensor q = rig_.bring(inputs_.q.picked(rows)), k = rig_.bring(inputs_.k.picked(rows)),
                 v = rig_.bring(inputs_.v.picked(rows)), mixed = rig_.blank(q.rows, q.cols);
    Ops& ops = rig_.ops();
    Finished found;
    if (way_ == FinishWay::body)
      ops.Ops::finish_qkv(finish_, kind_.heads, q, k, v, cache_.view());
    else
      ops.finish_qkv(finish_, kind_.heads, q, k, v, cache_.view());
    if (way_ != FinishWay::joined) found.q = rig_.read(q);
    ops.attend({.heads = kind_.heads, .scale = 0.1f}, q, cache_.view(), mixed);
    found.mixed = rig_.read(mixed);
    return found;
  }
  const CheckedCache& cache() const { return cache_; }

 private:
  Rig& rig_;
  const FinishKind& kind_;
  const FinishInputs& inputs_;
  FinishWay way_;
  CheckedCache cache_;
  Norm q_norm_, k_norm_;
  QkvFinish finish_;
};

void check_finish(const FinishKind& kind, const KvForm& form, Scene& scene, Verdict& verdict) {
  Chance chance(902);
  const FinishInputs inputs(kind, chance);
  FinishRun alone(scene.device, kind, inputs, form, FinishWay::alone),
      joined(scene.device, kind, inputs, form, FinishWay::joined),
      body(scene.device, kind, inputs, form, FinishWay::body),
      right(scene.reference, kind, inputs, form, FinishWay::alone);
  if (!scene.device.failure().empty()) return;
  const StepPiece all = {0, 0, kCacheTokens};
  const Finished whole = alone.step({&all, 1}), expected = right.step({&all, 1});
  verdict.close(whole.q, expected.q, 2e-4, "queries");
  verdict.close(whole.mixed, expected.mixed, "attention behind it");
  auto same = [&](const std::vector<StepPiece>& pieces, const std::string& what) {
    const Finished one = alone.step(pieces), other = joined.step(pieces), meant = body.step(pieces);
    verdict.same(one.q, meant.q, what + ": queries against the body");
    verdict.same(one.mixed, meant.mixed, what + ": attention against the body");
    verdict.same(other.mixed, meant.mixed, what + ", with attention: against the body");
    verdict.same(one.q, whole.q.picked(positions_of(pieces)), what + ": queries");
    verdict.same(one.mixed, whole.mixed.picked(positions_of(pieces)), what + ": attention");
    const std::vector<std::byte> bytes = body.cache().bytes();
    verdict.expect(alone.cache().bytes() == bytes, what + ": another cache than the body's");
    verdict.expect(joined.cache().bytes() == bytes, what + ", with attention: another cache than the body's");
  };
  same({all}, "a prompt");
  same({{1, 0, 1}}, "a row");
  same({{1, 1, 2}, {2, 0, 60}}, "two sequences");
  same({{1, 3, 1}, {2, 60, 1}}, "a row of each");
  same({{1, 4, 1}, {2, 61, 30}}, "a row beside many");
  same({{1, 5, 1}, {1, 6, 1}, {1, 7, 1}, {2, 91, 1}}, "rows of one text as sequences of their own");
}

}  // namespace

void add_finish_checks(std::vector<OpsCheck>& checks, double allowed, bool apart) {
  constexpr double kStoredCodes = 5e-2;  // sums that differ by a bit may be another code
  const KvForm forms[] = {
      DType::f32, DType::f16, DType::bf16, DType::i8, DType::f8_e4m3, DType::q4_0, {DType::q4_0, DType::i8, false}};
  for (const KvForm& form : forms) {
    if (apart && form == DType::f32) continue;  // such devices keep 16 bits or fewer
    checks.push_back({"kv_store to " + form.name(), form.plain() ? allowed : kStoredCodes,
                      [form](Scene& s, Verdict& v) { check_kv_store(form, s, v); }});
    for (const FinishKind& kind : finish_kinds()) {
      if (!shape_fits({kind.kv_heads, kind.dim, kind.dim, 16}, form)) continue;
      checks.push_back({fmt::format("finish_qkv to {}, {}", form.name(), kind.name),
                        form.k == DType::q4_0 ? kStoredCodes : allowed,
                        [&kind, form](Scene& s, Verdict& v) { check_finish(kind, form, s, v); }});
    }
  }
}

}  // namespace millrace
