// States: convolutions and scans against the reference, and a row's bits however its sequence is cut into steps,
// whoever is beside it, and into however many pages its state is cut.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr double kAllowedOfStates = 1e-4;  // what was rounded is carried on from row to row
constexpr int32_t kStateTokens = 100, kStateSequences = 4;

// An operation on states. Every sequence has the same rows of inputs.
struct StateCall {
  using Operation = std::function<void(const std::vector<Tensor>&, const StateView&, Tensor)>;
  std::string what;
  int64_t convolution = 0, scan = 0;  // numbers of a state
  std::vector<Numbers> inputs;
  int64_t width = 0;                      // of what comes out
  std::function<Operation(Rig&)> on;      // with its constants brought to that rig
  std::vector<int32_t> cuts = {1, 2, 4};  // of a state, into pages
};

class StateRun {
 public:
  StateRun(Rig& rig, const StateCall& call, int32_t cuts) : rig_(rig), call_(call), operation_(call.on(rig)) {
    const int64_t bytes = (call.convolution + call.scan) / cuts * static_cast<int64_t>(sizeof(float));
    const int32_t pages = cuts * kStateSequences;
    // Whoever reads what was never written shows it.
    const std::vector<std::byte> nan(static_cast<size_t>(bytes * pages), std::byte{0xff});
    view_.base = rig.memory(Purpose::kv, bytes * pages);
    if (view_.base != nullptr) rig.backend().copy(view_.base, nan.data(), bytes * pages);
    view_.page_stride = bytes;
    view_.offsets = {0, call.convolution / cuts * static_cast<int64_t>(sizeof(float))};
    view_.numbers = {call.convolution, call.scan};
    view_.cuts = cuts;
    for (int32_t i = 0; i < pages; ++i) pages_.push_back(pages - 1 - i);
  }

  Numbers step(std::span<const StepPiece> pieces) {
    const std::vector<int32_t> rows = positions_of(pieces);
    rig_.begin(pieces, pages_, 1, view_.cuts);
    std::vector<Tensor> inputs;
    for (const Numbers& input : call_.inputs) inputs.push_back(rig_.bring(input.picked(rows)));
    const Tensor out = rig_.blank(static_cast<int64_t>(rows.size()), call_.width);
    operation_(inputs, view_, out);
    return rig_.read(out);
  }

 private:
  Rig& rig_;
  const StateCall& call_;
  StateCall::Operation operation_;
  StateView view_;
  std::vector<int32_t> pages_;
};

void check_state_call(const StateCall& call, Scene& scene, Verdict& verdict) {
  const StepPiece all = {0, 0, kStateTokens};
  StateRun device(scene.device, call, 1), right(scene.reference, call, 1);
  if (!scene.device.failure().empty()) return;
  const Numbers whole = device.step({&all, 1});
  verdict.close(whole, right.step({&all, 1}), call.what);
  auto same = [&](StateRun& run, const std::vector<StepPiece>& pieces, const std::string& what) {
    verdict.same(run.step(pieces), whole.picked(positions_of(pieces)), fmt::format("{}: {}", call.what, what));
  };
  int32_t at = 0;
  for (const int32_t rows : {1, 1, 16, 1, 2, 40, 3, 36}) {
    same(device, {{1, at, rows}}, fmt::format("rows {} to {} in a step", at, at + rows - 1));
    at += rows;
  }
  same(device, {{0, 0, 1}, {1, 0, 2}, {2, 0, 33}, {3, 0, 64}}, "sequences that begin together, where others were");
  same(device, {{0, 1, 1}, {1, 2, 1}, {2, 33, 1}, {3, 64, 1}}, "single rows together");
  same(device, {{0, 2, 40}, {1, 3, 1}, {2, 34, 2}, {3, 65, 1}}, "single rows beside longer pieces");
  same(device, {{2, 36, kStateTokens - 36}}, "a sequence to its end");
  for (const int32_t cuts : call.cuts) {
    StateRun cut(scene.device, call, cuts);
    if (!scene.device.failure().empty()) return;
    same(cut, {{1, 0, 60}, {2, 0, 7}}, fmt::format("in {} pages", cuts));
    same(cut, {{1, 60, 40}, {2, 7, 1}}, fmt::format("in {} pages, going on", cuts));
  }
}

