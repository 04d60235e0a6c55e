// few_rows and many_rows alone: the same bits however many rows there are, and how fast for the matrices of a model.
//   nvcc -std=c++20 -O3 --fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc lab/cuda_products.cu
//   src/backend/cuda/{few_rows,many_rows,spread_rows,pack,portable/few_rows,portable/many_rows}.cu -o products
//   ./products [portable] [bits | large | whole]   portable: those kernels, their bits against the ones for Hopper;
//   large: speeds of many rows only; whole: speeds without segments

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/cuda/packed.h"
#include "backend/cuda/portable/portable.h"
#include "backend/cuda/ptx.cuh"
#include "cuda_lab.cuh"

using namespace millrace;
using namespace millrace::cuda;

struct Kernels {
  decltype(&few_rows_fit) fit;
  decltype(&few_rows) few;
  decltype(&many_rows) many;
};
constexpr Kernels kHopper = {few_rows_fit, few_rows, many_rows},
                  kPortable = {portable::few_rows_fit, portable::few_rows, portable::many_rows};
Kernels used = kHopper;

cudaStream_t stream;
uint64_t state = 88172645463325252ull;
uint32_t chance() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<uint32_t>(state >> 16);
}
uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
uint16_t small_half(DType type) {
  const float value = (static_cast<int>(chance() % 2001) - 1000) / 1000.0f;
  if (type != DType::f16) return bf16(value);
  const __half half = __float2half(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
int64_t row_bytes(DType type, int64_t cols) {
  if (type == DType::q8_0) return cols / 32 * 34;
  if (type == DType::q4_0) return cols / 32 * 18;
  if (type == DType::q4_k) return cols / 256 * 144;
  return cols * 2;
}
// A file's rows, random but with sensible factors, and what they mean.
std::vector<std::byte> random_rows(DType type, int64_t rows, int64_t cols, std::vector<float>* meaning) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes(type, cols)));
  for (auto& byte : bytes) byte = static_cast<std::byte>(chance());
  const __half factor = __float2half(0.01f), less = __float2half(0.02f);
  const int group = type == DType::q8_0 ? 34 : type == DType::q4_0 ? 18 : type == DType::q4_k ? 144 : 0;
  if (group == 0) {
    auto* halves = reinterpret_cast<uint16_t*>(bytes.data());
    for (int64_t i = 0; i < rows * cols; ++i) halves[i] = small_half(type);
  }
  for (size_t i = 0; group != 0 && i < bytes.size(); i += static_cast<size_t>(group)) {
    std::memcpy(&bytes[i], &factor, 2);
    if (type == DType::q4_k) std::memcpy(&bytes[i + 2], &less, 2);
  }
  if (meaning != nullptr) {
    meaning->resize(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* row = bytes.data() + r * row_bytes(type, cols);
      auto at = [&](int64_t i) { return static_cast<int>(row[i]); };
      for (int64_t c = 0; c < cols; ++c) {
        float value = 0;
        if (type == DType::q8_0) value = 0.01f * static_cast<float>(static_cast<int8_t>(row[c / 32 * 34 + 2 + c % 32]));
        if (type == DType::q4_0) {
          const int byte = at(c / 32 * 18 + 2 + c % 16);
          value = 0.01f * static_cast<float>((c % 32 < 16 ? byte & 15 : byte >> 4) - 8);
        }
        if (type == DType::q4_k) {
          const int64_t super = c / 256 * 144, group32 = c % 256 / 32;
          const int byte = at(super + 16 + c % 256 / 64 * 32 + c % 32), q = c % 64 < 32 ? byte & 15 : byte >> 4;
          int scale, minimum;
          if (group32 < 4) {
            scale = at(super + 4 + group32) & 63, minimum = at(super + 8 + group32) & 63;
          } else {
            scale = (at(super + 8 + group32) & 15) | (at(super + group32) >> 6) << 4;
            minimum = at(super + 8 + group32) >> 4 | (at(super + 4 + group32) >> 6) << 4;
          }
          value = 0.01f * static_cast<float>(scale * q) - 0.02f * static_cast<float>(minimum);
        }
        if (group == 0) {
          const uint16_t half = reinterpret_cast<const uint16_t*>(row)[c];
          __half number;
          std::memcpy(&number, &half, 2);
          const uint32_t wide = uint32_t{half} << 16;
          std::memcpy(&value, &wide, 4);
          if (type == DType::f16) value = __half2float(number);
        }
        (*meaning)[static_cast<size_t>(r * cols + c)] = value;
      }
    }
  }
  return bytes;
}
template <class T>
T* on_device(const std::vector<T>& values) {
  T* place;
  MUST(cudaMalloc(&place, values.size() * sizeof(T)));
  MUST(cudaMemcpy(place, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return place;
}

// Every way of computing the same rows.
bool check(DType type, int n, int k, bool gated, int rows = 300) {
  const int parts = gated ? 2 : 1;
  const bool adds = !gated && k != 512;
  std::vector<float> meaning;
  Products work = {.count = parts,
                   .type = type,
                   .cols = k,
                   .segments = segments_of(type, n, k),
                   .gated = gated,
                   .out_form = Form::f32};
  std::byte* panels[2];
  std::byte* wide[2];
  const int64_t bytes = packed_bytes(type, n, k);
  for (int i = 0; i < parts; ++i) {
    std::byte* raw = on_device(random_rows(type, n, k, i == 0 ? &meaning : nullptr));
    MUST(cudaMalloc(&panels[i], bytes));
    MUST(cudaMalloc(&wide[i], packed_bytes(DType::bf16, n, k)));
    pack(stream, type, raw, n, k, panels[i]);
    if (type != DType::bf16 && type != DType::f16) widen(stream, type, panels[i], panels_of(n), k, wide[i]);
    MUST(cudaStreamSynchronize(stream));
    cudaFree(raw);
  }
  std::vector<uint16_t> in(static_cast<size_t>(rows * k));
  for (auto& value : in) value = small_half(type);
  std::vector<float> stream_rows(static_cast<size_t>(rows * n));
  for (auto& value : stream_rows) value = static_cast<float>(chance() % 100) / 10;
  for (int i = 0; i < k; ++i) in[static_cast<size_t>(80 * k + i)] = 0;  // a row that adds zeros to next to nothing
  for (int i = 0; i < n; ++i) stream_rows[static_cast<size_t>(80 * n + i)] = static_cast<float>(i) * 1e-42f;
  uint16_t* inputs = on_device(in);
  float* residual = on_device(stream_rows);
  float* out;
  MUST(cudaMalloc(&out, sizeof(float) * static_cast<size_t>(rows * n)));
  auto run = [&](int first, int count, bool few, const Kernels& by) {
    Products one = work;
    const Form form = type == DType::f16 ? Form::f16 : Form::bf16;
    one.in = {inputs + int64_t{first} * k, int64_t{k} * 2, count, k, form};
    MUST(cudaMemcpy(residual, stream_rows.data(), stream_rows.size() * 4, cudaMemcpyHostToDevice));
    const bool as_wide = !few && type != DType::bf16 && type != DType::f16;
    for (int i = 0; i < parts; ++i)
      one.parts[i] = {.weights = as_wide ? wide[i] : panels[i], .out = out, .out_stride = n, .rows = n};
    if (as_wide) one.type = DType::bf16;
    if (adds) one.residual = residual + int64_t{first} * n, one.residual_stride = n, one.residual_scale = 0.5f;
    if (few)
      by.few(stream, one);
    else
      MUST(by.many(stream, one));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGetLastError());
    std::vector<float> results(static_cast<size_t>(count * n));
    MUST(cudaMemcpy(results.data(), adds ? residual + int64_t{first} * n : out, results.size() * 4,
                    cudaMemcpyDeviceToHost));
    return results;
  };
  const std::vector<float> all = run(0, rows, false, kHopper);
  int64_t wrong = 0;
  auto compare = [&](int first, int count, bool few) {
    const std::vector<float> some = run(first, count, few, used);
    for (int64_t i = 0; i < int64_t{count} * n; ++i)
      wrong += std::memcmp(&some[static_cast<size_t>(i)], &all[static_cast<size_t>(int64_t{first} * n + i)], 4) != 0;
  };
  for (int first : {0, 77}) {
    for (int count : {1, 2, 5, 8, 9, 16})
      if (used.fit(count, k, false)) compare(first, count, true);
    for (int count : {1, 9, 17, 40, 64, 65, 129, 200}) compare(first, count, false);
  }
  for (int first = 300; first < rows; first += 100) compare(first, std::min(100, rows - first), false);
  double worst = 0;
  if (!gated) {
    for (int r = 0; r < rows; r += 37) {
      for (int o = 0; o < n; o += 29) {
        double sum = 0, size = 0;
        for (int i = 0; i < k; ++i) {
          const uint16_t half = in[static_cast<size_t>(r * k + i)];
          float x;
          const uint32_t bits = uint32_t{half} << 16;
          std::memcpy(&x, &bits, 4);
          if (type == DType::f16) {
            __half number;
            std::memcpy(&number, &half, 2);
            x = __half2float(number);
          }
          const double product = double{x} * meaning[static_cast<size_t>(int64_t{o} * k + i)];
          sum += product, size += std::abs(product);
        }
        const size_t at = static_cast<size_t>(int64_t{r} * n + o);
        const double expected = adds ? stream_rows[at] + 0.5 * sum : sum;
        worst = std::max(worst, std::abs(all[at] - expected) / size);
      }
    }
  }
  std::printf("type %d  %5d x %5d%s, %d rows: %ld different, error %.1e of the sum of sizes\n", static_cast<int>(type),
              n, k, gated ? " gated" : "", rows, static_cast<long>(wrong), worst);
  for (int i = 0; i < parts; ++i) cudaFree(panels[i]), cudaFree(wide[i]);
  cudaFree(inputs), cudaFree(residual), cudaFree(out);
  return wrong == 0 && worst < 2e-3;
}

struct Shape {
  const char* name;
  int n, k;
  bool gated;
};

constexpr Shape kShapes[] = {{"qkv", 6144, 4096, false},     {"o", 4096, 4096, false},
                             {"gate-up", 14336, 4096, true}, {"down", 4096, 14336, false},
                             {"head", 128256, 4096, false},  {"1B-o", 2048, 2048, false},
                             {"1B-gu", 8192, 2048, true},    {"1B-down", 2048, 8192, false}};
constexpr int64_t kRoom = int64_t{3} << 30;
bool whole_chains = false;  // no segments, to see what they gain or cost

// Bfloat16 as a model has them, about normal: what changes from number to number costs power, and so clock.
__global__ void fill(__nv_bfloat16* to, int64_t count, float deviation) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t bits = static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    bits ^= bits >> 31;
    float sum = 0;  // of four even numbers from -0.5 to 0.5
    for (int j = 0; j < 4; ++j) sum += static_cast<float>(bits >> 16 * j & 0xFFFF) / 65536 - 0.5f;
    to[i] = __float2bfloat16_rn(sum * 1.7320508f * deviation);
  }
}
void fill_with(std::byte* to, int64_t bytes, float deviation) {
  fill<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(to), bytes / 2, deviation);
  MUST(cudaGetLastError());
}

