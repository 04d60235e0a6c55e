// How fast one warp goes through a panel that lies in shared memory already: cycles for sixteen inputs of sixteen
// outputs, in several ways of writing the loop. The chain of additions alone takes 24.
//   nvcc -std=c++20 -O3 --fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc lab/cuda_chain.cu -o chain && ./chain
#include "backend/cuda/few_rows.cuh"
#include "cuda_lab.cuh"

using namespace millrace;
using namespace millrace::cuda;

namespace chain {  // the backend has kernels in a namespace without a name; nvcc would not know which is meant

constexpr int kSlots = 16, kSlotBytes = 8192, kStages = 56, kInputs = kStages * 256;

__device__ inline void chained(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
__device__ inline uint4 load_shared(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}

struct Chunk {
  uint4 w[4], in[2];
  __device__ void load(uint32_t stage, int chunk, uint32_t inputs, int lane) {
    const uint32_t from =
        stage + static_cast<uint32_t>(chunk * kChunkBytes + lane % 8 * 16 + lane / 8 % 2 * 1024 + lane / 16 * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = load_matrices(from + static_cast<uint32_t>(i) * 256);
#pragma unroll
    for (int i = 0; i < 2; ++i) in[i] = load_shared(inputs + static_cast<uint32_t>((chunk * 2 + i) * 64));
  }
  template <bool Volatile>
  __device__ void multiply(float (&sums)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t b0 = i % 2 == 0 ? in[i / 2].x : in[i / 2].z, b1 = i % 2 == 0 ? in[i / 2].y : in[i / 2].w;
      if constexpr (Volatile)
        chained(sums, w[i], b0, b1);
      else
        multiply_add(sums, w[i], b0, b1);
    }
  }
};

// Ahead: how many chunks are read before they are multiplied; 0: none. Barriers: a wait and an arrival a stage.
template <int Ahead, bool Volatile, bool Barriers, bool Generic>
__global__ void __launch_bounds__(288, 1) chain_kernel(float* out, int64_t* cycles) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(16) uint64_t barriers[kSlots * 2];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  for (int i = thread; i < (kSlots * kSlotBytes + kInputs * 2 + 64) / 4; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint32_t*>(shared)[i] = 0;
  if (thread < kSlots * 2) barrier_begin(shared_address(barriers + thread), 1);
  __syncthreads();
  const uint32_t ring = shared_address(shared), in = ring + kSlots * kSlotBytes + static_cast<uint32_t>(lane % 4 * 16);
  float sums[4] = {};
  const int64_t begin = clock64();
  if constexpr (Generic) {  // as few_rows does it
    Sums all;
    const uint4* inputs = reinterpret_cast<const uint4*>(shared + kSlots * kSlotBytes) + lane % 4;
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      if (Barriers) barrier_wait(shared_address(barriers) + static_cast<uint32_t>(s % kSlots * 16), 1);
      take<Halves<__nv_bfloat16>>(all, shared + s % kSlots * kSlotBytes, 4, inputs + s * 32, lane);
      __syncwarp();
      if (Barriers && lane == 0) barrier_arrive(shared_address(barriers) + static_cast<uint32_t>(s % kSlots * 16 + 8));
    }
    sums[0] = all.all[0] + all.all[1] + all.all[2] + all.all[3];
  } else {
    constexpr int kBuffers = Ahead + 1;
    Chunk chunks[kBuffers];
#pragma unroll
    for (int i = 0; i < Ahead; ++i) chunks[i].load(ring, i, in, lane);
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      const uint32_t stage = ring + static_cast<uint32_t>(s % kSlots * kSlotBytes);
      const uint32_t next = ring + static_cast<uint32_t>((s + 1) % kSlots * kSlotBytes);
      const uint32_t here = in + static_cast<uint32_t>(s * 512), there = here + 512;
      if (Barriers && Ahead == 0) barrier_wait(shared_address(barriers) + static_cast<uint32_t>(s % kSlots * 16), 1);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int ahead = c + Ahead;
        if (Barriers && Ahead > 0 && ahead == 4)
          barrier_wait(shared_address(barriers) + static_cast<uint32_t>((s + 1) % kSlots * 16), 1);
        if (ahead < 4)
          chunks[ahead % kBuffers].load(stage, ahead, here, lane);
        else
          chunks[ahead % kBuffers].load(next, ahead - 4, there, lane);
        chunks[c % kBuffers].multiply<Volatile>(sums);
      }
      if (4 % kBuffers != 0) {
#pragma unroll
        for (int i = 0; i < Ahead; ++i) chunks[i] = chunks[(i + 4) % kBuffers];
      }
      __syncwarp();
      if (Barriers && lane == 0) barrier_arrive(shared_address(barriers) + static_cast<uint32_t>(s % kSlots * 16 + 8));
    }
  }
  const int64_t took = clock64() - begin;
  if (sums[0] + sums[1] + sums[2] + sums[3] == 12345) out[thread] = sums[0];
  if (blockIdx.x == 5 && thread == 0) *cycles = took;
}

template <int Ahead, bool Volatile, bool Barriers, bool Generic = false>
void measure(const char* name) {
  static float* out = nullptr;
  static int64_t* cycles = nullptr;
  if (out == nullptr) {
    MUST(cudaMalloc(&out, 4096));
    MUST(cudaMallocManaged(&cycles, 8));
  }
  constexpr int kShared = kSlots * kSlotBytes + kInputs * 2 + 64;
  auto* kernel = chain_kernel<Ahead, Volatile, Barriers, Generic>;
  MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  std::printf("%-34s", name);
  for (int warps : {1, 2, 4, 8}) {
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
      kernel<<<132, warps * 32, kShared>>>(out, cycles);
      MUST(cudaDeviceSynchronize());
      best = std::min(best, static_cast<double>(*cycles));
    }
    std::printf("  %d: %5.1f", warps, best / (kStages * 16));
  }
  std::printf("\n");
}

}  // namespace chain

int main() {
  using namespace chain;
  std::printf("cycles a step, by warps of a multiprocessor\n");
  measure<0, false, true, true>("as few_rows");
  measure<0, false, false, true>("as few_rows, no barriers");
  measure<0, false, false>("nothing ahead");
  measure<1, false, false>("one chunk ahead");
  measure<1, true, false>("one chunk ahead, in order");
  measure<1, false, true>("one chunk ahead, barriers");
  measure<1, true, true>("one chunk ahead, barriers, in order");
}
