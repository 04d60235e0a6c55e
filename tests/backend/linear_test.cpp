// Products of every readable format and instruction set: against the reference, and bit for bit against themselves in
// other company.
#include <array>
#include <numeric>

#include "backend/rig.h"

namespace millrace::testing {
namespace {

std::vector<DType> readable_formats() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i) {
    DType type = static_cast<DType>(i);
    bool number = type == DType::f32 || type == DType::f16 || type == DType::bf16 || type == DType::f8_e4m3 ||
                  type == DType::f8_e5m2;
    if (format(type).readable() && (format(type).group > 1 || number)) types.push_back(type);
  }
  return types;
}

constexpr std::array kModes = {Activations::float32, Activations::fast};

// Rounding of activations to int8 groups or bfloat16 moves an output by well under this share of the row's largest.
float tolerance(Activations mode) { return mode == Activations::float32 ? 2e-6f : 2e-2f; }

std::string name(DType type, std::string_view isa, Activations mode) {
  return std::string(format(type).name) + " " + std::string(isa) + (mode == Activations::fast ? " fast" : " float32");
}

TEST(Linear, MatchesReferenceInEveryFormat) {
  Random random(1);
  for (DType type : readable_formats()) {
    int64_t group = format(type).group;
    for (auto [rows, groups, outputs] :
         {std::array<int64_t, 3>{1, 1, 1}, {3, 2, 7}, {17, 3, 33}, {70, 1, 130}, {2, 9, 64}}) {
      int64_t inputs = group > 1 ? group * groups : 37 * groups;
      auto bytes = random_matrix(type, outputs, inputs, random);
      std::vector<float> bias = rows % 2 == 1 ? random.normals(outputs) : std::vector<float>();
      Rows in(rows, inputs, random), expected(rows, outputs);
      Machine oracle = reference();
      oracle.ops->linear(oracle.upload(type, outputs, inputs, bytes, bias), in.tensor(), expected.tensor());
      for (std::string_view isa : cpu_isas()) {
        for (Activations mode : kModes) {
          Machine machine = cpu(isa, 2, mode);
          Rows out(rows, outputs);
          machine.ops->linear(machine.upload(type, outputs, inputs, bytes, bias), in.tensor(), out.tensor());
          // A single output may cancel to nearly nothing, so errors are judged against the row, or its input if it is
          // short.
          float slack = outputs < 8 ? 30.0f : 3.0f;
          expect_close(out, expected, tolerance(mode) * slack, name(type, isa, mode));
        }
      }
    }
  }
}

TEST(Linear, RowsDoNotDependOnTheirCompany) {
  Random random(2);
  for (DType type : readable_formats()) {
    int64_t inputs = format(type).group > 1 ? format(type).group * 3 : 111, outputs = 75, rows = 37;
    auto bytes = random_matrix(type, outputs, inputs, random);
    std::vector<float> bias = random.normals(outputs);
    Rows in(rows, inputs, random);
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : kModes) {
        Machine one = cpu(isa, 1, mode);
        Weight weight = one.upload(type, outputs, inputs, bytes, bias);
        Rows together(rows, outputs);
        one.ops->linear(weight, in.tensor(), together.tensor());
        for (int64_t size : {1, 2, 3, 5, 8, 13}) {
          Rows out(size, outputs);
          for (int64_t first : {int64_t{0}, int64_t{7}, rows - size}) {
            one.ops->linear(weight, in.slice(first, size), out.tensor());
            expect_same_bits(out, together, 0, first, size, name(type, isa, mode));
          }
        }
        for (int threads : {2, 4}) {
          Machine many = cpu(isa, threads, mode);
          Rows out(rows, outputs);
          many.ops->linear(many.upload(type, outputs, inputs, bytes, bias), in.tensor(), out.tensor());
          expect_same_bits(out, together, 0, 0, rows, name(type, isa, mode) + " threads");
        }
      }
    }
  }
}

// Kernels have ways of their own for one row, for a few and for many, each with loops over groups, or pieces of single
// numbers, that end unevenly.
TEST(Linear, FewRowsOfAnyLengthEqualMany) {
  Random random(21);
  const int64_t rows = 26, outputs = 19;
  for (DType type : readable_formats()) {
    const int64_t group = format(type).group;
    const int64_t few = group > 1 ? 7 : 257;
    for (int64_t groups : {few, few + 2, group > 1 ? 16384 / group / 7 : 1111}) {
      const int64_t inputs = groups * group;
      auto bytes = random_matrix(type, outputs, inputs, random);
      Rows in(rows, inputs, random);
      for (std::string_view isa : cpu_isas()) {
        Machine machine = cpu(isa, 1, Activations::fast);
        Weight weight = machine.upload(type, outputs, inputs, bytes, {});
        Rows together(rows, outputs);
        machine.ops->linear(weight, in.tensor(), together.tensor());
        for (int64_t size : {1, 2, 3, 4, 6, 7, 12}) {
          Rows out(size, outputs);
          machine.ops->linear(weight, in.slice(5, size), out.tensor());
          expect_same_bits(out, together, 0, 5, size,
                           name(type, isa, Activations::fast) + " groups " + std::to_string(groups));
        }
      }
    }
  }
}

