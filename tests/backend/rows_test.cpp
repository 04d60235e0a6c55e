// The row-wise ops against the reference, over odd shapes, and bit for bit independent of the other rows and of
// threads.
#include <array>
#include <functional>

#include "backend/rig.h"

namespace millrace::testing {
namespace {

constexpr std::array kActivations = {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                     Activation::relu_squared};

// An op that reads `in` (and may read `other`) and writes `out`, all of the same shape.
using RowOp = std::function<void(Ops&, Tensor in, Tensor other, Tensor out)>;

void check(const std::string& what, const RowOp& op, int64_t cols, float deviation, float tolerance) {
  constexpr int64_t kRows = 23;
  Random random(7);
  Rows in(kRows, cols, random, deviation), other(kRows, cols, random), start(kRows, cols, random);
  Rows expected = start;
  std::vector<Piece> pieces = {{100, kRows}};
  Batch batch(pieces, 16, 1);
  Step step = batch.step();
  Machine oracle = reference();
  oracle.ops->begin(step);
  op(*oracle.ops, in.tensor(), other.tensor(), expected.tensor());
  for (std::string_view isa : cpu_isas()) {
    std::string name = what + " " + std::string(isa) + " of " + std::to_string(cols);
    Rows together = start;
    Machine one = cpu(isa, 1);
    one.ops->begin(step);
    op(*one.ops, in.tensor(), other.tensor(), together.tensor());
    expect_close(together, expected, tolerance, name, 0.2f);  // gelu of -4 cancels to nearly nothing
    for (int threads : {2, 4}) {
      Rows out = start;
      Machine many = cpu(isa, threads);
      many.ops->begin(step);
      op(*many.ops, in.tensor(), other.tensor(), out.tensor());
      expect_same_bits(out, together, 0, 0, kRows, name + " threads");
    }
    for (int64_t first : {0, 9, 21}) {
      Rows out = start;
      std::vector<Piece> alone_piece = {{static_cast<int32_t>(100 + first), 2}};
      Batch alone(alone_piece, 16, 1);
      Step alone_step = alone.step();
      one.ops->begin(alone_step);
      op(*one.ops, in.slice(first, 2), other.slice(first, 2), out.slice(first, 2));
      expect_same_bits(out, together, first, first, 2, name + " alone");
    }
  }
}

TEST(Rows, Norms) {
  Random random(11);
  for (int64_t cols : {1, 5, 64, 384, 1031}) {
    // As float32 on the host, which is where both backends keep theirs.
    std::vector<float> weight = random.normals(cols), bias = random.normals(cols);
    for (NormKind kind : {NormKind::rms, NormKind::layer}) {
      if (kind == NormKind::layer && cols == 1) continue;
      for (bool weighted : {true, false}) {
        Norm norm{kind, 1e-5f, weighted ? weight.data() : nullptr,
                  weighted && kind == NormKind::layer ? bias.data() : nullptr, cols};
        check(
            "norm", [&](Ops& ops, Tensor in, Tensor, Tensor out) { ops.norm(norm, 1, in, out); }, cols, 3, 2e-6f);
        check(
            "add_norm",
            [&](Ops& ops, Tensor in, Tensor other, Tensor out) { ops.add_norm(in, 0.5f, out, norm, other); }, cols, 3,
            1e-6f);
      }
    }
  }
}

TEST(Rows, NormsOfHeads) {
  Random random(12);
  std::vector<float> weight = random.normals(6 * 20);
  for (int64_t width : {20, 120}) {  // one weight for all heads, or one each
    Norm norm{NormKind::rms, 1e-6f, weight.data(), nullptr, width};
    check(
        "norm of heads", [&](Ops& ops, Tensor in, Tensor, Tensor out) { ops.norm(norm, 6, in, out); }, 120, 1, 2e-6f);
  }
}

TEST(Rows, Activations) {
  for (Activation activation : kActivations) {
    for (int64_t cols : {1, 7, 64, 1001}) {
      for (float deviation : {0.1f, 1.0f, 30.0f}) {
        check(
            "activate", [&](Ops& ops, Tensor in, Tensor, Tensor out) { ops.activate(activation, in, out); }, cols,
            deviation, 2e-6f);
        check(
            "glu", [&](Ops& ops, Tensor in, Tensor other, Tensor out) { ops.glu(activation, in, other, out); }, cols,
            deviation, 2e-6f);
      }
    }
  }
}

TEST(Rows, Elementwise) {
  for (int64_t cols : {1, 7, 64, 1001}) {
    check(
        "add", [](Ops& ops, Tensor in, Tensor, Tensor out) { ops.add(in, 0.7f, out); }, cols, 1, 1e-6f);
    check(
        "clamp", [](Ops& ops, Tensor in, Tensor, Tensor out) { ops.clamp(0.8f, out), ops.add(in, 0, out); }, cols, 1,
        0);
    for (std::array finish : {std::array{0.3f, 0.0f}, {1.0f, 30.0f}, {2.0f, 1.5f}, {1.0f, 0.0f}}) {
      float scale = finish[0], softcap = finish[1];
      check(
          "finish_logits", [&](Ops& ops, Tensor, Tensor, Tensor out) { ops.finish_logits(scale, softcap, out); }, cols,
          1, 2e-6f);
    }
  }
}

TEST(Rows, Rope) {
  std::vector<float> frequencies;
  for (int i = 0; i < 32; ++i) frequencies.push_back(std::pow(10000.0f, static_cast<float>(-i) / 32));
  for (int32_t dims : {2, 22, 64}) {
    for (bool neighbours : {false, true}) {
      Rope rope{frequencies.data(), dims, 1.2f, neighbours};
      check(
          "rope", [&](Ops& ops, Tensor, Tensor, Tensor out) { ops.rope(rope, 5, out); }, 5 * 64, 1, 1e-6f);
    }
  }
}

// Far positions: angles are exact enough that a whole context later nothing has drifted.
TEST(Rows, RopeFarAway) {
  float frequency = 1.0f;
  Rope rope{&frequency, 2, 1, false};
  std::vector<Piece> pieces = {{1000003, 1}};
  Batch batch(pieces, 1 << 20, 1);
  Step step = batch.step();
  for (std::string_view isa : cpu_isas()) {
    Machine machine = cpu(isa, 1);
    Rows row(1, 2);
    row.row(0)[0] = 1;
    row.row(0)[1] = 0;
    machine.ops->begin(step);
    machine.ops->rope(rope, 1, row.tensor());
    EXPECT_NEAR(row.row(0)[0], std::cos(1000003.0), 1e-6);
    EXPECT_NEAR(row.row(0)[1], std::sin(1000003.0), 1e-6);
  }
}

TEST(Rows, Gather) {
  Random random(13);
  Rows in(9, 33, random);
  std::vector<int32_t> rows = {0, 4, 8};
  for (bool on_cpu : {false, true}) {
    Machine machine = on_cpu ? cpu("") : reference();
    Rows out(3, 33);
    machine.ops->gather(rows.data(), in.tensor(), out.tensor());
    for (int64_t i = 0; i < 3; ++i) expect_same_bits(out, in, i, rows[static_cast<size_t>(i)], 1, "gather");
  }
}

}  // namespace
}  // namespace millrace::testing
