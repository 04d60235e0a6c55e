// What recurrent layers keep of the past and compute with it: the inputs a short convolution still reads, and the state
// of a scan. A state belongs to one sequence and stands after its last computed token; the scan runs token by token, so
// however a sequence is cut into steps, its bits are the same. Plain values; the ops that read them are in ops.h.
//
// Rows of a sequence come in order. Where they begin with position 0 the state is empty, whatever its page holds.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "backend/step.h"
#include "base/both.h"
#include "tensor/tensor.h"

namespace millrace {

// Where the states of one layer lie. A state has two parts, convolution and scan, and may be cut into as many equal
// pieces as fit pages: piece i lies in the page of group + i and has its share of the channels or heads of both parts.
struct StateView {
  enum Kind : uint8_t { kConvolution, kScan };
  std::byte* base = nullptr;
  int64_t page_stride = 0;                  // bytes from page to page
  std::array<int64_t, 2> offsets = {0, 0};  // of each part within a page, bytes
  std::array<int64_t, 2> numbers = {0, 0};  // of each part, all pieces together
  int32_t group = 0;                        // index into Step::groups
  int32_t cuts = 1;

  // Of a sequence, the numbers of one piece of a part.
  float* piece(const Step& step, int32_t sequence, Kind part, int32_t index) const {
    const PageTables& tables = step.groups[static_cast<size_t>(group + index)];
    const int64_t page = tables.pages[int64_t{sequence} * tables.stride];
    return reinterpret_cast<float*>(base + page * page_stride + offsets[part]);
  }
};

// A causal convolution of each column with itself. There may be several times as many outputs as inputs: output c
// reads input c % inputs. The state is the last taps - 1 inputs, oldest first: of each piece [taps - 1, its columns].
struct Convolution {
  int32_t taps = 0;
  const float* weight = nullptr;  // [taps, outputs]; the last is of the row itself
  const float* bias = nullptr;    // [outputs] or null
  bool silu = false;              // follows
  // Instead of a weight, with two taps and at most three times as many outputs as inputs: the share of the row itself,
  // [inputs] for each time; the rest is of the row before.
  std::array<const float*, 3> shares = {};
};

// Heads with a matrix S [key_dim, value_dim] each. A token with key k, query q and value v:
//   S = decay * S;  S += k u^T;  out = S^T q + skip * v
// `steps` gives t = softplus(steps + step_bias), at least `least` and at most `most`, and decay = exp(rate * t);
// without it decay = exp(rate). u is v, or v * t if there are steps; with `delta` it is sigmoid(beta) * (v - S^T k).
struct HeadScan {
  int32_t heads = 0, key_heads = 0;  // heads / key_heads neighbours share keys and queries
  bool striped = false;              // or heads that are key_heads apart do
  int32_t key_dim = 0, value_dim = 0;
  const float* rate = nullptr;       // [heads], not positive
  const float* step_bias = nullptr;  // [heads] or null
  const float* skip = nullptr;       // [heads] or null
  float least = 0, most = std::numeric_limits<float>::infinity();
  float q_scale = 1, k_scale = 1;
  bool delta = false;

  MILLRACE_BOTH int32_t key_head(int32_t head) const { return striped ? head % key_heads : head / (heads / key_heads); }
};
struct HeadScanRows {
  Tensor q, k;   // [rows, key_heads * key_dim]
  Tensor v;      // [rows, heads * value_dim]
  Tensor steps;  // [rows, heads], or null
  Tensor beta;   // [rows, heads], of delta
};

// Channels with a few numbers of state each, of each piece [states, its channels].
enum class ChannelScanKind : uint8_t {
  selective,  // Mamba: t = softplus(b); h_n = exp(t * constants[0][n]) h_n + t a c_n; out = sum h_n d_n + constants[1]
              // a
  gated,  // RG-LRU: r = exp(constants[0] * sigmoid(b)); h = r h + sqrt(1 - r^2) sigmoid(c) a; out = h. First: h = ..a
  wkv,    // RWKV 4: keys a, values b; constants[0] decays what was, constants[1] is for the token itself
  modal,  // Hyena: complex h_n = constants[0][n] h_n + a; out = sum Re(constants[1][n] h_n) + constants[2] a
};
struct ChannelScan {
  ChannelScanKind kind = ChannelScanKind::selective;
  int32_t states = 0;                          // numbers a channel keeps
  std::array<const float*, 3> constants = {};  // [channels], or [states, channels]
};
struct ChannelScanRows {
  Tensor a, b;  // [rows, channels]
  Tensor c, d;  // [rows, states] of selective; c [rows, channels] of gated
};

}  // namespace millrace
