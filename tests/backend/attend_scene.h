// Kinds of attention, and one sequence that is taken through a cache in any pieces.
#pragma once

#include "backend/rig.h"
#include "base/thorough.h"

namespace millrace::testing {

struct Case {
  std::string name;
  int32_t heads;
  CacheShape shape;
  int32_t window = 0;
  float softcap = 0;
  bool alibi = false, sinks = false;
  int32_t value_dim = 0, grid = 0;

  int32_t values() const { return value_dim > 0 ? value_dim : shape.v_dim; }
};

inline const KvForm kForms[] = {DType::f32,
                                DType::f16,
                                DType::bf16,
                                DType::i8,
                                DType::f8_e4m3,
                                DType::q4_0,
                                {DType::i8, DType::q4_0, true},
                                {DType::q4_0, DType::f16, false}};

// Whether a cache may have this shape in its form.
inline bool fits(const CacheShape& shape) {
  const int group_k = format(shape.form.k).group, group_v = format(shape.form.v).group;
  const bool latent = shape.v_dim == 0;
  return shape.k_dim % group_k == 0 && shape.v_dim % group_v == 0 && !(latent && group_k > 1);
}

// Kinds of attention in every form of cache that can have them; half of those, unless the run is thorough.
inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KvForm& type : kForms) {
    const std::string name = type.name();
    all.push_back({name + " gqa", 9, {3, 64, 64, 16, type}});
    all.push_back({name + " mqa", 8, {1, 128, 128, 32, type}});
    all.push_back({name + " mha", 4, {4, 80, 80, 16, type}});
    all.push_back({name + " odd", 6, {2, 19, 27, 5, type}});
    all.push_back({name + " window", 4, {2, 64, 64, 16, type}, 37});
    all.push_back({name + " window of more than a chunk", 4, {2, 32, 32, 16, type}, 150});
    all.push_back({name + " softcap", 4, {2, 64, 64, 16, type}, 0, 5});
    all.push_back({name + " alibi", 6, {3, 64, 64, 16, type}, 0, 0, true});
    all.push_back({name + " sinks", 8, {2, 64, 64, 16, type}, 100, 0, false, true});
    all.push_back({name + " grid", 4, {2, 64, 64, 16, type}, 0, 0, false, false, 0, 50});
    all.push_back({name + " latent", 16, {1, 80, 0, 16, type}, 0, 0, false, false, 64});
    all.push_back({name + " latent, few heads", 3, {1, 96, 0, 32, type}, 0, 0, false, false, 80});
    all.push_back({name + " odd latent", 5, {1, 43, 0, 5, type}, 0, 0, false, false, 21});
    all.push_back({name + " latent with sinks and a window", 6, {2, 64, 0, 16, type}, 70, 0, false, true, 32});
  }
  if (!test::thorough()) {
    // Every second one, in turns: each kind in half of the forms, and in one of the two of 16 bits.
    const size_t kinds = all.size() / std::size(kForms);
    std::vector<Case> some;
    for (size_t i = 0; i < all.size(); ++i)
      if ((i / kinds + i % kinds) % 2 == 0) some.push_back(all[i]);
    all = std::move(some);
  }
  std::erase_if(all, [](const Case& c) { return !fits(c.shape); });
  return all;
}

struct Scene {
  Scene(const Case& c, int32_t tokens, uint32_t seed)
      : kind(c),
        random(seed),
        q(tokens, int64_t{c.heads} * c.shape.k_dim, random),
        k(tokens, int64_t{c.shape.kv_heads} * c.shape.k_dim, random),
        v(tokens, int64_t{c.shape.kv_heads} * c.shape.v_dim, random),
        slopes(random.normals(c.heads, 0.1f)),
        sinks(random.normals(c.heads)) {
    attention.heads = c.heads;
    attention.scale = 1 / std::sqrt(static_cast<float>(c.shape.k_dim));
    attention.window = c.window;
    attention.grid = c.grid;
    attention.value_dim = c.value_dim;
    attention.softcap = c.softcap;
    attention.slopes = c.alibi ? slopes.data() : nullptr;
    attention.sinks = c.sinks ? sinks.data() : nullptr;
  }

  // Positions [0, tokens) of one sequence in the given chunks, each its own step; the last size repeats.
  template <class Machine>
  Rows run(Machine& machine, const std::vector<int32_t>& chunks, uint32_t page_seed) {
    int32_t tokens = static_cast<int32_t>(q.count), at = 0;
    std::vector<Piece> whole = {{0, tokens}};
    Batch pages(whole, kind.shape.page_tokens, page_seed);
    Cache cache(kind.shape, pages.page_count);
    Rows out(tokens, int64_t{kind.heads} * kind.values());
    for (size_t i = 0; at < tokens; ++i) {
      int32_t rows = std::min(tokens - at, chunks[std::min(i, chunks.size() - 1)]);
      std::vector<Piece> piece = {{at, rows}};
      Batch batch(piece, kind.shape.page_tokens, page_seed);
      batch.tables = pages.tables;
      Step step = batch.step();
      machine.ops->begin(step);
      machine.ops->kv_store(k.slice(at, rows), v.slice(at, rows), cache.view);
      machine.ops->attend(attention, q.slice(at, rows), cache.view, out.slice(at, rows));
      at += rows;
    }
    return out;
  }

  const Case& kind;
  Random random;
  Rows q, k, v;
  std::vector<float> slopes, sinks;
  Attention attention;
};

}  // namespace millrace::testing