struct Memory {
  std::byte *weights, *inputs;
  float* out;
  Memory() {
    MUST(cudaMalloc(&weights, static_cast<size_t>(kRoom)));
    MUST(cudaMalloc(&inputs, size_t{8192} * 14336 * 2));
    MUST(cudaMalloc(&out, size_t{8192} * 28672 * 8));
    MUST(cudaMemset(out, 0, size_t{8192} * 28672 * 8));
    fill_with(weights, kRoom, 0.02f);
    fill_with(inputs, int64_t{8192} * 14336 * 2, 1);
    MUST(cudaDeviceSynchronize());
  }
};

// One product over and over, its weights somewhere else each time.
void speed(DType type, const Shape& shape, int rows, const Memory& at) {
  const auto& [memory, inputs, out] = at;
  const int64_t bytes = packed_bytes(type, shape.n, shape.k) * (shape.gated ? 2 : 1);
  const int64_t copies = std::min<int64_t>(kRoom / bytes, std::max<int64_t>(2, (int64_t{1} << 29) / bytes));
  const bool few = used.fit(rows, shape.k, false);
  if (!few && type != DType::bf16) return;
  auto body = [&] {
    for (int64_t i = 0; i < copies; ++i) {
      Products work = {.count = shape.gated ? 2 : 1,
                       .type = type,
                       .cols = shape.k,
                       .segments = whole_chains ? 1 : segments_of(type, shape.n, shape.k),
                       .gated = shape.gated,
                       .out_form = Form::bf16};
      for (int side = 0; side < work.count; ++side)
        work.parts[side] = {
            .weights = memory + i * bytes + side * bytes / 2, .out = out, .out_stride = shape.n, .rows = shape.n};
      work.in = {inputs, int64_t{shape.k} * 2, rows, shape.k, Form::bf16};
      if (!shape.gated) work.residual = out + int64_t{rows} * shape.n, work.residual_stride = shape.n;
      if (few)
        used.few(stream, work);
      else
        MUST(used.many(stream, work));
    }
  };
  const double us = time_graph(stream, body) / static_cast<double>(copies);
  const double flops = 2.0 * rows * shape.n * shape.k * (shape.gated ? 2 : 1);
  std::printf("%-8s type %d rows %5d: %8.1f us  %6.0f GB/s  %6.1f TFLOP/s\n", shape.name, static_cast<int>(type), rows,
              us, static_cast<double>(bytes) / us / 1e3, flops / us / 1e6);
}

