// Products in every weight format: against the reference, in any company, and compositions against their bodies.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "eval/ops/scene.h"
#include "tensor/half.h"

namespace millrace {
namespace {

struct Shape {
  int64_t outputs, inputs;
};

// Inputs near so many that the format's groups allow.
int64_t inputs_near(DType type, int64_t inputs) {
  const int64_t group = format(type).group;
  return std::max(group, inputs / group * group);
}

// Kernels go different ways by rows: one, a few, tiles, many tiles.
constexpr int32_t kRows = 300;
constexpr std::array<int32_t, 13> kCounts = {1, 2, 3, 5, 8, 9, 16, 17, 40, 64, 65, 129, 200};
constexpr std::array<int32_t, 7> kJudged = {0, 1, 7, 77, 128, 255, kRows - 1};

std::string text(const Shape& shape) { return fmt::format("{} x {}", shape.outputs, shape.inputs); }

Numbers linear(Rig& rig, const Weight& weight, const Numbers& in) {
  rig.begin(static_cast<int32_t>(in.rows));
  const Tensor from = rig.bring(in), to = rig.blank(in.rows, weight.rows);
  rig.ops().linear(weight, from, to);
  return rig.read(to);
}

// What every row of `in` gives, alone and with any others, must be what it gives with all of them.
template <class F>
void any_company(Verdict& verdict, const Numbers& in, const Numbers& all, const std::string& what, F&& run) {
  for (const int32_t count : kCounts) {
    for (const int32_t first : {0, 77}) {
      if (count > 65 && first > 0) continue;
      verdict.same(run(in.some(first, count)), all.some(first, count),
                   fmt::format("{}: rows {} to {} of {} by themselves", what, first, first + count - 1, in.rows));
    }
  }
}

// Inputs as a device has them that multiplies FP8 as FP8, or INT8 as INT8: such codes, with a factor that brings a
// row's largest number, as bfloat16, to the largest code.
Numbers coded(DType type, const Numbers& in) {
  const float most = type == DType::int8_128 ? 127.0f : 448.0f;
  auto nearest = [&](float x) {
    return type == DType::int8_128 ? std::clamp(std::nearbyint(x), -most, most)
                                   : f8_e4m3_to_f32(f32_to_f8_e4m3(std::clamp(x, -most, most)));
  };
  Numbers out(in.rows, in.cols);
  for (int64_t r = 0; r < in.rows; ++r) {
    auto rounded = [&](int64_t i) { return bf16_to_f32(f32_to_bf16(in.row(r)[i])); };
    float largest = 0;
    for (int64_t i = 0; i < in.cols; ++i) largest = std::max(largest, std::abs(rounded(i)));
    if (largest == 0) continue;
    for (int64_t i = 0; i < in.cols; ++i) out.row(r)[i] = nearest(rounded(i) * (most / largest)) * (largest / most);
  }
  return out;
}

double distance(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < std::min(a.all.size(), b.all.size()); ++i) {
    const double apart = double{a.all[i]} - double{b.all[i]};
    sum += apart * apart;
  }
  return sum;
}

// What `run` should give of these inputs. With FP8 or INT8 weights: of the inputs as they are, or as `coded` has them,
// whichever the device does.
template <class F>
Numbers expected_of(DType type, const Numbers& in, const Numbers& found, F&& run) {
  Numbers plain = run(in);
  if (type != DType::fp8_128 && type != DType::int8_128) return plain;
  Numbers rounded = run(coded(type, in));
  return distance(found, rounded) < distance(found, plain) ? rounded : plain;
}

void check_linear(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 10);
  for (const Shape& wanted : {Shape{50, 96}, {256, 512}, {1008, 1536}, {320, 4096}}) {
    const Shape shape = {wanted.outputs, inputs_near(type, wanted.inputs)};
    const FileMatrix file(type, shape.outputs, shape.inputs, chance);
    const std::vector<float> bias = shape.inputs > 1000 ? chance.normals(shape.outputs) : std::vector<float>();
    const Numbers in(kRows, shape.inputs, chance);
    const Weight weight = scene.device.weight(file, bias);
    if (!scene.device.failure().empty()) return;
    const Numbers all = linear(scene.device, weight, in);
    const Weight right = scene.reference.weight(file, bias);
    verdict.close(all.picked(kJudged),
                  expected_of(type, in.picked(kJudged), all.picked(kJudged),
                              [&](const Numbers& some) { return linear(scene.reference, right, some); }),
                  text(shape));
    any_company(verdict, in, all, text(shape), [&](const Numbers& some) { return linear(scene.device, weight, some); });
  }
}

