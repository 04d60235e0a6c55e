// States, sixteen columns at once. What a column's state becomes and gives is the same whether its neighbours are
// there, and whether its rows come together or one by one: several rows are taken while a part of the state is in
// registers, but every column goes through the same operations in the same order.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/state_columns.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

constexpr float kLog2E = 1.44269504f;

// 2^x, to about two units in the last place; what is below -126 counts as -126.
inline Floats exp2_f32(Floats x) {
  x = smaller(splat(127.0f), larger(splat(-126.0f), x));
  const Floats n = rounded(x), r = x - n;
  Floats p = splat(1.33908634e-3f);  // interpolates 2^r on [-1/2, 1/2]
  p = fma(p, r, splat(9.67603192e-3f));
  p = fma(p, r, splat(5.55035711e-2f));
  p = fma(p, r, splat(2.40221075e-1f));
  p = fma(p, r, splat(6.93147188e-1f));
  p = fma(p, r, splat(1.0f));
#ifdef __AVX512F__
  return {_mm512_scalef_ps(p.v, n.v)};
#else
  return as_floats(bits_of(p) + shift_left(nearest(n), 23));
#endif
}

inline Floats sigmoid_f32(Floats x) { return splat(1) / (splat(1) + exp_f32(splat(0) - x)); }

inline Floats root_f32(Floats x) {
#ifdef __AVX512F__
  return {_mm512_sqrt_ps(x.v)};
#else
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
#endif
}

// log(1 + e^x): the part above zero, and log(1 + y) of y <= 1 as a series in y / (2 + y).
inline Floats softplus_f32(Floats x) {
  const Floats y = exp_f32(splat(0) - magnitude(x)), s = y / (splat(2) + y), z = s * s;
  Floats p = splat(1.0f / 15);
  p = fma(p, z, splat(1.0f / 13));
  p = fma(p, z, splat(1.0f / 11));
  p = fma(p, z, splat(1.0f / 9));
  p = fma(p, z, splat(1.0f / 7));
  p = fma(p, z, splat(1.0f / 5));
  p = fma(p, z, splat(1.0f / 3));
  p = fma(p, z, splat(1.0f));
  return fma(splat(2) * s, p, larger(splat(0), x));
}

// Calls f(which column, how many of sixteen exist).
template <class F>
void each_sixteen(int64_t count, F f) {
  for (int64_t c = 0; c < count; c += kLanes) f(c, least(kLanes, count - c));
}

inline void convolve_row(const Convolution& conv, const float* const* taps, int64_t outputs, int64_t first,
                         int64_t count, float* out) {
  each_sixteen(count, [&](int64_t c, int64_t some) {
    Floats sum = conv.bias != nullptr ? load_some(conv.bias + first + c, some) : splat(0);
    for (int32_t j = 0; j < conv.taps; ++j)
      sum = fma(load_some(conv.weight + j * outputs + first + c, some), load_some(taps[j] + c, some), sum);
    if (conv.silu) sum = sum * sigmoid_f32(sum);
    store_some(out + c, sum, some);
  });
}

// ---- heads
// -----------------------------------------------------------------------------------------------------------

// What rows of a head need beside their numbers, for sixteen rows.
struct HeadRows {
  static constexpr int32_t kRows = kLanes;
  float decay[kRows], t[kRows], beta[kRows];

  HeadRows(const HeadColumns& at, int32_t first, int32_t count) {
    const HeadScan& scan = at.scan;
    float numbers[kRows] = {};
    Floats step = splat(1);
    if (at.in.steps) {
      const float bias = scan.step_bias != nullptr ? scan.step_bias[at.head] : 0;
      for (int32_t i = 0; i < count; ++i) numbers[i] = at.in.steps.row(first + i)[at.head] + bias;
      step = smaller(splat(scan.most), larger(splat(scan.least), softplus_f32(load(numbers))));
    }
    store(t, step);
    store(decay, exp_f32(splat(scan.rate[at.head]) * step));
    if (!scan.delta) return;
    for (int32_t i = 0; i < count; ++i) numbers[i] = at.in.beta.row(first + i)[at.head];
    store(beta, sigmoid_f32(load(numbers)));
  }
};

// kVectors times sixteen columns, or (not kWhole) the `some` that are left.
template <int kVectors, bool kWhole>
struct HeadVectors {
  const HeadColumns& at;
  int64_t skipped, some;

