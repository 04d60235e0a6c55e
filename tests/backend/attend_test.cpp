// The cache and attention: against the reference for every kind of attention, and bit for bit independent of company,
// chunks, threads and pages.
#include "backend/attend_scene.h"

namespace millrace::testing {
namespace {

TEST(Attend, MatchesReference) {
  for (const Case& c : cases()) {
    Scene scene(c, 170, 3);
    Machine oracle = reference();
    Rows expected = scene.run(oracle, {170}, 1);
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : {Activations::float32, Activations::fast}) {
        Machine machine = cpu(isa, 2, mode);
        expect_close(scene.run(machine, {170}, 1), expected, mode == Activations::fast ? 2e-2f : 5e-6f,
                     c.name + " " + std::string(isa));
      }
    }
  }
}

TEST(Attend, ChunksThreadsAndPagesDoNotShow) {
  for (const Case& c : cases()) {
    Scene scene(c, 290, 4);
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : {Activations::float32, Activations::fast}) {
        Machine one = cpu(isa, 1, mode), two = cpu(isa, 2, mode), four = cpu(isa, 4, mode);
        Rows whole = scene.run(one, {290}, 1);
        auto same = [&](const Rows& rows, const char* what) {
          expect_same_bits(rows, whole, 0, 0, 290, c.name + " " + std::string(isa) + " " + what);
        };
        same(scene.run(two, {2, 108, 1, 1, 1, 1, 1, 1, 150, 1}, 2), "token by token, two threads, other pages");
        same(scene.run(four, {7, 1, 130, 2, 150}, 5), "four threads, uneven chunks");
      }
    }
  }
}

// What a cache of few bits keeps is multiplied as it is: fast products of it round far less than the cache did.
TEST(Attend, CodesAreMultipliedAsTheyAre) {
  for (const Case& c : cases()) {
    if (c.shape.form.plain()) continue;
    Scene scene(c, 170, 13);
    Machine oracle = reference();
    Rows expected = scene.run(oracle, {170}, 1);
    for (std::string_view isa : cpu_isas()) {
      Machine machine = cpu(isa, 1, Activations::fast);
      expect_close(scene.run(machine, {170}, 1), expected, 5e-4f, c.name + " " + std::string(isa));
    }
  }
}

// A head that is no number shows in the rows that see it, and in no other of the same step.
TEST(Attend, WhatIsNoNumberIsSeenByThoseWhoSeeIt) {
  constexpr int32_t kTokens = 60, kOdd = 37;
  for (DType type : {DType::i8, DType::f8_e4m3, DType::q4_0}) {
    for (bool key : {true, false}) {
      Case c{"odd", 4, {1, 64, 64, 16, type}};
      Scene sound(c, kTokens, 14), odd(c, kTokens, 14);
      (key ? odd.k : odd.v).row(kOdd)[5] = NAN;
      for (std::string_view isa : cpu_isas()) {
        Machine machine = cpu(isa, 1, Activations::fast);
        const Rows expected = sound.run(machine, {kTokens}, 1), found = odd.run(machine, {kTokens}, 1);
        expect_same_bits(found, expected, 0, 0, kOdd, std::string(isa) + " before it");
        for (int32_t row = kOdd; row < kTokens; ++row) EXPECT_TRUE(std::isnan(found.row(row)[5])) << isa << row;
      }
    }
  }
}

// The page's size is no part of the result either, though it may decide how a page is laid out.
TEST(Attend, PageSizeDoesNotShow) {
  for (const KvForm& type : kForms) {
    for (int32_t window : {0, 45}) {
      Case small{"pages of 8", 6, {2, 64, 64, 8, type}, window},
          large{"pages of 100", 6, {2, 64, 64, 100, type}, window};
      Scene a(small, 200, 5), b(large, 200, 5);
      for (std::string_view isa : cpu_isas()) {
        for (Activations mode : {Activations::float32, Activations::fast}) {
          Machine machine = cpu(isa, 2, mode);
          expect_same_bits(a.run(machine, {200}, 1), b.run(machine, {3, 64, 1, 60}, 2), 0, 0, 200, std::string(isa));
        }
      }
    }
  }
}