// What is not finite may be taken as a large number, in every way alike. (Without matrix products each way widens by
// itself; others have one way.)
TEST(Linear, Float16ThatIsNotFiniteIsTheSameInAnyCompany) {
  Random random(23);
  const int64_t rows = 20, inputs = 300, outputs = 35;
  auto bytes = random_matrix(DType::f16, outputs, inputs, random);
  for (int64_t n = 0; n < outputs; ++n) {
    const uint16_t other = n % 2 == 0 ? 0x7c00 : 0xfc00;
    std::memcpy(bytes.data() + (n * inputs + n * 7) * 2, &other, 2);
  }
  Rows in(rows, inputs, random);
  for (std::string_view isa : cpu_isas()) {
    if (isa != "scalar" && isa != "neon") continue;
    Machine machine = cpu(isa, 1, Activations::fast);
    Weight weight = machine.upload(DType::f16, outputs, inputs, bytes);
    Rows together(rows, outputs);
    machine.ops->linear(weight, in.tensor(), together.tensor());
    for (int64_t size : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
      Rows out(size, outputs);
      machine.ops->linear(weight, in.slice(3, size), out.tensor());
      expect_same_bits(out, together, 0, 3, size, name(DType::f16, isa, Activations::fast));
    }
  }
}

// Weights of float16 that are bfloat16 numbers may be kept as such, which must not show: the same weights beside one
// that is not, and that meets an input of zero, give the same bits. Some are below float16's normal numbers.
TEST(Linear, Float16MadeOfBfloat16KeepsItsBits) {
  Random random(22);
  const int64_t rows = 20, inputs = 111, outputs = 75, zero = 50;
  auto numbers = random_matrix(DType::bf16, outputs, inputs, random, 0.001f);
  std::vector<float> values(static_cast<size_t>(outputs * inputs));
  format(DType::bf16).to_float(numbers.data(), values.data(), outputs * inputs);
  std::vector<std::byte> made(numbers.size());
  format(DType::f16).from_float(values.data(), made.data(), outputs * inputs);
  std::vector<std::byte> beside = made;
  const uint16_t other = 0x3c01;
  for (int64_t n = 0; n < outputs; ++n) std::memcpy(beside.data() + (n * inputs + zero) * 2, &other, 2);
  Rows in(rows, inputs, random);
  for (int64_t r = 0; r < rows; ++r) in.row(r)[zero] = 0;
  const std::vector<int32_t> ids = {0, 74, 31};
  Machine oracle = reference();
  Rows looked_up(3, inputs, random), start = looked_up;
  oracle.ops->embed(oracle.upload(DType::f16, outputs, inputs, made), ids.data(), 0, 1, true, looked_up.tensor());
  for (std::string_view isa : cpu_isas()) {
    for (Activations mode : kModes) {
      Machine machine = cpu(isa, 1, mode);
      Weight weight = machine.upload(DType::f16, outputs, inputs, made, {}, WeightUse::table_and_linear);
      Rows found = start;
      machine.ops->embed(weight, ids.data(), 0, 1, true, found.tensor());
      expect_close(found, looked_up, 1e-6f, name(DType::f16, isa, mode));
      Weight whole = machine.upload(DType::f16, outputs, inputs, beside);
      for (int64_t size : {1, 3, 4, 7, 8, 20}) {
        Rows out(size, outputs), expected(size, outputs);
        machine.ops->linear(weight, in.slice(0, size), out.tensor());
        machine.ops->linear(whole, in.slice(0, size), expected.tensor());
        expect_same_bits(out, expected, 0, 0, size, name(DType::f16, isa, mode));
      }
    }
  }
}