int one_product(char** argv) {
  const Memory at;
  for (const Shape& shape : kShapes) {
    if (std::strcmp(shape.name, argv[1]) == 0)
      speed(static_cast<DType>(std::atoi(argv[3])), shape, std::atoi(argv[2]), at);
  }
  return 0;
}

int main(int argc, char** argv) {
  MUST(cudaStreamCreate(&stream));
  if (argc > 1 && std::strcmp(argv[1], "portable") == 0) used = kPortable, --argc, ++argv;
  if (argc > 3) return one_product(argv);  // NAME ROWS TYPE, for a profiler
  bool fine = true;
  for (DType type : {DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_k}) {
    for (bool gated : {false, true}) {
      fine = check(type, 256, 512, gated) && fine;
      fine = check(type, 1008, 1536, gated) && fine;
      fine = check(type, 4096, 256, gated) && fine;
      if (type != DType::q4_k) fine = check(type, 50, 96, gated) && fine;
    }
  }
  fine = check(DType::bf16, 512, 14336, false) && fine;
  fine = check(DType::bf16, 6144, 4096, false) && fine;
  fine = check(DType::bf16, 2050, 8192, false) && fine;
  fine = check(DType::q8_0, 1000, 9216, false) && fine;
  for (DType type : {DType::bf16, DType::f16}) {  // an odd number of tiles of rows, several for a thread block
    fine = check(type, 4096, 4096, false, 1900) && fine;
    fine = check(type, 4112, 1536, false, 1900) && fine;
    fine = check(type, 3000, 1024, false, 1100) && fine;
    fine = check(type, 7000, 512, false, 1900) && fine;
    fine = check(type, 6256, 512, true, 1900) && fine;
  }
  for (DType type : {DType::f16, DType::q8_0, DType::q4_0, DType::q4_k}) {
    fine = check(type, 1024, 2048, false) && fine;
    fine = check(type, 304, 1280, true) && fine;
  }
  std::printf(fine ? "bits: equal\n" : "bits: DIFFERENT\n");
  if (argc > 1 && std::strcmp(argv[1], "bits") == 0) return fine ? 0 : 1;
  whole_chains = argc > 1 && std::strcmp(argv[1], "whole") == 0;
  const Memory at;
  if (argc > 1 && std::strcmp(argv[1], "large") == 0) {
    for (const Shape& shape : kShapes)
      for (int rows : {64, 128, 256, 384, 512, 2048, 8192})
        if (shape.n < 100000 || rows <= 256) speed(DType::bf16, shape, rows, at);
    return fine ? 0 : 1;
  }
  for (const Shape& shape : kShapes)
    for (int rows : {1, 8, 16, 64, 128, 256, 2048})
      if (shape.n < 100000 || rows <= 256) speed(DType::bf16, shape, rows, at);
  for (DType type : {DType::q8_0, DType::q4_0, DType::q4_k})
    for (const Shape& shape : kShapes)
      for (int rows : {1, 8}) speed(type, shape, rows, at);
  return fine ? 0 : 1;
}
