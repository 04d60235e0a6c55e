// Operations on states: where the device finds them, and the kernels of states.cu.
#include "backend/cuda/ops.h"

namespace millrace::cuda {

DeviceState CudaOps::device_state(const StateView& state) const {
  DeviceState out = {.base = reinterpret_cast<char*>(state.base),
                     .page_stride = state.page_stride,
                     .offsets = {state.offsets[0], state.offsets[1]},
                     .cuts = state.cuts};
  for (int32_t piece = 0; piece < state.cuts && piece < kMostPieces; ++piece) {
    const PageTables& tables = step_->groups[static_cast<size_t>(state.group + piece)];
    out.pages[piece] = on_device(tables.pages);
    out.strides[piece] = tables.stride;
  }
  return out;
}

void CudaOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  flush();
  const View from = view(in);
  const DeviceConvolution settings = {.taps = convolution.taps,
                                      .weight = convolution.weight,
                                      .bias = convolution.bias,
                                      .silu = convolution.silu,
                                      .shares = {convolution.shares[0], convolution.shares[1], convolution.shares[2]}};
  cuda::convolve(parts_.stream, device_step(nullptr), settings, device_state(state), from, result(out, Form::f32));
}

void CudaOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  flush();
  HeadScanViews views = {.q = view(in.q), .k = view(in.k), .v = view(in.v), .steps = {}, .beta = {}};
  if (in.steps) views.steps = view(in.steps);
  if (in.beta) views.beta = view(in.beta);
  cuda::scan_heads(parts_.stream, device_step(nullptr), scan, device_state(state), views, result(out, Form::f32));
}

void CudaOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) {
  flush();
  ChannelScanViews views = {.a = view(in.a), .b = {}, .c = {}, .d = {}};
  if (in.b) views.b = view(in.b);
  if (in.c) views.c = view(in.c);
  if (in.d) views.d = view(in.d);
  const DeviceChannels channels = {
      .kind = scan.kind, .states = scan.states, .constants = {scan.constants[0], scan.constants[1], scan.constants[2]}};
  cuda::scan_channels(parts_.stream, device_step(nullptr), channels, device_state(state), views,
                      result(out, Form::f32));
}

}  // namespace millrace::cuda
