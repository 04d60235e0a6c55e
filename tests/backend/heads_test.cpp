// Heads and streams: every override against the body that says what it means, and contract 1.
#include "backend/rig.h"
#include "backend/row_math.h"

namespace millrace::testing {
namespace {

Weight upload_heads(Machine& machine, DType type, int64_t heads, int64_t rows, int64_t cols, uint32_t seed) {
  Random random(seed);
  const std::vector<std::byte> bytes = random_matrix(type, heads * rows, cols, random);
  const auto each = static_cast<size_t>(bytes_of(type, rows * cols));
  const HostExperts experts = {
      .experts = heads, .type = type, .rows = rows, .cols = cols, .part = [&](int64_t head) -> Result<HostMatrix> {
        return HostMatrix{type, rows, cols, std::span(bytes).subspan(static_cast<size_t>(head) * each, each)};
      }};
  return machine.backend->upload_experts(experts, {}).value();
}

// A product for each head: equal to one product after another to the bit, whatever the rows and the threads, and what
// lies between the heads' numbers is not touched.
TEST(LinearHeads, EqualsItsBody) {
  for (DType type : {DType::f32, DType::bf16, DType::q8_0, DType::q4_0}) {
    for (int64_t heads : {3, 16}) {
      const int64_t rows = 48, cols = 64, in_apart = 80, out_apart = 56, count = 21;
      Random random(4);
      Rows in(count, heads * in_apart, random);
      Machine oracle = reference();
      Rows expected(count, heads * out_apart);
      oracle.ops->linear_heads(upload_heads(oracle, type, heads, rows, cols, 7), in.tensor(), expected.tensor());
      for (std::string_view isa : cpu_isas()) {
        for (int threads : {1, 4}) {
          Machine machine = cpu(isa, threads, Activations::fast);
          const Weight weight = upload_heads(machine, type, heads, rows, cols, 7);
          Rows whole(count, heads * out_apart), body(count, heads * out_apart), one(1, heads * out_apart);
          machine.ops->linear_heads(weight, in.tensor(), whole.tensor());
          machine.ops->Ops::linear_heads(weight, in.tensor(), body.tensor());
          machine.ops->linear_heads(weight, in.slice(count - 1, 1), one.tensor());
          for (int64_t r = 0; r < count; ++r) {
            for (int64_t i = 0; i < heads * out_apart; ++i) {
              if (i % out_apart >= rows) {
                ASSERT_TRUE(std::isnan(whole.row(r)[i]));
                continue;
              }
              ASSERT_EQ(whole.row(r)[i], body.row(r)[i]) << isa << " row " << r << " output " << i;
              ASSERT_NEAR(whole.row(r)[i], expected.row(r)[i], 0.05f) << isa << " row " << r << " output " << i;
            }
          }
          for (int64_t i = 0; i < heads * out_apart; i += out_apart) ASSERT_EQ(one.row(0)[i], whole.row(count - 1)[i]);
        }
      }
    }
  }
}

TEST(Streams, EqualTheirBodies) {
  Random random(5);
  const int64_t rows = 30, width = 24;
  const std::vector<float> factors = random.normals(width);
  for (std::string_view isa : cpu_isas()) {
    Machine machine = cpu(isa, 4);
    Rows in(rows, 3 * width, random), coefficients(rows, 6, random), like(rows, width, random, 3);
    auto same = [&](auto call, Rows a, const char* what) {
      Rows b = a;
      call(*machine.ops, a, false);
      call(*machine.ops, b, true);
      expect_same_bits(a, b, 0, 0, rows, what);
    };
    same(
        [&](Ops& ops, Rows& x, bool body) {
          body ? ops.Ops::scale(factors.data(), width, x.tensor()) : ops.scale(factors.data(), width, x.tensor());
        },
        Rows(rows, width, random), "scale");
    same(
        [&](Ops& ops, Rows& x, bool body) {
          body ? ops.Ops::match_rms(like.tensor(), x.tensor()) : ops.match_rms(like.tensor(), x.tensor());
        },
        Rows(rows, width, random), "match_rms");
    same([&](Ops& ops, Rows& x,
             bool body) { body ? ops.Ops::sparsify(0.5f, x.tensor()) : ops.sparsify(0.5f, x.tensor()); },
         Rows(rows, width, random), "sparsify");
    same(
        [&](Ops& ops, Rows& x, bool body) {
          body ? ops.Ops::mix(coefficients.tensor(), 1, 3, 2, in.tensor(), x.tensor())
               : ops.mix(coefficients.tensor(), 1, 3, 2, in.tensor(), x.tensor());
        },
        Rows(rows, 2 * width, random), "mix");
    same(
        [&](Ops& ops, Rows& x, bool body) {
          body ? ops.Ops::copy_heads(3, 8, in.tensor(), x.tensor()) : ops.copy_heads(3, 8, in.tensor(), x.tensor());
        },
        Rows(rows, 3 * 10, random), "copy_heads");
  }
}

// What the primitives mean, by hand.
TEST(Streams, MeanWhatTheySay) {
  float row[4] = {1, 2, 3, 4};
  sparsify_row(0, row, 4);  // less the mean of 2.5
  EXPECT_EQ(row[0], 0);
  EXPECT_EQ(row[2], 0.5f);
  EXPECT_EQ(row[3], 1.5f);
  float like[2] = {3, 4}, other[2] = {0.6f, 0.8f};
  match_row(like, 2, other, 2);
  EXPECT_NEAR(other[0], 3, 1e-6);
  EXPECT_NEAR(other[1], 4, 1e-6);
  const float factors[2] = {2, -1}, in[4] = {1, 10, 3, 30};
  float out[2] = {100, 200};
  mix_row(factors, 1, 2, 1, 2, in, out);  // 100 + 3 * 1 + 0 * 3
  EXPECT_EQ(out[0], 103);
  EXPECT_EQ(out[1], 230);
}

}  // namespace
}  // namespace millrace::testing