// As wide as any: the latents of the largest models, whose queries are too many for one tile.
TEST(Attend, ManyHeadsOfOneLatent) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::i8, DType::f8_e4m3}) {
    for (int32_t heads : {128, 71}) {
      if (heads == 128 && type != DType::bf16 && !test::thorough()) continue;
      Case c{"128 heads", heads, {1, 576, 0, 16, type}, 0, 0, false, false, 512};
      // More than one run of keys for the largest; the other has tiles that end within a token, early and late.
      const int32_t tokens = heads == 128 ? 135 : 45, most = tokens - 7;
      Scene scene(c, tokens, 12);
      Machine oracle = reference();
      Rows expected = scene.run(oracle, {tokens}, 1);
      for (std::string_view isa : cpu_isas()) {
        Machine one = cpu(isa, 1, Activations::fast), four = cpu(isa, 4, Activations::fast);
        Rows whole = scene.run(one, {tokens}, 1);
        expect_close(whole, expected, 2e-2f, std::string(isa));
        expect_same_bits(scene.run(four, {most, 1, 6}, 2), whole, 0, 0, tokens, std::string(isa));
      }
    }
  }
}

// One row after many: several runs of chunks, and chunks seen whole or in part, as decoding takes them.
TEST(Attend, DepthDoesNotShow) {
  constexpr int32_t kTokens = 660;
  for (const Case& c : {Case{"three queries", 3, {1, 64, 64, 16, DType::bf16}},
                        {"four", 8, {2, 64, 128, 32, DType::bf16}},
                        {"wide", 6, {2, 128, 64, 64, DType::bf16}},
                        {"window", 3, {1, 64, 64, 16, DType::bf16}, 300},
                        {"sinks", 3, {1, 64, 64, 128, DType::bf16}, 0, 0, false, true}}) {
    Scene scene(c, kTokens, 9);
    // The best row only: the others have no kernel for this, and are slow.
    Machine one = cpu("", 1, Activations::fast), two = cpu("", 2, Activations::fast);
    Rows whole = scene.run(two, {kTokens}, 1);
    for (Machine* machine : {&one, &two}) {
      std::vector<int32_t> chunks = {127, 1, 1, 382, 1, 1, 1, 125, 1};
      expect_same_bits(scene.run(*machine, chunks, 2), whole, 0, 0, kTokens, c.name);
    }
  }
}

// Several sequences in one step, against each of them alone.
TEST(Attend, SequencesDoNotShow) {
  Case c{"batch", 6, {2, 64, 64, 16, DType::bf16}, 90};
  Random random(6);
  std::vector<Piece> past = {{0, 200}, {0, 3}, {0, 129}, {0, 64}}, now = {{200, 1}, {3, 5}, {129, 1}, {64, 40}};
  auto run = [&](Machine& machine, const std::vector<size_t>& chosen) {
    std::vector<Piece> before, after, whole;
    for (size_t s : chosen) {
      before.push_back(past[s]);
      after.push_back(now[s]);
      whole.push_back({0, now[s].begin + now[s].rows});
    }
    Batch pages(whole, 16, 8), fill(before, 16, 8), batch(after, 16, 8);
    fill.tables = batch.tables = pages.tables;
    Cache cache(c.shape, pages.page_count);
    Attention attention;
    attention.heads = c.heads;
    attention.scale = 0.125f;
    attention.window = c.window;
    Rows out(0, 0);
    for (Batch* part : {&fill, &batch}) {
      Step step = part->step();
      Rows q(step.rows, 6 * 64), k(step.rows, 128), v(step.rows, 128);
      for (int32_t r = 0; r < step.rows; ++r) {  // values named by sequence and position
        size_t s = chosen[static_cast<size_t>(step.sequence[r])];
        Random row(static_cast<uint32_t>(1000 * s) + static_cast<uint32_t>(step.positions[r]));
        for (Rows* rows : {&q, &k, &v}) {
          for (int64_t i = 0; i < rows->width; ++i) rows->row(r)[i] = row.normal();
        }
      }
      out = Rows(step.rows, 6 * 64);
      machine.ops->begin(step);
      machine.ops->kv_store(k.tensor(), v.tensor(), cache.view);
      machine.ops->attend(attention, q.tensor(), cache.view, out.tensor());
    }
    return out;
  };
  for (std::string_view isa : cpu_isas()) {
    for (int threads : {1, 2, 4}) {
      Machine machine = cpu(isa, threads, Activations::fast);
      Rows together = run(machine, {0, 1, 2, 3});
      int64_t at = 0;
      for (size_t s = 0; s < now.size(); ++s) {
        expect_same_bits(run(machine, {s}), together, 0, at, now[s].rows,
                         std::string(isa) + " sequence " + std::to_string(s));
        at += now[s].rows;
      }
    }
  }
}