// Rows whose length no group or vector divides.
void check_odd(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(33);
  for (const Shape& shape : {Shape{37, 41}, {130, 111}, {16, 1027}}) {
    const FileMatrix file(type, shape.outputs, shape.inputs, chance);
    const Numbers in(kRows, shape.inputs, chance);
    const Weight weight = scene.device.weight(file);
    const Numbers all = linear(scene.device, weight, in);
    verdict.close(all.picked(kJudged), linear(scene.reference, scene.reference.weight(file), in.picked(kJudged)),
                  text(shape));
    any_company(verdict, in, all, text(shape), [&](const Numbers& some) { return linear(scene.device, weight, some); });
  }
}

void check_glu(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 50);
  for (const Shape& wanted : {Shape{48, 96}, {304, 1280}}) {
    const Shape shape = {wanted.outputs, inputs_near(type, wanted.inputs)};
    const FileMatrix gate(type, shape.outputs, shape.inputs, chance), up(type, shape.outputs, shape.inputs, chance);
    const Numbers in(kRows, shape.inputs, chance);
    auto run = [&](Rig& rig, const Weight& a, const Weight& b, const Numbers& some, bool body) {
      rig.begin(static_cast<int32_t>(some.rows));
      const Tensor from = rig.bring(some), to = rig.blank(some.rows, a.rows);
      if (body)
        rig.ops().Ops::linear_glu(a, b, Activation::silu, from, to);
      else
        rig.ops().linear_glu(a, b, Activation::silu, from, to);
      return rig.read(to);
    };
    const Weight a = scene.device.weight(gate), b = scene.device.weight(up);
    if (!scene.device.failure().empty()) return;
    const Numbers all = run(scene.device, a, b, in, false);
    const Weight right = scene.reference.weight(gate), right_up = scene.reference.weight(up);
    verdict.close(all.picked(kJudged),
                  expected_of(type, in.picked(kJudged), all.picked(kJudged),
                              [&](const Numbers& some) { return run(scene.reference, right, right_up, some, false); }),
                  text(shape));
    any_company(verdict, in, all, text(shape),
                [&](const Numbers& some) { return run(scene.device, a, b, some, false); });
    for (const int32_t count : {1, 8, 9, 70, kRows})
      verdict.same(all.some(0, count), run(scene.device, a, b, in.some(0, count), true),
                   fmt::format("{}: {} rows against the body", text(shape), count), true);
  }
}

struct Three {
  Numbers q, k, v;
};
void same(Verdict& verdict, const Three& found, const Three& expected, const std::string& what) {
  verdict.same(found.q, expected.q, what + ", queries");
  verdict.same(found.k, expected.k, what + ", keys");
  verdict.same(found.v, expected.v, what + ", values");
}

// Values in another format, as files have them.
void check_qkv(DType type, DType v_type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 90);
  const int64_t inputs = std::max(inputs_near(type, 512), inputs_near(v_type, 512)), outputs = 256, few = 64;
  const FileMatrix q(type, outputs, inputs, chance), k(type, few, inputs, chance), v(v_type, few, inputs, chance);
  const std::vector<float> bias = chance.normals(outputs);
  const Numbers in(kRows, inputs, chance);
  auto run = [&](Rig& rig, const Weight& a, const Weight& b, const Weight& c, const Numbers& some, bool body) {
    rig.begin(static_cast<int32_t>(some.rows));
    const Tensor from = rig.bring(some), first = rig.blank(some.rows, a.rows), second = rig.blank(some.rows, b.rows),
                 third = rig.blank(some.rows, c.rows);
    if (body)
      rig.ops().Ops::linear_qkv(a, b, c, from, first, second, third);
    else
      rig.ops().linear_qkv(a, b, c, from, first, second, third);
    return Three{rig.read(first), rig.read(second), rig.read(third)};
  };
  const Weight a = scene.device.weight(q, bias), b = scene.device.weight(k), c = scene.device.weight(v);
  if (!scene.device.failure().empty()) return;
  const Three all = run(scene.device, a, b, c, in, false);
  Rig& right = scene.reference;
  const Three expected = run(right, right.weight(q, bias), right.weight(k), right.weight(v), in.picked(kJudged), false);
  verdict.close(all.q.picked(kJudged), expected.q, "queries");
  verdict.close(all.k.picked(kJudged), expected.k, "keys");
  verdict.close(all.v.picked(kJudged), expected.v, "values");
  for (const int32_t count : {1, 2, 8, 9, 65, 200, kRows}) {
    const Three some = run(scene.device, a, b, c, in.some(0, count), false);
    same(verdict, some, {all.q.some(0, count), all.k.some(0, count), all.v.some(0, count)},
         fmt::format("{} rows by themselves", count));
    same(verdict, some, run(scene.device, a, b, c, in.some(0, count), true),
         fmt::format("{} rows against the body", count));
  }
}

