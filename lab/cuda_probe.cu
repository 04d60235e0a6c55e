// What the design of the CUDA backend rests on: whether mma.sync, wgmma and cuBLASLt add products in the same order,
// how near a register-fed product of few rows comes to the memory's speed, and what a launch costs with and without
// programmatic dependent launch.
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Isrc lab/cuda_probe.cu -lcublasLt -o probe && ./probe
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/cuda/ptx.cuh"
#include "cuda_lab.cuh"

using namespace millrace::cuda;

// ---- 1. one chain of products, three instructions ------------------------------------------------------------------
// weights [64, K], inputs [N, K] row-major bfloat16; out [N, 64].
__global__ void chain_mma(const uint16_t* w, const uint16_t* x, float* out, int K, int N) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  for (int n = 0; n < N; n += 8) {
    float sums[4] = {};
    for (int k = 0; k < K; k += 16) {
      auto pair = [](const uint16_t* p) { return *reinterpret_cast<const uint32_t*>(p); };
      const uint16_t* a = w + (warp * 16 + g) * K + k + 2 * t;
      uint4 frag = {pair(a), pair(a + 8 * K), pair(a + 8), pair(a + 8 * K + 8)};
      const uint16_t* b = x + (n + g) * K + k + 2 * t;
      multiply_add(sums, frag, pair(b), pair(b + 8));
    }
    for (int i = 0; i < 4; ++i) out[(n + 2 * t + i % 2) * 64 + warp * 16 + g + i / 2 * 8] = sums[i];
  }
}

__device__ uint64_t descriptor(const void* shared) {
  uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
  return (address >> 4 & 0x3FFF) | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}