  Floats get(const float* from, int v) const {
    return kWhole ? load(from + kLanes * v) : load_some(from + kLanes * v, some);
  }
  void put(float* to, int v, Floats x) const {
    kWhole ? store(to + kLanes * v, x) : store_some(to + kLanes * v, x, some);
  }
  float* matrix() const { return at.matrix + skipped; }
  int64_t column() const { return at.head * at.scan.value_dim + at.first + skipped; }
  float skip() const { return at.scan.skip != nullptr ? at.scan.skip[at.head] : 0; }

  // A row's keys or queries times their scale; in `room` if that is not one.
  static const float* scaled(const float* in, float scale, int64_t count, float* room) {
    if (scale == 1) return in;
    for (int64_t i = 0; i < count; i += kLanes)
      store_some(room + i, load_some(in + i, least(kLanes, count - i)) * splat(scale), least(kLanes, count - i));
    return room;
  }

  // kTokens rows, each after the one before it.
  template <int kTokens>
  void take(const HeadRows& rows, int32_t index, int32_t r) const {
    const int64_t keys = at.scan.key_dim, apart = at.scan.value_dim;
    alignas(64) float room[2 * kTokens][kMostKeys];
    const float *k[kTokens], *q[kTokens];
    Floats u[kTokens][kVectors], sum[kTokens][kVectors], decay[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      k[t] = scaled(at.in.k.row(r + t) + at.key_first(), at.scan.k_scale, keys, room[2 * t]);
      q[t] = scaled(at.in.q.row(r + t) + at.key_first(), at.scan.q_scale, keys, room[2 * t + 1]);
      decay[t] = splat(rows.decay[index + t]);
      for (int v = 0; v < kVectors; ++v) {
        u[t][v] = get(at.in.v.row(r + t) + column(), v) * splat(rows.t[index + t]);
        sum[t][v] = splat(0);
      }
    }
    float* row = matrix();
    for (int64_t n = 0; n < keys; ++n, row += apart) {
      Floats now[kVectors];
      for (int v = 0; v < kVectors; ++v) now[v] = get(row, v);
      for (int t = 0; t < kTokens; ++t) {
        const Floats key = splat(k[t][n]), query = splat(q[t][n]);
        for (int v = 0; v < kVectors; ++v) {
          now[v] = fma(key, u[t][v], now[v] * decay[t]);
          sum[t][v] = fma(now[v], query, sum[t][v]);
        }
      }
      for (int v = 0; v < kVectors; ++v) put(row, v, now[v]);
    }
    for (int t = 0; t < kTokens; ++t) {
      for (int v = 0; v < kVectors; ++v)
        put(at.out.row(r + t) + column(), v, fma(splat(skip()), get(at.in.v.row(r + t) + column(), v), sum[t][v]));
    }
  }