// Weights whose inputs stand in another order: the bits of inputs that were moved before.
void check_order(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 170);
  const int64_t outputs = 304, inputs = inputs_near(type, 1280);
  const FileMatrix file(type, outputs, inputs, chance), other(type, outputs, inputs, chance);
  std::vector<int32_t> order(static_cast<size_t>(inputs));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(chance.below(static_cast<int32_t>(i)))]);
  const Numbers in(kRows, inputs, chance);
  Numbers moved(kRows, inputs);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < inputs; ++i) moved.row(r)[i] = in.row(r)[order[static_cast<size_t>(i)]];
  }
  auto ordered = [&](Rig& rig, Weight weight) {
    std::vector<float> numbers(order.size());
    std::memcpy(numbers.data(), order.data(), order.size() * sizeof(int32_t));
    weight.order = reinterpret_cast<const int32_t*>(rig.vector(numbers));
    return weight;
  };
  auto gated = [&](const Weight& gate, const Weight& up, const Numbers& some) {
    scene.device.begin(static_cast<int32_t>(some.rows));
    const Tensor from = scene.device.bring(some), to = scene.device.blank(some.rows, gate.rows);
    scene.device.ops().linear_glu(gate, up, Activation::silu, from, to);
    return scene.device.read(to);
  };
  const Weight weight = scene.device.weight(file), second = scene.device.weight(other);
  if (!scene.device.failure().empty()) return;
  const Weight one = ordered(scene.device, weight);
  Weight two = second, apart = ordered(scene.device, second);
  two.order = one.order;
  const Numbers all = linear(scene.device, one, in);
  verdict.close(all.picked(kJudged),
                linear(scene.reference, ordered(scene.reference, scene.reference.weight(file)), in.picked(kJudged)),
                "a product");
  verdict.same(all, linear(scene.device, weight, moved), "against inputs that were moved");
  any_company(verdict, in, all, "a product", [&](const Numbers& some) { return linear(scene.device, one, some); });
  const Numbers both = gated(weight, second, moved);
  verdict.same(gated(one, two, in), both, "gated, one order");
  verdict.close(gated(one, apart, in), both, "gated, two orders");
}

// Looked up as they stand in the file, or out of what products use.
void check_embed(DType type, WeightUse use, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 130);
  const int64_t vocab = 61, inputs = inputs_near(type, 192);
  const FileMatrix file(type, vocab, inputs, chance);
  const std::vector<int32_t> ids = {0, 58, 31, 31, 5, 17, 2};
  const Numbers start(static_cast<int64_t>(ids.size()), inputs, chance);
  auto run = [&](Rig& rig, bool add) {
    const Weight table = rig.weight(file, {}, use);
    rig.begin(static_cast<int32_t>(ids.size()));
    const int32_t* which = rig.integers(ids);
    const Tensor to = rig.bring(start);
    if (rig.failure().empty()) rig.ops().embed(table, which, 2, 1.5f, add, to);
    return rig.read(to);
  };
  for (const bool add : {false, true})
    verdict.close(run(scene.device, add), run(scene.reference, add), add ? "added" : "looked up");
}

}  // namespace

void add_product_checks(std::vector<OpsCheck>& checks, double allowed) {
  auto add = [&](std::string name, DType type, double error, auto check, bool f16_first = false) {
    checks.push_back({name + " " + std::string(format(type).name), error,
                      [=](Scene& scene, Verdict& verdict) { check(type, scene, verdict); }, f16_first});
  };
  constexpr double kExact = 1e-5;
  constexpr double kCodedInputs = 4e-2;  // FP8 and INT8 weights may be multiplied with inputs rounded likewise
  for (const DType type : weight_formats()) {
    add("linear", type, type == DType::f32 ? kExact : allowed, check_linear);
    add("linear_glu", type, 2 * allowed, check_glu);
    add("linear_qkv", type, type == DType::fp8_128 || type == DType::int8_128 ? kCodedInputs : allowed,
        [](DType of, Scene& s, Verdict& v) { check_qkv(of, of, s, v); });
    for (const WeightUse use : {WeightUse::table, WeightUse::table_and_linear})
      add(use == WeightUse::table ? "embed from a table" : "embed from a table that is multiplied too", type, allowed,
          [use](DType of, Scene& s, Verdict& v) { check_embed(of, use, s, v); });
  }
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) add("linear of odd lengths", type, allowed, check_odd);
  for (const DType type : {DType::f32, DType::q4_0, DType::q4_1, DType::q8_0})
    add("inputs in another order", type, 2 * allowed, check_order);
  add("linear_qkv with Q6_K values and", DType::q4_k, allowed,
      [](DType of, Scene& s, Verdict& v) { check_qkv(of, DType::q6_k, s, v); });
  add("linear among float16 activations,", DType::f16, allowed, check_linear, true);
  add("linear among float16 activations,", DType::q8_0, allowed, check_linear, true);
  add("linear_glu among float16 activations,", DType::f16, 2 * allowed, check_glu, true);
}

}  // namespace millrace