template <int N>
__device__ void wgmma(float (&d)[N / 2], const uint4& a, uint64_t b);
template <>
__device__ void wgmma<8>(float (&d)[4], const uint4& a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
template <>
__device__ void wgmma<64>(float (&d)[32], const uint4& a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}

template <int N>
__global__ void chain_wgmma(const uint16_t* w, const uint16_t* x, float* out, int K) {
  __shared__ __align__(1024) uint16_t tile[N * 64];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  float d[N / 2] = {};
  for (int k = 0; k < K; k += 64) {
    __syncthreads();
    for (int i = threadIdx.x; i < N * 8; i += 128) {
      int row = i / 8, chunk = i % 8;
      *reinterpret_cast<uint4*>(&tile[row * 64 + ((chunk ^ row % 8) * 8)]) =
          *reinterpret_cast<const uint4*>(x + row * K + k + chunk * 8);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint4 frag[4];
    for (int s = 0; s < 4; ++s) {
      auto pair = [](const uint16_t* p) { return *reinterpret_cast<const uint32_t*>(p); };
      const uint16_t* a = w + (warp * 16 + g) * K + k + s * 16 + 2 * t;
      frag[s] = {pair(a), pair(a + 8 * K), pair(a + 8), pair(a + 8 * K + 8)};
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int s = 0; s < 4; ++s) wgmma<N>(d, frag[s], descriptor(tile) + s * 2);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int i = 0; i < N / 2; ++i) {
    int n = i / 4 * 8 + 2 * t + i % 2, m = warp * 16 + g + i % 4 / 2 * 8;
    out[n * 64 + m] = d[i];
  }
}

// ---- 2. few rows: weights straight from memory to the matrix units
// --------------------------------------------------- Weights packed [row tile][k tile][lane] of 16 bytes. A thread
// group (8 warps) takes a row tile; each warp an eighth of K.
template <int Depth>
__global__ void __launch_bounds__(256, Depth == 16 ? 2 : 4)
    few_rows(const uint4* w, const uint16_t* x, float* out, int tiles, int steps, int K) {
  extern __shared__ uint16_t inputs[];
  __shared__ float partial[2][8][16];
  let_next_start();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int mine = (tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  if (mine < 0) mine = 0;
  const uint4* at = w + (static_cast<int64_t>(blockIdx.x) * 8 + warp) * steps * 32 + lane;
  const int64_t next_tile = (static_cast<int64_t>(gridDim.x) * 8 - 1) * steps * 32;
  uint4 ring[Depth];
  int fetch_left = steps, fetch_tiles = mine;
  auto fetch = [&](uint4& slot) {
    if (fetch_tiles > 0) slot = load_once(at);
    at += 32;
    if (--fetch_left == 0) at += next_tile, fetch_left = steps, --fetch_tiles;
  };
#pragma unroll
  for (int j = 0; j < Depth; ++j) fetch(ring[j]);
  wait_for_previous();
  for (int i = threadIdx.x; i < K / 8; i += 256)
    reinterpret_cast<uint4*>(inputs)[i] = reinterpret_cast<const uint4*>(x)[i];
  __syncthreads();
  for (int m = 0; m < mine; ++m) {
    float sums[4] = {};
    const uint16_t* b = inputs + warp * steps * 16 + 2 * t;
    for (int s = 0; s < steps; s += Depth) {
#pragma unroll
      for (int j = 0; j < Depth; ++j) {
        uint32_t b0 = 0, b1 = 0;
        if (g == 0) {
          b0 = *reinterpret_cast<const uint32_t*>(b + (s + j) * 16);
          b1 = *reinterpret_cast<const uint32_t*>(b + (s + j) * 16 + 8);
        }
        multiply_add(sums, ring[j], b0, b1);
        fetch(ring[j]);
      }
    }
    if (t == 0) partial[m % 2][warp][g] = sums[0], partial[m % 2][warp][g + 8] = sums[2];
    __syncthreads();
    if (threadIdx.x < 16) {
      float total = 0;
      for (int i = 0; i < 8; ++i) total += partial[m % 2][i][threadIdx.x];
      out[(blockIdx.x + m * gridDim.x) * 16 + threadIdx.x] = total;
    }
  }
}

__global__ void tiny(float* x) {
  let_next_start();
  wait_for_previous();
  x[threadIdx.x + blockIdx.x * blockDim.x] += 1;
}

__global__ void fill(uint32_t* p, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    auto half = [](uint32_t bits) { return (bits & 0x80FFu) | (0x3C00u + (bits >> 3 & 0x300u)); };
    p[i] = half(h & 0xFFFF) | half(h >> 16) << 16;
  }
}

template <class... P, class... A>
void launch(cudaStream_t stream, bool early, void (*kernel)(P...), int grid, int threads, int shared, A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = shared, config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute, config.numAttrs = early ? 1 : 0;
  MUST(cudaLaunchKernelEx(&config, kernel, P(arguments)...));
}

int main() {
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  const int K = 4096, M = 8192;
  uint16_t *w, *x;
  float *o1, *o2;
  MUST(cudaMalloc(&w, 64ll * K * 2));
  MUST(cudaMalloc(&x, int64_t{M} * K * 2));
  MUST(cudaMalloc(&o1, int64_t{M} * 64 * 4));
  MUST(cudaMalloc(&o2, int64_t{M} * 64 * 4));
  fill<<<1024, 256>>>((uint32_t*)w, 32ll * K, 1), fill<<<1024, 256>>>((uint32_t*)x, int64_t{M} * K / 2, 2);
  chain_mma<<<1, 128>>>(w, x, o1, K, M);
  MUST(cudaDeviceSynchronize());
  std::vector<float> expected(int64_t{M} * 64), found = expected;
  MUST(cudaMemcpy(expected.data(), o1, expected.size() * 4, cudaMemcpyDefault));
  auto compare = [&](const char* name, int rows) {
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(found.data(), o2, int64_t{rows} * 64 * 4, cudaMemcpyDefault));
    int64_t different = 0;
    for (int64_t i = 0; i < int64_t{rows} * 64; ++i) different += std::memcmp(&found[i], &expected[i], 4) != 0;
    std::printf("%-40s rows %5d: %lld of %d differ (%g %g)\n", name, rows, (long long)different, rows * 64, found[5],
                expected[5]);
  };
  chain_wgmma<8><<<1, 128>>>(w, x, o2, K), compare("wgmma n8", 8);
  chain_wgmma<64><<<1, 128>>>(w, x, o2, K), compare("wgmma n64", 64);
  // cuBLASLt: out[rows, 64] = x * w^T. Column-major: D (64 x rows) = w^T(as stored K x 64, transposed) * x (K x rows).
  cublasLtHandle_t lt;
  MUST(cublasLtCreate(&lt));
  void* room;
  MUST(cudaMalloc(&room, 64 << 20));
  for (int rows : {1, 2, 8, 16, 64, 128, 256, 1024, 8192}) {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasOperation_t yes = CUBLAS_OP_T;
    MUST(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &yes, sizeof yes));
    MUST(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, K, 64, K));
    MUST(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, K, rows, K));
    MUST(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 64, rows, 64));
    cublasLtMatmulPreference_t preference;
    MUST(cublasLtMatmulPreferenceCreate(&preference));
    size_t bytes = 64 << 20;
    uint32_t none = 0;
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                              sizeof bytes));
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                              sizeof none));
    cublasLtMatmulHeuristicResult_t results[8];
    int count = 0;
    MUST(cublasLtMatmulAlgoGetHeuristic(lt, op, a, b, d, d, preference, 8, results, &count));
    float one = 1, zero = 0;
    for (int i = 0; i < std::min(count, 3); ++i) {
      MUST(cublasLtMatmul(lt, op, &one, w, a, x, b, &zero, o2, d, o2, d, &results[i].algo, room, bytes, stream));
      char name[64];
      int id = 0;
      size_t written;
      cublasLtMatmulAlgoConfigGetAttribute(&results[i].algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
      std::snprintf(name, sizeof name, "cuBLASLt choice %d (algorithm %d)", i, id);
      compare(name, rows);
    }
  }
  // Speed of few_rows over the matrices of a model, every layer its own memory.
  struct Shape {
    const char* name;
    int width, qkv, ffn, layers;
  };
  for (Shape s : {Shape{"8B", 4096, 6144, 14336, 32}, Shape{"1B", 2048, 3072, 8192, 16}}) {
    struct Matrix {
      int rows, cols;
    };
    std::vector<Matrix> layer = {{s.qkv, s.width}, {s.width, s.width}, {2 * s.ffn, s.width}, {s.width, s.ffn}};
    int64_t layer_values = 0;
    for (Matrix m : layer) layer_values += int64_t{m.rows} * m.cols;
    uint4* weights;
    MUST(cudaMalloc(&weights, layer_values * 2 * s.layers));
    fill<<<2048, 256>>>((uint32_t*)weights, layer_values * s.layers / 2, 3);
    MUST(cudaDeviceSynchronize());
    for (int depth : {4, 8, 16}) {
      for (bool early : {false, true}) {
        for (int copies : {1, 2}) {
          auto kernel = depth == 4 ? few_rows<4> : depth == 8 ? few_rows<8> : few_rows<16>;
          MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
          double us = time_graph(stream, [&] {
            const uint4* at = weights;
            for (int l = 0; l < s.layers; ++l) {
              for (Matrix m : layer) {
                launch(stream, early, kernel, 132 * copies, 256, m.cols * 2, at, (const uint16_t*)x, o1, m.rows / 16,
                       m.cols / 16 / 8, m.cols);
                at += int64_t{m.rows} * m.cols / 8;
              }
            }
          });
          double floor = layer_values * 2.0 * s.layers / 4.32e12 * 1e6;
          std::printf(
              "%s few_rows depth %2d, %d a multiprocessor, early start %d: %8.1f us, %5.2f TB/s, %.0f %% of 4.32\n",
              s.name, depth, copies, early, us, layer_values * 2.0 * s.layers / us / 1e6, 100 * floor / us);
        }
      }
    }
    for (Matrix m : layer) {
      auto kernel = few_rows<8>;
      double us = time_graph(stream,
                             [&] {
                               for (int l = 0; l < 20; ++l)
                                 launch(stream, true, kernel, 264, 256, m.cols * 2,
                                        (const uint4*)(weights + (l % s.layers) * layer_values / 8), (const uint16_t*)x,
                                        o1, m.rows / 16, m.cols / 16 / 8, m.cols);
                             }) /
                  20;
      std::printf("  %6d x %5d: %6.2f us, %.2f TB/s\n", m.rows, m.cols, us, m.rows * 2.0 * m.cols / us / 1e6);
    }
    MUST(cudaFree(weights));
  }
  for (bool early : {false, true})
    for (int grid : {1, 132})
      std::printf("a tiny kernel in a graph, grid %d, early start %d: %.2f us\n", grid, early,
                  time_graph(stream, [&] {
                    for (int i = 0; i < 200; ++i) launch(stream, early, tiny, grid, 256, 0, o1);
                  }) / 200);
  return 0;
}