// A row that sees beyond its own position (a window computed whole) sees exactly what `visible` says.
TEST(Attend, VisibleMayReachAhead) {
  Case c{"ahead", 2, {1, 32, 32, 16, DType::f32}};
  Scene scene(c, 20, 9);
  auto run = [&](Machine& machine) {
    std::vector<Piece> whole = {{0, 20}};
    Batch batch(whole, 16, 1);
    for (int32_t& visible : batch.visible) visible = 20;
    Cache cache(c.shape, batch.page_count);
    Rows out(20, 64);
    Step step = batch.step();
    machine.ops->begin(step);
    machine.ops->kv_store(scene.k.tensor(), scene.v.tensor(), cache.view);
    machine.ops->attend(scene.attention, scene.q.tensor(), cache.view, out.tensor());
    return out;
  };
  Machine oracle = reference();
  Rows expected = run(oracle);
  for (std::string_view isa : cpu_isas()) {
    Machine machine = cpu(isa);
    expect_close(run(machine), expected, 5e-6f, std::string(isa));
  }
}

TEST(FinishQkv, EqualsItsBody) {
  Case c{"finish", 6, {2, 32, 32, 16, DType::f16}};
  Random random(10);
  std::vector<float> weight = random.normals(6 * 32), frequencies = random.normals(16);
  for (int variant = 0; variant < 8; ++variant) {
    bool per_head = (variant & 1) != 0;
    Norm q_norm{NormKind::rms, 1e-6f, weight.data(), nullptr, per_head ? 32 : 192};
    Norm k_norm{NormKind::rms, 1e-6f, weight.data(), nullptr, per_head ? 32 : 64};
    QkvFinish finish;
    finish.q_norm = &q_norm;
    finish.k_norm = &k_norm;
    finish.norm_per_head = per_head;
    finish.norm_after_rope = (variant & 2) != 0;
    finish.rope = {frequencies.data(), 32, 1, false};
    finish.clip = (variant & 4) != 0 ? 0.9f : 0.0f;
    std::vector<Piece> pieces = {{0, 33}};
    for (std::string_view isa : cpu_isas()) {
      Machine machine = cpu(isa);
      Batch batch(pieces, 16, 2);
      Step step = batch.step();
      Scene fused(c, 33, 11), body(c, 33, 11), judged(c, 33, 11);
      Cache fused_cache(c.shape, batch.page_count), body_cache(c.shape, batch.page_count),
          judged_cache(c.shape, batch.page_count);
      machine.ops->begin(step);
      machine.ops->finish_qkv(finish, 6, fused.q.tensor(), fused.k.tensor(), fused.v.tensor(), fused_cache.view);
      machine.ops->Ops::finish_qkv(finish, 6, body.q.tensor(), body.k.tensor(), body.v.tensor(), body_cache.view);
      expect_same_bits(fused.q, body.q, 0, 0, 33, "q");
      EXPECT_EQ(fused_cache.bytes, body_cache.bytes);
      Machine oracle = reference();
      oracle.ops->begin(step);
      oracle.ops->finish_qkv(finish, 6, judged.q.tensor(), judged.k.tensor(), judged.v.tensor(), judged_cache.view);
      expect_close(fused.q, judged.q, 2e-6f, "q against the reference");
    }
  }
}

}  // namespace
}  // namespace millrace::testing