  // Forgets, and tells what the state answers to a key.
  void ask(const float* k, float decay, Floats* answer) const {
    const int64_t keys = at.scan.key_dim, apart = at.scan.value_dim;
    float* row = matrix();
    Floats sum[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = splat(0);
    for (int64_t n = 0; n < keys; ++n, row += apart) {
      for (int v = 0; v < kVectors; ++v) {
        const Floats now = get(row, v) * splat(decay);
        put(row, v, now);
        sum[v] = fma(now, splat(k[n]), sum[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) answer[v] = sum[v];
  }

  // A row of the delta rule whose key was asked for; with kNext, what ask() would do for the next one, in one pass.
  template <bool kNext>
  void correct(const float* k, const float* q, const Floats* u, const float* next_k, float next_decay, Floats* sum,
               Floats* answer) const {
    const int64_t keys = at.scan.key_dim, apart = at.scan.value_dim;
    const Floats decay = splat(next_decay);
    float* row = matrix();
    Floats given[kVectors], asked[kVectors], added[kVectors];
    for (int v = 0; v < kVectors; ++v) given[v] = asked[v] = splat(0), added[v] = u[v];
    for (int64_t n = 0; n < keys; ++n, row += apart) {
      for (int v = 0; v < kVectors; ++v) {
        Floats now = fma(splat(k[n]), added[v], get(row, v));
        given[v] = fma(now, splat(q[n]), given[v]);
        if constexpr (kNext) {
          now = now * decay;
          asked[v] = fma(now, splat(next_k[n]), asked[v]);
        }
        put(row, v, now);
      }
    }
    for (int v = 0; v < kVectors; ++v) sum[v] = given[v], answer[v] = asked[v];
  }

  void run_delta() const {
    const int64_t keys = at.scan.key_dim;
    alignas(64) float room[3][kMostKeys];
    auto key = [&](int32_t r, float* into) {
      return scaled(at.in.k.row(r) + at.key_first(), at.scan.k_scale, keys, into);
    };
    Floats answer[kVectors], sum[kVectors], u[kVectors];
    const float* k = nullptr;
    for (int32_t first = at.begin(); first < at.end(); first += HeadRows::kRows - 1) {
      // One row more than are taken: the last one's successor.
      const int32_t count = static_cast<int32_t>(least(HeadRows::kRows, at.end() - first));
      const bool last = first + count == at.end();
      const HeadRows rows(at, first, count);
      if (first == at.begin()) {
        k = key(first, room[0]);
        ask(k, rows.decay[0], answer);
      }
      for (int32_t i = 0; i < count - (last ? 0 : 1); ++i) {
        const int32_t r = first + i;
        const float* v_row = at.in.v.row(r) + column();
        const float* q = scaled(at.in.q.row(r) + at.key_first(), at.scan.q_scale, keys, room[2]);
        for (int v = 0; v < kVectors; ++v) u[v] = splat(rows.beta[i]) * (get(v_row, v) - answer[v]);
        const float* next_k = nullptr;
        if (i + 1 < count) {
          next_k = key(r + 1, room[(r + 1 - at.begin()) % 2]);
          correct<true>(k, q, u, next_k, rows.decay[i + 1], sum, answer);
        } else {
          correct<false>(k, q, u, nullptr, 1, sum, answer);
        }
        for (int v = 0; v < kVectors; ++v) put(at.out.row(r) + column(), v, fma(splat(skip()), get(v_row, v), sum[v]));
        k = next_k;
      }
      if (last) return;
    }
  }

  void run() const {
    if (at.begin() == at.end()) return;
    if (at.step.positions[at.begin()] == 0) {
      for (int64_t n = 0; n < at.scan.key_dim; ++n)
        for (int v = 0; v < kVectors; ++v) put(matrix() + n * at.scan.value_dim, v, splat(0));
    }
    if (at.scan.delta) return run_delta();
    for (int32_t first = at.begin(); first < at.end(); first += HeadRows::kRows) {
      const int32_t count = static_cast<int32_t>(least(HeadRows::kRows, at.end() - first));
      const HeadRows rows(at, first, count);
      int32_t i = 0;
      for (; i + 4 <= count; i += 4) take<4>(rows, i, first + i);
      for (; i < count; ++i) take<1>(rows, i, first + i);
    }
  }
};

inline void scan_heads(const HeadColumns& columns) {
  int64_t done = 0;
  for (; columns.count - done >= 2 * kLanes; done += 2 * kLanes) HeadVectors<2, true>{columns, done, kLanes}.run();
  for (; columns.count - done >= kLanes; done += kLanes) HeadVectors<1, true>{columns, done, kLanes}.run();
  if (done < columns.count) HeadVectors<1, false>{columns, done, columns.count - done}.run();
}

// ---- channels
// --------------------------------------------------------------------------------------------------------

// Sixteen channels, or the last few of them.
template <bool kWhole>
struct ChannelVector {
  const ChannelColumns& at;
  int64_t skipped, some;

  Floats get(const float* from) const { return kWhole ? load(from + skipped) : load_some(from + skipped, some); }
  void put(float* to, Floats x) const { kWhole ? store(to + skipped, x) : store_some(to + skipped, x, some); }
  Floats of(const Tensor& rows, int32_t r) const { return get(rows.row(r) + at.first); }
  Floats constant(size_t which, int64_t n) const { return get(at.constant(which, n)); }
  float* state(int64_t n) const { return at.kept + n * at.apart; }
  void give(int32_t r, Floats x) const { put(at.out.row(r) + at.first, x); }

  // Sixteen states, as most models have, stay in registers from the first row to the last.
  void selective_sixteen() const {
    constexpr int64_t kStates = 16;
    Floats h[kStates];
    for (int64_t n = 0; n < kStates; ++n) h[n] = get(state(n));
    const Floats skip = constant(1, 0);
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      const Floats a = of(at.in.a, r), t = softplus_f32(of(at.in.b, r)), taken = t * a, t2 = t * splat(kLog2E);
      const float *enters = at.in.c.row(r), *leaves = at.in.d.row(r);
      Floats sum = skip * a;
#pragma GCC unroll 16
      for (int64_t n = 0; n < kStates; ++n) {
        h[n] = fma(exp2_f32(t2 * constant(0, n)), h[n], taken * splat(enters[n]));
        sum = fma(h[n], splat(leaves[n]), sum);
      }
      give(r, sum);
    }
    for (int64_t n = 0; n < kStates; ++n) put(state(n), h[n]);
  }

  void selective() const {
    if (at.scan.states == 16) return selective_sixteen();
    const Floats skip = constant(1, 0);
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      const Floats a = of(at.in.a, r), t = softplus_f32(of(at.in.b, r)), taken = t * a, t2 = t * splat(kLog2E);
      const float *enters = at.in.c.row(r), *leaves = at.in.d.row(r);
      Floats sum = skip * a;
      for (int64_t n = 0; n < at.scan.states; ++n) {
        const Floats h = fma(exp2_f32(t2 * constant(0, n)), get(state(n)), taken * splat(enters[n]));
        put(state(n), h);
        sum = fma(h, splat(leaves[n]), sum);
      }
      give(r, sum);
    }
  }

  void gated() const {
    const Floats rate = constant(0, 0);
    Floats h = get(state(0));
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      const Floats exponent = rate * sigmoid_f32(of(at.in.b, r)), keep = exp_f32(exponent);
      const Floats taken = sigmoid_f32(of(at.in.c, r)) * of(at.in.a, r);
      const Floats left = larger(splat(0), splat(1) - exp_f32(exponent + exponent));
      const Floats share = at.step.positions[r] == 0 ? splat(1) : root_f32(left);
      h = fma(keep, h, share * taken);
      give(r, h);
    }
    put(state(0), h);
  }

  void wkv() const {
    const Floats decay = constant(0, 0), own = constant(1, 0);
    Floats sum = get(state(0)), weight = get(state(1)), most = get(state(2));
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      const Floats key = of(at.in.a, r), value = of(at.in.b, r), high = larger(most, key + own);
      const Floats before = exp_f32(most - high), now = exp_f32(key + own - high);
      give(r, fma(now, value, before * sum) / fma(before, weight, now));
      const Floats next = larger(most + decay, key);
      const Floats keep = exp_f32(most + decay - next), add = exp_f32(key - next);
      sum = fma(keep, sum, add * value);
      weight = fma(keep, weight, add);
      most = next;
    }
    put(state(0), sum);
    put(state(1), weight);
    put(state(2), most);
  }

