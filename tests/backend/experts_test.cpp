// Experts: the router against formulas written down here, products of every format and instruction set against the
// reference, and bit for bit against themselves in other company.
#include <algorithm>
#include <numeric>

#include "backend/rig.h"

namespace millrace::testing {
namespace {

// A routing with arrays of its own.
struct Routed {
  Routed(const Router& router, int64_t rows)
      : expert(static_cast<size_t>(rows * router.chosen)),
        place(expert.size()),
        row(expert.size()),
        first(static_cast<size_t>(router.experts) + 1),
        weight(expert.size()) {
    routing = {.rows = rows,
               .chosen = router.chosen,
               .experts = router.experts,
               .expert = expert.data(),
               .weight = weight.data(),
               .place = place.data(),
               .row = row.data(),
               .first = first.data()};
  }

  std::vector<int32_t> expert, place, row, first;
  std::vector<float> weight;
  Routing routing;
};

std::vector<double> softmax(std::vector<double> values) {
  const double most = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - most);
  for (double& value : values) value /= sum;
  return values;
}

// The expected experts and weights of one row: by sorting, in double.
std::vector<std::pair<int32_t, double>> expected(const Router& router, const float* logits) {
  const auto count = static_cast<size_t>(router.experts);
  std::vector<double> scores(logits, logits + count);
  if (router.score == RouterScore::softmax) scores = softmax(scores);
  if (router.score == RouterScore::sigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  std::vector<double> choice = scores;
  for (size_t e = 0; e < count; ++e) choice[e] += router.choice_bias != nullptr ? router.choice_bias[e] : 0;
  const size_t size = count / static_cast<size_t>(router.groups);
  std::vector<std::pair<double, size_t>> groups;
  for (size_t g = 0; g < static_cast<size_t>(router.groups); ++g) {
    std::vector<double> of(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                           choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(of.rbegin(), of.rend());
    groups.emplace_back(-(router.group_score == GroupScore::most || size == 1 ? of[0] : of[0] + of[1]), g);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t g = static_cast<size_t>(router.chosen_groups); g < groups.size(); ++g)
    std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(groups[g].second * size), size, -1e300);
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return choice[static_cast<size_t>(a)] > choice[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(router.chosen));
  std::sort(order.begin(), order.end());
  std::vector<double> weights;
  for (int32_t e : order) weights.push_back(scores[static_cast<size_t>(e)]);
  if (router.score == RouterScore::softmax_chosen) weights = softmax(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::pair<int32_t, double>> out;
  for (size_t i = 0; i < order.size(); ++i)
    out.emplace_back(order[i], weights[i] / (router.normalise ? sum + router.epsilon : 1) * router.scale);
  return out;
}

TEST(Route, ChoosesAndWeighs) {
  Random random(1);
  const std::vector<float> bias = random.normals(16, 0.3f);
  const Router routers[] = {
      {.experts = 16, .chosen = 3},
      {.experts = 16, .chosen = 2, .normalise = true, .scale = 2.5f},
      {.experts = 16, .chosen = 4, .score = RouterScore::softmax_chosen},
      {.experts = 16, .chosen = 4, .score = RouterScore::sigmoid, .choice_bias = bias.data(), .normalise = true},
      {.experts = 16,
       .chosen = 4,
       .score = RouterScore::sigmoid,
       .choice_bias = bias.data(),
       .groups = 4,
       .chosen_groups = 2,
       .group_score = GroupScore::best_two,
       .normalise = true,
       .epsilon = 1e-20f},
      {.experts = 16, .chosen = 3, .groups = 8, .chosen_groups = 3},
  };
  for (const Router& router : routers) {
    Rows logits(40, router.experts, random);
    for (bool fast : {false, true}) {
      Machine machine = fast ? cpu(cpu_isas().back()) : reference();
      Routed routed(router, 40);
      machine.ops->route(router, logits.tensor(), routed.routing);
      std::vector<int32_t> seen(static_cast<size_t>(router.experts));
      for (int64_t r = 0; r < 40; ++r) {
        const auto want = expected(router, logits.row(r));
        for (int32_t i = 0; i < router.chosen; ++i) {
          const auto at = static_cast<size_t>(r * router.chosen + i);
          ASSERT_EQ(routed.expert[at], want[static_cast<size_t>(i)].first) << "row " << r;
          EXPECT_NEAR(routed.weight[at], want[static_cast<size_t>(i)].second, 1e-6);
          const int32_t e = routed.expert[at];
          EXPECT_EQ(routed.place[at], routed.first[static_cast<size_t>(e)] + seen[static_cast<size_t>(e)]++);
          EXPECT_EQ(routed.row[static_cast<size_t>(routed.place[at])], r);
        }
      }
      EXPECT_EQ(routed.first.back(), 40 * router.chosen);
    }
  }
}

TEST(Route, EqualScoresGoToTheLowerExpert) {
  const Router router = {.experts = 8, .chosen = 3, .normalise = true};
  Rows logits(2, 8);
  for (int e = 0; e < 8; ++e) logits.row(0)[e] = 1, logits.row(1)[e] = e == 6 ? 2.0f : -1.0f;
  Machine machine = reference();
  Routed routed(router, 2);
  machine.ops->route(router, logits.tensor(), routed.routing);
  EXPECT_EQ(routed.expert, (std::vector<int32_t>{0, 1, 2, 0, 1, 6}));
}

TEST(Route, NumbersThatAreNoneStillGiveDifferentExperts) {
  for (RouterScore score : {RouterScore::softmax, RouterScore::sparse_mixer, RouterScore::sigmoid}) {
    const Router router = {.experts = 4, .chosen = 3, .score = score, .jitter = 0.01f};
    Rows logits(1, 4);
    std::fill_n(logits.row(0), 4, NAN);
    Machine machine = reference();
    Routed routed(router, 1);
    machine.ops->route(router, logits.tensor(), routed.routing);
    EXPECT_EQ(routed.expert, (std::vector<int32_t>{0, 1, 2}));
  }
}

constexpr int32_t kExperts = 5, kChosen = 2;

// Matrices of experts in one format, uploaded.
struct Experts {
  Experts(DType format, int64_t outputs, int64_t inputs, Random& random, bool biased)
      : type(format), rows(outputs), cols(inputs) {
    for (int32_t e = 0; e < kExperts; ++e) parts.push_back(random_matrix(type, rows, cols, random));
    if (biased) bias = random.normals(rows * kExperts);
  }
  Weight upload(Machine& machine) const {
    const HostExperts all = {.experts = kExperts, .type = type, .rows = rows, .cols = cols, .part = [&](int64_t e) {
                               return Result<HostMatrix>(HostMatrix{type, rows, cols, parts[static_cast<size_t>(e)]});
                             }};
    const int64_t before = machine.backend->used(Purpose::weights);
    const Weight weight = machine.backend->upload_experts(all, bias).value();
    const int64_t each = machine.backend->weight_bytes(type, rows, cols, WeightUse::experts);
    EXPECT_EQ(machine.backend->used(Purpose::weights) - before,
              each * kExperts + static_cast<int64_t>(bias.size() * sizeof(float)));
    return weight;
  }

  DType type;
  int64_t rows, cols;
  std::vector<std::vector<std::byte>> parts;
  std::vector<float> bias;
};

std::vector<DType> formats() {
  return {DType::f32,  DType::f16,  DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,   DType::q5_0, DType::q5_1,
          DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::mxfp4};
}

TEST(LinearExperts, MatchesReferenceInEveryFormat) {
  Random random(2);
  for (DType type : formats()) {
    const int64_t cols = 256, outputs = 43;
    const Experts weights(type, outputs, cols, random, true);
    for (int64_t rows : {1, 3, 40}) {
      const Router router = {.experts = kExperts, .chosen = kChosen};
      Rows logits(rows, kExperts, random), in(rows, cols, random);
      Machine oracle = reference();
      Routed routed(router, rows);
      oracle.ops->route(router, logits.tensor(), routed.routing);
      Rows want(rows * kChosen, outputs);
      oracle.ops->linear_experts(weights.upload(oracle), routed.routing, ExpertInput::rows, in.tensor(), want.tensor());
      for (std::string_view isa : cpu_isas()) {
        for (Activations mode : {Activations::float32, Activations::fast}) {
          Machine machine = cpu(isa, 2, mode);
          Rows out(rows * kChosen, outputs);
          machine.ops->linear_experts(weights.upload(machine), routed.routing, ExpertInput::rows, in.tensor(),
                                      out.tensor());
          expect_close(out, want, mode == Activations::float32 ? 6e-6f : 6e-2f,
                       std::string(format(type).name) + " " + std::string(isa));
        }
      }
    }
  }
}

// A whole mixture: gate and up, down, the sum.
struct Mixture {
  Experts gate, up, down;

  Mixture(DType type, Random& random, bool biased)
      : gate(type, 256, 256, random, biased),
        up(type, 256, 256, random, biased),
        down(type, 256, 256, random, biased) {}

  void run(Machine& machine, bool plain, const GluLimit& limit, Rows& logits, Rows& in, int64_t first, int64_t rows,
           Rows& out) const {
    const Router router = {.experts = kExperts, .chosen = kChosen, .normalise = true};
    const Weight g = gate.upload(machine), u = up.upload(machine), d = down.upload(machine);
    Ops& ops = *machine.ops;
    ops.begin({});
    const Routing routing = ops.scratch_routing(router, rows);
    ops.route(router, logits.slice(first, rows), routing);
    Tensor inner = ops.scratch(routing.pairs(), 256), given = ops.scratch(routing.pairs(), 256);
    if (plain) {
      ops.Ops::linear_experts_glu(g, u, Activation::silu, limit, routing, ExpertInput::rows, in.slice(first, rows),
                                  inner);
    } else {
      ops.linear_experts_glu(g, u, Activation::silu, limit, routing, ExpertInput::rows, in.slice(first, rows), inner);
    }
    ops.linear_experts(d, routing, ExpertInput::pairs, inner, given);
    ops.combine(routing, true, given, out.tensor());
  }
};

TEST(LinearExperts, RowsDoNotDependOnTheirCompany) {
  Random random(3);
  for (DType type :
       {DType::f32, DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k, DType::mxfp4}) {
    const Mixture mixture(type, random, false);
    const int64_t rows = 29;
    Rows logits(rows, kExperts, random), in(rows, 256, random);
    for (std::string_view isa : cpu_isas()) {
      for (Activations mode : {Activations::float32, Activations::fast}) {
        Machine one = cpu(isa, 1, mode), three = cpu(isa, 3, mode);
        Rows together(rows, 256), again(rows, 256);
        mixture.run(one, false, {}, logits, in, 0, rows, together);
        mixture.run(three, false, {}, logits, in, 0, rows, again);
        expect_same_bits(again, together, 0, 0, rows, std::string(isa) + " threads");
        for (int64_t size : {1, 2, 7}) {
          for (int64_t first : {int64_t{0}, int64_t{11}, rows - size}) {
            Rows out(size, 256);
            mixture.run(three, false, {}, logits, in, first, size, out);
            expect_same_bits(out, together, 0, first, size, std::string(format(type).name) + " " + std::string(isa));
          }
        }
      }
    }
  }
}

TEST(LinearExperts, FusedGatesAreTheirDefaultBody) {
  Random random(4);
  for (const GluLimit& limit : {GluLimit{}, GluLimit{.limit = 0.7f, .slope = 1.702f, .shift = 1}}) {
    const Mixture mixture(DType::q4_0, random, true);
    Rows logits(9, kExperts, random), in(9, 256, random);
    for (std::string_view isa : cpu_isas()) {
      Machine machine = cpu(isa, 2, Activations::fast);
      Rows fused(9, 256), plain(9, 256), want(9, 256);
      mixture.run(machine, false, limit, logits, in, 0, 9, fused);
      mixture.run(machine, true, limit, logits, in, 0, 9, plain);
      expect_same_bits(fused, plain, 0, 0, 9, std::string(isa));
      Machine oracle = reference();
      mixture.run(oracle, false, limit, logits, in, 0, 9, want);
      expect_close(plain, want, 5e-2f, std::string(isa));
    }
  }
}

TEST(Experts, SpreadsAndAddsShares) {
  Random random(5);
  const Router router = {.experts = 4, .chosen = 2, .score = RouterScore::sigmoid};
  Rows logits(6, 4, random), in(6, 37, random), gate(6, 1, random);
  Machine oracle = reference(), machine = cpu(cpu_isas().back());
  Routed routed(router, 6);
  oracle.ops->route(router, logits.tensor(), routed.routing);
  Rows a(12, 37), b(12, 37), c(6, 37, random), d = c;
  oracle.ops->spread(routed.routing, in.tensor(), a.tensor());
  machine.ops->spread(routed.routing, in.tensor(), b.tensor());
  expect_same_bits(a, b, 0, 0, 12, "spread");
  for (int64_t i = 0; i < 12; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(a.row(routed.place[at])[5], routed.weight[at] * in.row(i / 2)[5]);
  }
  oracle.ops->add_gated(in.tensor(), gate.tensor(), c.tensor());
  machine.ops->add_gated(in.tensor(), gate.tensor(), d.tensor());
  expect_close(d, c, 1e-6f, "add_gated");
}

TEST(Experts, ExpectedNumberTouched) {
  EXPECT_EQ(touched_experts(64, 8, 1), 8);
  EXPECT_EQ(touched_experts(64, 8, 4), 26);
  EXPECT_EQ(touched_experts(64, 8, 16), 56);
  EXPECT_EQ(touched_experts(128, 8, 16), 82);
  EXPECT_EQ(touched_experts(32, 4, 64), 32);
}

}  // namespace
}  // namespace millrace::testing