TEST(Linear, CompositionsEqualTheirBodies) {
  Random random(3);
  for (DType type :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    int64_t inputs = 256, width = 90, rows = 5;
    auto a = random_matrix(type, width, inputs, random), b = random_matrix(type, width, inputs, random);
    auto c = random_matrix(DType::q6_k, 40, inputs, random);
    Rows in(rows, inputs, random);
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : kModes) {
        Machine machine = cpu(isa, 2, mode);
        Ops& ops = *machine.ops;
        Weight first = machine.upload(type, width, inputs, a), second = machine.upload(type, width, inputs, b);
        Weight third = machine.upload(DType::q6_k, 40, inputs, c, random.normals(40));
        Rows fused(rows, width), body(rows, width), q(rows, width), k(rows, width), v(rows, 40), q2(rows, width),
            k2(rows, width), v2(rows, 40);
        ops.linear_glu(first, second, Activation::silu, in.tensor(), fused.tensor());
        ops.Ops::linear_glu(first, second, Activation::silu, in.tensor(), body.tensor());
        expect_same_bits(fused, body, 0, 0, rows, "linear_glu " + name(type, isa, mode));
        ops.linear_qkv(first, second, third, in.tensor(), q.tensor(), k.tensor(), v.tensor());
        ops.Ops::linear_qkv(first, second, third, in.tensor(), q2.tensor(), k2.tensor(), v2.tensor());
        expect_same_bits(q, q2, 0, 0, rows, "q");
        expect_same_bits(k, k2, 0, 0, rows, "k");
        expect_same_bits(v, v2, 0, 0, rows, "v");
      }
    }
  }
}

// Weights whose inputs stand in another order give the bits of those that have them in order, where columns are moved
// and nothing else: a row of one number per column says so, for any format. Joined products too.
TEST(Linear, InputsInAnotherOrder) {
  Random random(91);
  for (DType type : {DType::f32, DType::q8_0, DType::q4_0, DType::q4_1, DType::q8_zero, DType::q4_k}) {
    const int64_t inputs = 256, outputs = 90, rows = 5;
    const auto a = random_matrix(type, outputs, inputs, random), b = random_matrix(type, outputs, inputs, random);
    std::vector<int32_t> order(static_cast<size_t>(inputs)), other(static_cast<size_t>(inputs));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    std::reverse_copy(order.begin(), order.end(), other.begin());
    Rows in(rows, inputs, random), moved(rows, inputs), moved_too(rows, inputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < inputs; ++i) {
        moved.tensor().row(r)[i] = in.tensor().row(r)[order[static_cast<size_t>(i)]];
        moved_too.tensor().row(r)[i] = in.tensor().row(r)[other[static_cast<size_t>(i)]];
      }
    }
    auto check = [&](Machine machine, const std::string& what) {
      Ops& ops = *machine.ops;
      const Weight first = machine.upload(type, outputs, inputs, a), second = machine.upload(type, outputs, inputs, b);
      Weight one = first, two = second, apart = second;
      one.order = two.order = order.data();
      apart.order = other.data();
      Rows plain(rows, outputs), ordered(rows, outputs), q(rows, outputs), k(rows, outputs), v(rows, outputs);
      ops.linear(first, moved.tensor(), plain.tensor());
      ops.linear(one, in.tensor(), ordered.tensor());
      expect_same_bits(ordered, plain, 0, 0, rows, "linear " + what);
      ops.linear_qkv(one, two, apart, in.tensor(), q.tensor(), k.tensor(), v.tensor());
      expect_same_bits(q, plain, 0, 0, rows, "q " + what);
      ops.linear(second, moved.tensor(), plain.tensor());
      expect_same_bits(k, plain, 0, 0, rows, "k " + what);
      ops.linear(second, moved_too.tensor(), plain.tensor());
      expect_same_bits(v, plain, 0, 0, rows, "v " + what);
      ops.linear_glu(first, second, Activation::silu, moved.tensor(), plain.tensor());
      ops.linear_glu(one, two, Activation::silu, in.tensor(), ordered.tensor());
      expect_same_bits(ordered, plain, 0, 0, rows, "linear_glu " + what);
      ops.linear_glu(one, apart, Activation::silu, in.tensor(), ordered.tensor());
      ops.Ops::linear_glu(one, apart, Activation::silu, in.tensor(), plain.tensor());
      expect_same_bits(ordered, plain, 0, 0, rows, "linear_glu of two orders " + what);
    };
    for (std::string_view isa : cpu_isas())
      for (Activations mode : kModes) check(cpu(isa, 2, mode), name(type, isa, mode));
  }
}