  void modal() const {
    const Floats skip = constant(2, 0);
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      const Floats a = of(at.in.a, r);
      Floats sum = skip * a;
      for (int64_t n = 0; n < at.scan.states; n += 2) {
        const Floats pole = constant(0, n), pole_im = constant(0, n + 1), re = get(state(n)), im = get(state(n + 1));
        const Floats x = fma(pole, re, fnma(pole_im, im, a)), y = fma(pole, im, pole_im * re);
        put(state(n), x);
        put(state(n + 1), y);
        sum = fnma(constant(1, n + 1), y, fma(constant(1, n), x, sum));
      }
      give(r, sum);
    }
  }

  void run() const {
    if (at.begin() == at.end()) return;
    for (int64_t n = 0; n < at.scan.states && at.step.positions[at.begin()] == 0; ++n)
      put(state(n), splat(at.scan.kind == ChannelScanKind::wkv && n == 2 ? -1e38f : 0.0f));
    switch (at.scan.kind) {
      case ChannelScanKind::selective:
        return selective();
      case ChannelScanKind::gated:
        return gated();
      case ChannelScanKind::wkv:
        return wkv();
      case ChannelScanKind::modal:
        return modal();
    }
  }
};

inline void scan_channels(const ChannelColumns& columns) {
  each_sixteen(columns.count, [&](int64_t c, int64_t some) {
    some == kLanes ? ChannelVector<true>{columns, c, some}.run() : ChannelVector<false>{columns, c, some}.run();
  });
}

inline void add_state_entries(Kernels& kernels) {
  kernels.convolve_row = convolve_row;
  kernels.scan_heads = scan_heads;
  kernels.scan_channels = scan_channels;
}

}  // namespace
}  // namespace millrace::cpu
