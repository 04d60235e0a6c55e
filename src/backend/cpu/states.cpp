// States on the team. A worker takes some columns of one sequence's state through all rows of that sequence, so the
// state stays in its cache; what is done to a column is in the kernel table.
#include <algorithm>

#include "backend/cpu/ops.h"
#include "backend/cpu/state_columns.h"
#include "base/check.h"

namespace millrace::cpu {
namespace {

// Of two taps, by the row's own share.
void share_row(const float* share, const float* before, const float* now, int64_t count, float* out) {
  for (int64_t c = 0; c < count; ++c) out[c] = now[c] * share[c] + before[c] * (1.0f - share[c]);
}

}  // namespace

template <class F>
void CpuOps::each_column(const StateView& state, int64_t columns, int64_t values, F&& body) {
  const int64_t piece = columns / state.cuts, parts = (piece + kStateColumns - 1) / kStateColumns;
  const int64_t across = state.cuts * parts, tasks = step_->sequences * across;
  auto work = [&](int64_t task, int) {
    const int64_t cut = task % across / parts, part = task % parts;
    const int64_t first = cut * piece + part * kStateColumns,
                  count = std::min(kStateColumns, piece - part * kStateColumns);
    body(static_cast<int32_t>(task / across), first, count, static_cast<int32_t>(cut));
  };
  if (team_.workers() == 1 || step_->rows * columns * values < kWorthForking) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
  } else {
    team_.each(tasks, work);
  }
}

void CpuOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  constexpr int32_t kMostTaps = 8;
  const int64_t kept = convolution.taps - 1, piece = in.cols / state.cuts;
  CHECK(convolution.taps >= 1 && convolution.taps <= kMostTaps && out.cols % in.cols == 0 && in.cols % state.cuts == 0,
        "{} taps from {} to {} columns in {} pieces", convolution.taps, in.cols, out.cols, state.cuts);
  each_column(state, in.cols, convolution.taps, [&](int32_t s, int64_t first, int64_t count, int32_t cut) {
    static constexpr float kZeros[kStateColumns] = {};
    const int32_t begin = step_->first_row[s], end = step_->first_row[s + 1];
    if (begin == end) return;
    float* past = state.piece(*step_, s, StateView::kConvolution, cut) + first % piece;
    const bool empty = step_->positions[begin] == 0;
    // What was put in `back` rows before row r.
    auto input = [&](int32_t r, int64_t back) -> const float* {
      if (r - back >= begin) return in.row(r - back) + first;
      return empty ? kZeros : past + (kept + (r - back - begin)) * piece;
    };
    const float* taps[kMostTaps];
    for (int32_t r = begin; r < end; ++r) {
      for (int64_t j = 0; j <= kept; ++j) taps[j] = input(r, kept - j);
      for (int64_t o = first; o < out.cols; o += in.cols) {
        if (convolution.weight != nullptr) {
          kernels_.convolve_row(convolution, taps, out.cols, o, count, out.row(r) + o);
        } else {
          share_row(convolution.shares[static_cast<size_t>(o / in.cols)] + first, taps[0], taps[1], count,
                    out.row(r) + o);
        }
      }
    }
    // Ascending: what is still needed of the past lies after the place it goes to.
    for (int64_t n = 0; n < kept; ++n) {
      const float* from = input(end - 1, kept - 1 - n);
      std::copy_n(from, count, past + n * piece);
    }
  });
}

void CpuOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  CHECK(scan.heads % state.cuts == 0 && scan.heads % scan.key_heads == 0, "{} heads in {} pieces, {} with keys",
        scan.heads, state.cuts, scan.key_heads);
  CHECK(scan.key_dim <= kMostKeys, "{} rows of a head's matrix, at most {}", scan.key_dim, kMostKeys);
  const int64_t each = scan.heads / state.cuts, size = int64_t{scan.key_dim} * scan.value_dim;
  const int64_t parts = (scan.value_dim + kHeadColumns - 1) / kHeadColumns, across = scan.heads * parts;
  auto work = [&](int64_t task, int) {
    const auto s = static_cast<int32_t>(task / across);
    const int64_t head = task % across / parts, first = task % parts * kHeadColumns;
    float* matrix = state.piece(*step_, s, StateView::kScan, static_cast<int32_t>(head / each)) + head % each * size;
    kernels_.scan_heads({.scan = scan,
                         .in = in,
                         .step = *step_,
                         .out = out,
                         .sequence = s,
                         .head = head,
                         .first = first,
                         .count = std::min<int64_t>(kHeadColumns, scan.value_dim - first),
                         .matrix = matrix + first});
  };
  const int64_t tasks = step_->sequences * across;
  if (team_.workers() == 1 || step_->rows * scan.heads * size < kWorthForking) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
  } else {
    team_.each(tasks, work);
  }
}

void CpuOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) {
  const int64_t piece = in.a.cols / state.cuts;
  each_column(state, in.a.cols, 8 * scan.states, [&](int32_t s, int64_t first, int64_t count, int32_t cut) {
    float* kept = state.piece(*step_, s, StateView::kScan, cut) + first % piece;
    kernels_.scan_channels({.scan = scan,
                            .in = in,
                            .step = *step_,
                            .out = out,
                            .sequence = s,
                            .first = first,
                            .count = count,
                            .apart = piece,
                            .kept = kept});
  });
}

}  // namespace millrace::cpu
