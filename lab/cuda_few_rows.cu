// few_rows over the matrices of a model, every layer its own memory, as decoding one token does it (attention left
// out).
//   nvcc -std=c++20 -O3 --fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc lab/cuda_few_rows.cu
//   src/backend/cuda/few_rows.cu -o probe
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

using namespace millrace;
using namespace millrace::cuda;
#define MUST(call)                                                                  \
  do {                                                                              \
    auto status_ = (call);                                                          \
    if (static_cast<int>(status_) != 0) {                                           \
      std::printf("%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)status_); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

__global__ void fill(uint32_t* p, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    auto half = [](uint32_t bits) { return (bits & 0x80FFu) | (0x3C00u + (bits >> 3 & 0x300u)); };
    p[i] = half(h & 0xFFFF) | half(h >> 16) << 16;
  }
}
__global__ void zero(float* p, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = 0.01f * (i % 7);
}

double time_graph(cudaStream_t stream, const std::function<void()>& body, int rounds = 20) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  cudaEvent_t a, b;
  MUST(cudaEventCreate(&a));
  MUST(cudaEventCreate(&b));
  for (int i = 0; i < rounds + 3; ++i) {
    MUST(cudaEventRecord(a, stream));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaEventRecord(b, stream));
    MUST(cudaStreamSynchronize(stream));
    float ms;
    MUST(cudaEventElapsedTime(&ms, a, b));
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3;
}

__global__ void latency(float* out) {
  float sums[4] = {};
  uint4 a = {0x3C003C00u + threadIdx.x, 0, 0, 0};
  long long begin = clock64();
  for (int i = 0; i < 1000; ++i) multiply_add(sums, a, 0x3C003C00u, 0);
  long long end = clock64();
  out[threadIdx.x] = sums[0];
  if (threadIdx.x == 0)
    std::printf("a matrix instruction that waits for the one before: %.1f cycles\n", double(end - begin) / 1000);
}

int main() {
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  float *x, *y, *q, *norm_weight;
  MUST(cudaMalloc(&x, 8 * 65536 * 4));
  MUST(cudaMalloc(&y, 8 * 65536 * 4));
  MUST(cudaMalloc(&q, 8 * 131072 * 4));
  MUST(cudaMalloc(&norm_weight, 65536 * 4));
  latency<<<1, 32>>>(q);
  MUST(cudaDeviceSynchronize());
  struct Shape {
    const char* name;
    int width, q, kv, ffn, layers;
  };
  for (Shape s : {Shape{"8B", 4096, 4096, 1024, 14336, 32}, Shape{"1B", 2048, 2048, 512, 8192, 16}}) {
    const int64_t layer_values = int64_t{s.width} * (s.q + 2 * s.kv + s.q + 3 * s.ffn);
    std::byte* weights;
    MUST(cudaMalloc(&weights, layer_values * 2 * s.layers));
    fill<<<2048, 256>>>((uint32_t*)weights, layer_values * s.layers / 2, 3);
    zero<<<1, 256>>>(x, 8 * s.width);
    zero<<<1, 256>>>(norm_weight, s.width);
    MUST(cudaDeviceSynchronize());
    Norm norm = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = norm_weight, .width = s.width};
    for (int rows : {1, 4}) {
      auto body = [&](int which) {
        for (int l = 0; l < s.layers; ++l) {
          std::byte* at = weights + layer_values * 2 * l;
          auto take = [&](int64_t outputs, int64_t inputs) {
            std::byte* here = at;
            at += outputs * inputs * 2;
            return here;
          };
          View in = {x, s.width * 4, rows, s.width, Form::f32}, normed = {q, s.width * 4, rows, s.width, Form::bf16};
          FewRows qkv = {.parts = {{take(s.q, s.width), nullptr, y, s.q, s.q},
                                   {take(s.kv, s.width), nullptr, y + 40000, s.kv, s.kv},
                                   {take(s.kv, s.width), nullptr, y + 80000, s.kv, s.kv}},
                         .count = 3,
                         .cols = s.width,
                         .in = in};
          if (rows <= 2)
            qkv.norm = &norm, qkv.normed = normed;
          else
            qkv.in = normed;
          if (which & 1) few_rows(stream, qkv);
          FewRows o = {.parts = {{take(s.width, s.q), nullptr, y, s.width, s.width}},
                       .count = 1,
                       .cols = s.q,
                       .in = {q, s.q * 4, rows, s.q, Form::bf16},
                       .residual = x,
                       .residual_stride = s.width,
                       .residual_scale = 0.001f};
          if (which & 2) few_rows(stream, o);
          FewRows glu = {.parts = {{take(s.ffn, s.width), nullptr, q, s.ffn, s.ffn},
                                   {take(s.ffn, s.width), nullptr, nullptr, 0, s.ffn}},
                         .count = 2,
                         .cols = s.width,
                         .in = in,
                         .gated = true,
                         .out_form = Form::bf16};
          if (rows <= 2)
            glu.norm = &norm, glu.normed = normed;
          else
            glu.in = normed;
          if (which & 4) few_rows(stream, glu);
          FewRows down = {.parts = {{take(s.width, s.ffn), nullptr, y, s.width, s.width}},
                          .count = 1,
                          .cols = s.ffn,
                          .in = {q, s.ffn * 4, rows, s.ffn, Form::bf16},
                          .residual = x,
                          .residual_stride = s.width,
                          .residual_scale = 0.001f};
          if ((which & 8) && few_rows_fit(rows, s.ffn, false)) few_rows(stream, down);
        }
      };
      body(15);
      MUST(cudaStreamSynchronize(stream));
      const double us = time_graph(stream, [&] { body(15); });
      const double bytes = layer_values * 2.0 * s.layers;
      std::printf("%s, %d rows: %8.1f us, %5.2f TB/s, %.0f %% of 4.32;", s.name, rows, us, bytes / us / 1e6,
                  bytes / us / 4.32e6 * 100);
      const char* names[] = {"qkv", "o", "glu", "down"};
      const double sizes[] = {double(s.width) * (s.q + 2 * s.kv), double(s.width) * s.q, 2.0 * s.width * s.ffn,
                              double(s.width) * s.ffn};
      for (int i = 0; i < 4; ++i) {
        const double one = time_graph(stream, [&] { body(1 << i); }) / s.layers;
        std::printf(" %s %.2f us %.2f TB/s;", names[i], one, sizes[i] * 2 / one / 1e6);
      }
      std::printf("\n");
      MUST(cudaGetLastError());
    }
    MUST(cudaFree(weights));
  }
  return 0;
}
