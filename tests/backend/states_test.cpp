// States: the CPU against the reference, and contract 1: however the rows of a sequence are cut into steps, whoever is
// beside them and into how many pieces the state is cut, the bits are the same.
#include "backend/rig.h"

namespace millrace::testing {
namespace {

// Two sequences' states in pages, each piece of a state in a group of its own. What was never written is no number.
struct States {
  States(int64_t convolution, int64_t scan, int32_t cuts) {
    const int64_t bytes = (convolution + scan) / cuts * 4;
    view.page_stride = bytes;
    view.offsets = {0, convolution / cuts * 4};
    view.numbers = {convolution, scan};
    view.cuts = cuts;
    room.assign(static_cast<size_t>(bytes) * static_cast<size_t>(2 * cuts), std::byte{0xff});
    view.base = room.data();
    for (int32_t i = 0; i < cuts; ++i) pages.push_back({2 * i + 1, 2 * i});
  }
  States(const States&) = delete;

  std::vector<std::byte> room;
  std::vector<std::array<int32_t, 2>> pages;
  StateView view;
};

constexpr int32_t kTokens = 23;

// All rows of two sequences in steps of so many rows of each; `call(ops, rows of the inputs, state, out)`.
template <class Call>
Rows run(Machine& machine, States& states, std::vector<Rows>& inputs, int64_t width, int32_t chunk, Call call) {
  Rows all(2 * kTokens, width);
  for (int32_t begin = 0; begin < kTokens; begin += chunk) {
    const int32_t count = std::min(chunk, kTokens - begin);
    const Batch batch({{begin, count}, {begin, count}}, 1, 1);
    std::vector<PageTables> groups;
    for (const auto& page : states.pages) groups.push_back({page.data(), 1});
    Step step = batch.step();
    step.groups = groups;
    machine.ops->begin(step);
    std::vector<Rows> some;
    for (Rows& input : inputs) {
      Rows& part = some.emplace_back(2 * count, input.width);
      for (int32_t s = 0; s < 2; ++s) {
        for (int32_t i = 0; i < count; ++i)
          std::copy_n(input.row(s * kTokens + begin + i), input.width, part.row(s * count + i));
      }
    }
    Rows out(2 * count, width);
    call(*machine.ops, some, states.view, out.tensor());
    for (int32_t s = 0; s < 2; ++s) {
      for (int32_t i = 0; i < count; ++i) std::copy_n(out.row(s * count + i), width, all.row(s * kTokens + begin + i));
    }
  }
  return all;
}

template <class Call>
void check(int64_t convolution, int64_t scan, std::vector<Rows> inputs, int64_t width, Call call, const char* what) {
  Machine oracle = reference();
  States expected_states(convolution, scan, 1);
  const Rows expected = run(oracle, expected_states, inputs, width, kTokens, call);
  for (std::string_view isa : cpu_isas()) {
    Machine one = cpu(isa, 1), four = cpu(isa, 4);
    States whole(convolution, scan, 1);
    const Rows first = run(one, whole, inputs, width, kTokens, call);
    expect_close(first, expected, 2e-5f, what, 1e-2f);
    for (int32_t cuts : {1, 2, 4}) {
      for (int32_t chunk : {1, 2, 5, kTokens}) {
        States states(convolution, scan, cuts);
        const Rows again = run(four, states, inputs, width, chunk, call);
        expect_same_bits(again, first, 0, 0, 2 * kTokens, what);
      }
    }
  }
}

TEST(States, Convolution) {
  Random random(3);
  for (int32_t taps : {2, 3, 4}) {
    const int64_t width = 72, times = 2;
    const std::vector<float> weight = random.normals(taps * width * times), bias = random.normals(width * times);
    std::vector<Rows> inputs;
    inputs.emplace_back(2 * kTokens, width, random);
    check(
        width * (taps - 1), 0, inputs, width * times,
        [&](Ops& ops, std::vector<Rows>& in, const StateView& state, Tensor out) {
          ops.convolve({.taps = taps, .weight = weight.data(), .bias = bias.data(), .silu = taps == 4}, in[0].tensor(),
                       state, out);
        },
        "convolve");
  }
  const std::vector<float> a(72, 0.25f), b = random.normals(72), c(72, 1.0f);
  std::vector<Rows> inputs;
  inputs.emplace_back(2 * kTokens, 72, random);
  check(
      72, 0, inputs, 3 * 72,
      [&](Ops& ops, std::vector<Rows>& in, const StateView& state, Tensor out) {
        ops.convolve({.taps = 2, .shares = {a.data(), b.data(), c.data()}}, in[0].tensor(), state, out);
      },
      "shares");
}

TEST(States, Heads) {
  Random random(4);
  for (int kind : {0, 1, 2}) {  // fixed decay, steps, delta
    for (int32_t value_dim : {37, 64}) {
      // Neighbours share keys, or heads that stand four apart.
      HeadScan scan = {.heads = 8, .key_heads = 4, .striped = value_dim == 64, .key_dim = 16, .value_dim = value_dim};
      std::vector<float> rate, bias = random.normals(8), skip = random.normals(8);
      for (int i = 0; i < 8; ++i) rate.push_back(-0.05f * static_cast<float>(i + 1));
      scan.rate = rate.data();
      if (kind > 0) scan.step_bias = bias.data();
      if (kind == 1) scan.skip = skip.data(), scan.least = 0.1f, scan.most = 1.5f;
      if (kind == 2) scan.delta = true, scan.k_scale = 0.3f, scan.q_scale = 0.5f;
      std::vector<Rows> inputs;
      inputs.emplace_back(2 * kTokens, 64, random, 0.5f);
      inputs.emplace_back(2 * kTokens, 64, random, 0.5f);
      inputs.emplace_back(2 * kTokens, 8 * value_dim, random);
      inputs.emplace_back(2 * kTokens, 8, random);
      inputs.emplace_back(2 * kTokens, 8, random);
      check(
          0, int64_t{8} * 16 * value_dim, inputs, int64_t{8} * value_dim,
          [&](Ops& ops, std::vector<Rows>& in, const StateView& state, Tensor out) {
            ops.scan_heads(scan,
                           {.q = in[0].tensor(),
                            .k = in[1].tensor(),
                            .v = in[2].tensor(),
                            .steps = kind > 0 ? in[3].tensor() : Tensor{},
                            .beta = kind == 2 ? in[4].tensor() : Tensor{}},
                           state, out);
          },
          "scan_heads");
    }
  }
}

TEST(States, Channels) {
  Random random(5);
  const int64_t width = 200;
  for (const ChannelScanKind kind :
       {ChannelScanKind::selective, ChannelScanKind::gated, ChannelScanKind::wkv, ChannelScanKind::modal}) {
    const bool selective = kind == ChannelScanKind::selective, modal = kind == ChannelScanKind::modal;
    ChannelScan scan = {.kind = kind, .states = selective ? 6 : modal ? 4 : kind == ChannelScanKind::wkv ? 3 : 1};
    std::vector<float> first = random.normals(scan.states * width, 0.4f), second = random.normals(scan.states * width);
    if (!modal) {
      for (float& each : first) each = -std::abs(each);
    }
    const std::vector<float> third = random.normals(width);
    scan.constants = {first.data(), second.data(), third.data()};
    std::vector<Rows> inputs;
    inputs.emplace_back(2 * kTokens, width, random);
    inputs.emplace_back(2 * kTokens, width, random);
    inputs.emplace_back(2 * kTokens, selective ? scan.states : width, random);
    inputs.emplace_back(2 * kTokens, scan.states, random);
    check(
        0, scan.states * width, inputs, width,
        [&](Ops& ops, std::vector<Rows>& in, const StateView& state, Tensor out) {
          ops.scan_channels(scan, {.a = in[0].tensor(), .b = in[1].tensor(), .c = in[2].tensor(), .d = in[3].tensor()},
                            state, out);
        },
        "scan_channels");
  }
}

}  // namespace
}  // namespace millrace::testing