// The reference reads what the order says, number by number.
TEST(Linear, TheReferenceKnowsTheOrder) {
  Random random(92);
  const int64_t inputs = 64, outputs = 7, rows = 3;
  const auto bytes = random_matrix(DType::f32, outputs, inputs, random);
  std::vector<int32_t> order(static_cast<size_t>(inputs));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(6));
  std::vector<std::byte> moved(bytes.size());
  for (int64_t i = 0; i < outputs * inputs; ++i)
    std::memcpy(&moved[static_cast<size_t>(4 * (i / inputs * inputs + order[static_cast<size_t>(i % inputs)]))],
                &bytes[static_cast<size_t>(4 * i)], 4);
  Rows in(rows, inputs, random), expected(rows, outputs), found(rows, outputs);
  Machine machine = reference();
  Weight ordered = machine.upload(DType::f32, outputs, inputs, bytes);
  ordered.order = order.data();
  machine.ops->linear(ordered, in.tensor(), found.tensor());
  machine.ops->linear(machine.upload(DType::f32, outputs, inputs, moved), in.tensor(), expected.tensor());
  expect_same_bits(found, expected, 0, 0, rows, "reference");
}

TEST(Linear, TablesThatAreMultipliedToo) {
  Random random(4);
  for (DType type : readable_formats()) {
    int64_t inputs = format(type).group > 1 ? format(type).group * 2 : 50, vocab = 61;
    auto bytes = random_matrix(type, vocab, inputs, random);
    std::vector<int32_t> ids = {0, 60, 31, 31, 5};
    Machine oracle = reference();
    Rows expected(5, inputs, random), start = expected;
    oracle.ops->embed(oracle.upload(type, vocab, inputs, bytes), ids.data(), 0, 1.5f, true, expected.tensor());
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : kModes) {
        for (WeightUse use : {WeightUse::table, WeightUse::table_and_linear}) {
          Machine machine = cpu(isa, 2, mode);
          Weight table = machine.upload(type, vocab, inputs, bytes, {}, use);
          Rows out = start;
          machine.ops->embed(table, ids.data(), 0, 1.5f, true, out.tensor());
          expect_close(out, expected, 1e-6f, name(type, isa, mode));
        }
      }
    }
  }
}

TEST(Weights, ChargeWhatWasPlanned) {
  Random random(5);
  for (std::string_view isa : cpu_isas()) {
    for (Activations mode : kModes) {
      Machine machine = cpu(isa, 2, mode);
      int64_t planned = 0;
      EXPECT_EQ(machine.backend->used(Purpose::workspace), kWorkspace + machine.backend->fixed_workspace());
      for (DType type : readable_formats()) {
        for (WeightUse use : {WeightUse::linear, WeightUse::table, WeightUse::table_and_linear}) {
          int64_t rows = random.integer(1, 90), cols = int64_t{format(type).group} * random.integer(1, 5);
          auto bytes = random_matrix(type, rows, cols, random);
          int64_t expected = machine.backend->weight_bytes(type, rows, cols, use);
          Weight weight = machine.upload(type, rows, cols, bytes, {}, use);
          planned += expected;
          EXPECT_EQ(weight.bytes, expected);
          EXPECT_EQ(machine.backend->used(Purpose::weights), planned) << format(type).name;
        }
      }
    }
  }
}

TEST(Weights, RefuseWhatCannotBe) {
  for (bool on_cpu : {false, true}) {
    Machine machine = on_cpu ? cpu("scalar") : reference();
    std::vector<std::byte> bytes(1000);
    auto refuse = [&](HostMatrix matrix, std::span<const float> bias, Code code) {
      auto result = machine.backend->upload(matrix, WeightUse::linear, bias);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, code) << result.error().message;
    };
    std::span<const std::byte> view(bytes);
    refuse({DType::q8_0, 2, 33, view.first(70)}, {}, Code::invalid);
    refuse({DType::q8_0, 2, 32, view.first(67)}, {}, Code::corrupt);
    refuse({DType::f32, INT64_MAX / 2, INT64_MAX / 2, view}, {}, Code::corrupt);
    refuse({DType::q8_1, 1, 32, view.first(36)}, {}, Code::unsupported);
    std::vector<float> bias(3);
    refuse({DType::f32, 2, 2, view.first(16)}, bias, Code::invalid);
    machine.backend->set_limit(machine.backend->used(Purpose::workspace) + 100);
    EXPECT_TRUE(machine.backend->upload({DType::f32, 5, 5, view.first(100)}, WeightUse::linear, {}).ok());
    refuse({DType::f32, 1, 1, view.first(4)}, {}, Code::no_memory);
  }
}

TEST(Cpu, NamesItsInstructionSets) {
  std::vector<std::string_view> isas = cpu_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), "scalar");
  CpuOptions options;
  options.isa = "abacus";
  auto refused = make_cpu_backend(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("scalar"), std::string::npos);
  for (std::string_view isa : isas) {
    options.isa = isa;
    options.threads = 1;
    auto backend = make_cpu_backend(options);
    ASSERT_TRUE(backend.ok());
    EXPECT_NE((*backend)->description().find(isa), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace::testing