const float* on_rig(Rig& rig, const std::vector<float>& values) {
  return values.empty() ? nullptr : rig.vector(values);
}

// ---- convolutions

StateCall convolution_of(int32_t taps, int64_t times, bool bias, bool silu, Chance& chance) {
  constexpr int64_t kColumns = 136;
  const std::vector<float> weight = chance.normals(taps * kColumns * times),
                           added = bias ? chance.normals(kColumns * times) : std::vector<float>();
  StateCall call = {.what = fmt::format("{} taps, {} times as many outputs", taps, times),
                    .convolution = kColumns * (taps - 1),
                    .width = kColumns * times};
  call.inputs.emplace_back(kStateTokens, kColumns, chance);
  call.on = [=](Rig& rig) -> StateCall::Operation {
    const Convolution settings = {.taps = taps, .weight = rig.vector(weight), .bias = on_rig(rig, added), .silu = silu};
    return [&rig, settings](const std::vector<Tensor>& in, const StateView& state, Tensor out) {
      rig.ops().convolve(settings, in[0], state, out);
    };
  };
  return call;
}

StateCall shares_of(int64_t times, Chance& chance) {
  constexpr int64_t kColumns = 72;
  const std::vector<float> a = chance.normals(kColumns), b = chance.normals(kColumns), c = chance.normals(kColumns);
  StateCall call = {
      .what = fmt::format("shares of {} outputs", times), .convolution = kColumns, .width = kColumns * times};
  call.inputs.emplace_back(kStateTokens, kColumns, chance);
  call.on = [=](Rig& rig) -> StateCall::Operation {
    const Convolution settings = {.taps = 2, .shares = {rig.vector(a), rig.vector(b), rig.vector(c)}};
    return [&rig, settings](const std::vector<Tensor>& in, const StateView& state, Tensor out) {
      rig.ops().convolve(settings, in[0], state, out);
    };
  };
  return call;
}

void check_convolve(Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_states()) return verdict.unsupported("no states");
  Chance chance(801);
  check_state_call(convolution_of(2, 1, false, false, chance), scene, verdict);
  check_state_call(convolution_of(3, 2, true, false, chance), scene, verdict);
  check_state_call(convolution_of(4, 1, true, true, chance), scene, verdict);
  check_state_call(convolution_of(8, 2, false, true, chance), scene, verdict);
  check_state_call(shares_of(1, chance), scene, verdict);
  check_state_call(shares_of(3, chance), scene, verdict);
}

// ---- heads

enum class Decay : uint8_t { fixed, by_steps, delta };

struct ScanShape {
  int32_t heads, key_heads, key_dim, value_dim;
  bool striped;
};

StateCall heads_of(const ScanShape& shape, Decay decay, Chance& chance) {
  const bool steps = decay != Decay::fixed;
  std::vector<float> rate;
  for (int32_t i = 0; i < shape.heads; ++i) rate.push_back(-0.05f * static_cast<float>(i + 1));
  const std::vector<float> bias = chance.normals(shape.heads), skip = chance.normals(shape.heads);
  HeadScan scan = {.heads = shape.heads,
                   .key_heads = shape.key_heads,
                   .striped = shape.striped,
                   .key_dim = shape.key_dim,
                   .value_dim = shape.value_dim,
                   .q_scale = 0.5f,
                   .k_scale = 1 / std::sqrt(static_cast<float>(shape.key_dim)),
                   .delta = decay == Decay::delta};
  if (decay == Decay::by_steps) scan.least = 0.1f, scan.most = 1.5f;
  StateCall call = {.what = fmt::format("heads of {} x {}", shape.key_dim, shape.value_dim),
                    .scan = int64_t{shape.heads} * shape.key_dim * shape.value_dim,
                    .width = int64_t{shape.heads} * shape.value_dim};
  const int64_t keys = int64_t{shape.key_heads} * shape.key_dim;
  for (const int64_t cols : {keys, keys, call.width, int64_t{shape.heads}, int64_t{shape.heads}})
    call.inputs.emplace_back(kStateTokens, cols, chance);
  call.on = [=](Rig& rig) -> StateCall::Operation {
    HeadScan settings = scan;
    settings.rate = rig.vector(rate);
    if (steps) settings.step_bias = rig.vector(bias);
    if (decay == Decay::by_steps) settings.skip = rig.vector(skip);
    return [&rig, settings, steps](const std::vector<Tensor>& in, const StateView& state, Tensor out) {
      rig.ops().scan_heads(settings,
                           {.q = in[0],
                            .k = in[1],
                            .v = in[2],
                            .steps = steps ? in[3] : Tensor{},
                            .beta = settings.delta ? in[4] : Tensor{}},
                           state, out);
    };
  };
  return call;
}

void check_scan_heads(Decay decay, Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_states()) return verdict.unsupported("no states");
  Chance chance(802);
  for (const ScanShape& shape : {ScanShape{8, 4, 16, 37, false},
                                 {8, 4, 64, 64, true},
                                 {4, 4, 128, 128, false},
                                 {4, 2, 100, 24, false},
                                 {4, 1, 160, 48, false}})
    check_state_call(heads_of(shape, decay, chance), scene, verdict);
}

// ---- channels

std::vector<float> negative(std::vector<float> values) {
  for (float& value : values) value = -0.01f - std::abs(value);
  return values;
}

// Complex numbers below one in size, a row of real parts and a row of imaginary ones in turn.
std::vector<float> turning(int32_t states, int64_t width, Chance& chance) {
  std::vector<float> values(static_cast<size_t>(states * width));
  for (int64_t n = 0; n < states; n += 2) {
    for (int64_t c = 0; c < width; ++c) {
      const float size = 0.5f + 0.0045f * static_cast<float>(chance.below(100)), angle = chance.normal();
      values[static_cast<size_t>(n * width + c)] = size * std::cos(angle);
      values[static_cast<size_t>((n + 1) * width + c)] = size * std::sin(angle);
    }
  }
  return values;
}

StateCall channels_of(ChannelScanKind kind, int32_t states, Chance& chance) {
  constexpr int64_t kColumns = 200;
  const bool selective = kind == ChannelScanKind::selective;
  const std::vector<float> first = kind == ChannelScanKind::modal ? turning(states, kColumns, chance)
                                                                  : negative(chance.normals(states * kColumns, 0.5f)),
                           second = chance.normals(states * kColumns), third = chance.normals(kColumns);
  StateCall call = {.what = fmt::format("{} numbers a channel", states), .scan = states * kColumns, .width = kColumns};
  for (const int64_t cols : {kColumns, kColumns, selective ? int64_t{states} : kColumns, int64_t{states}})
    call.inputs.emplace_back(kStateTokens, cols, chance);
  call.on = [=](Rig& rig) -> StateCall::Operation {
    const ChannelScan settings = {
        .kind = kind, .states = states, .constants = {rig.vector(first), rig.vector(second), rig.vector(third)}};
    return [&rig, settings](const std::vector<Tensor>& in, const StateView& state, Tensor out) {
      rig.ops().scan_channels(settings, {.a = in[0], .b = in[1], .c = in[2], .d = in[3]}, state, out);
    };
  };
  return call;
}

void check_scan_channels(ChannelScanKind kind, std::span<const int32_t> states, Scene& scene, Verdict& verdict) {
  if (!scene.device.backend().has_states()) return verdict.unsupported("no states");
  Chance chance(803);
  for (const int32_t each : states) check_state_call(channels_of(kind, each, chance), scene, verdict);
}

}  // namespace

void add_state_checks(std::vector<OpsCheck>& checks) {
  auto add = [&](const std::string& name, auto check) { checks.push_back({name, kAllowedOfStates, check}); };
  add("convolve", check_convolve);
  add("scan_heads", [](Scene& s, Verdict& v) { check_scan_heads(Decay::fixed, s, v); });
  add("scan_heads by steps", [](Scene& s, Verdict& v) { check_scan_heads(Decay::by_steps, s, v); });
  add("scan_heads, delta", [](Scene& s, Verdict& v) { check_scan_heads(Decay::delta, s, v); });
  auto channels = [&](const std::string& name, ChannelScanKind kind, std::vector<int32_t> states) {
    add("scan_channels, " + name, [=](Scene& s, Verdict& v) { check_scan_channels(kind, states, s, v); });
  };
  channels("selective", ChannelScanKind::selective, {16, 6});
  channels("gated", ChannelScanKind::gated, {1});
  channels("wkv", ChannelScanKind::wkv, {3});
  channels("modal", ChannelScanKind::modal, {2, 8});
}

}  // namespace millrace
