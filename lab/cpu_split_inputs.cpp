// What does it cost that a product's sum has one order? One row against the matrices of a 1.1B model, computed in two
// ways on the same team and kernels: outputs shared out between the workers, as the backend does it (the same bits for
// any number of workers); and inputs, each worker with half of every sum and the halves added at the end (other bits
// for another number of workers, so not allowed). Build, after the library:
//   g++ -std=c++20 -O2 -Isrc lab/cpu_split_inputs.cpp
//   build/release/src/{backend/libmillrace_backend,tensor/libmillrace_tensor,base/libmillrace_base}.a -lfmt -lpthread
//   a.out [threads] [format,format,...]
// Weights rotate through copies larger than the last cache. The two ways take turns; best of many.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/team.h"

using namespace millrace;
using cpu::LinearKernel;
using cpu::LinearPart;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::byte* memory(int64_t bytes) {
  auto* place = static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>((bytes + 8191) / 4096 * 4096)));
  std::memset(place, 1, static_cast<size_t>(bytes));  // memory never written is slow to read
  return place;
}

Tensor row_of(float* values, int64_t count) {
  return {reinterpret_cast<std::byte*>(values), DType::f32, 1, count, count * static_cast<int64_t>(sizeof(float))};
}

struct Matrix {
  int64_t outputs, inputs, times;  // how often a step multiplies by one
};

constexpr Matrix kMatrices[] = {
    {2048, 2048, 22 * 2}, {256, 2048, 22 * 2}, {5632, 2048, 22 * 2}, {2048, 5632, 22}, {32000, 2048, 1}};

Weight packed(const LinearKernel& kernel, DType type, int64_t outputs, int64_t inputs) {
  std::vector<float> values(static_cast<size_t>(outputs * inputs));
  std::mt19937 random(1);
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-4f - 0.1f;
  std::vector<std::byte> plain(static_cast<size_t>(bytes_of(type, outputs * inputs)));
  format(type).from_float(values.data(), plain.data(), outputs * inputs);
  Weight weight{.type = type, .rows = outputs, .cols = inputs};
  weight.bytes = kernel.pack != nullptr ? kernel.packed_bytes(outputs, inputs) : static_cast<int64_t>(plain.size());
  std::byte* data = memory(weight.bytes);
  if (kernel.pack != nullptr) {
    kernel.pack(plain.data(), outputs, inputs, 0, outputs, data);
  } else {
    std::memcpy(data, plain.data(), plain.size());
  }
  weight.data = data;
  weight.layout = kernel.pack != nullptr;
  return weight;
}

Weight copy_of(const Weight& weight) {
  Weight other = weight;
  std::byte* data = memory(weight.bytes);
  std::memcpy(data, weight.data, static_cast<size_t>(weight.bytes));
  other.data = data;
  return other;
}

struct Bench {
  Team team;
  const LinearKernel& kernel;
  std::vector<std::byte*> scratch, prepared;
  std::vector<float*> sums;

  Bench(int workers, const LinearKernel& chosen) : team(workers), kernel(chosen) {
    for (int i = 0; i < workers; ++i) {
      scratch.push_back(memory(cpu::kWorkerBytes));
      prepared.push_back(memory(1 << 20));
      sums.push_back(reinterpret_cast<float*>(memory(1 << 20)));
    }
  }

  void product(const Weight& weight, Tensor in, Tensor out, int64_t begin, int64_t end, const std::byte* ready,
               int worker) {
    kernel.product({&weight, in, ready, 1, 0, 1, out, begin, end, scratch[static_cast<size_t>(worker)]});
  }

  // As src/backend/cpu/linear.cpp does it.
  void by_outputs(const Weight& weight, float* in, float* out) {
    Tensor row = row_of(in, weight.cols), result = row_of(out, weight.rows);
    if (kernel.prepare != nullptr) kernel.prepare(row, 0, 1, prepared[0]);
    const int64_t workers = team.workers();
    const int64_t parts = std::clamp<int64_t>(weight.bytes / (64 << 10), workers, workers * 4) / workers * workers;
    const int64_t tile = kernel.outputs_tile, each = ((weight.rows + parts - 1) / parts + tile - 1) / tile * tile;
    team.each((weight.rows + each - 1) / each, [&](int64_t task, int worker) {
      product(weight, row, result, task * each, std::min(weight.rows, (task + 1) * each), prepared[0], worker);
    });
  }

  // parts[i]: the columns of worker i.
  void by_inputs(const std::vector<Weight>& parts, float* in, float* out) {
    team.run([&](int worker, int workers) {
      const auto i = static_cast<size_t>(worker);
      const Weight& weight = parts[i];
      Tensor row = row_of(in + worker * weight.cols, weight.cols), result = row_of(sums[i], weight.rows);
      if (kernel.prepare != nullptr) kernel.prepare(row, 0, 1, prepared[i]);
      product(weight, row, result, 0, weight.rows, prepared[i], worker);
      team.barrier();
      const int64_t begin = weight.rows * worker / workers, end = weight.rows * (worker + 1) / workers;
      for (int64_t k = begin; k < end; ++k) {
        float sum = sums[0][k];
        for (size_t other = 1; other < sums.size(); ++other) sum += sums[other][k];
        out[k] = sum;
      }
    });
  }
};

void measure(DType type, int workers, const cpu_set_t& first) {
  const cpu::Kernels kernels = cpu::choose_kernels("").value();
  const LinearKernel& kernel = kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(type)];
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  Bench bench(workers, kernel);  // its threads may use all processors, this one only the first
  sched_setaffinity(0, sizeof(first), &first);
  auto* in = reinterpret_cast<float*>(memory(1 << 16));
  auto* out = reinterpret_cast<float*>(memory(1 << 18));
  for (int i = 0; i < 1 << 14; ++i) in[i] = static_cast<float>(i % 201) * 1e-2f - 1;
  double step_outputs = 0, step_inputs = 0;
  for (const Matrix& matrix : kMatrices) {
    std::vector<Weight> whole = {packed(kernel, type, matrix.outputs, matrix.inputs)};
    std::vector<std::vector<Weight>> halves(1);
    const Weight half = packed(kernel, type, matrix.outputs, matrix.inputs / workers);
    const int64_t copies = (int64_t{160} << 20) / whole[0].bytes + 2;
    for (int64_t i = 1; i < copies; ++i) whole.push_back(copy_of(whole[0])), halves.emplace_back();
    for (auto& one : halves)
      for (int i = 0; i < workers; ++i) one.push_back(copy_of(half));
    double best[2] = {1e9, 1e9};
    size_t next = 0;
    const double start = now();
    for (int pass = 0; pass < 2000 && (pass < 10 || now() - start < 1.5); ++pass) {
      const size_t count = std::max<size_t>(1, static_cast<size_t>((int64_t{8} << 20) / whole[0].bytes));
      for (int way = 0; way < 2; ++way) {
        const double begin = now();
        for (size_t i = 0; i < count; ++i) {
          const size_t at = (next + i) % whole.size();
          way == 0 ? bench.by_outputs(whole[at], in, out) : bench.by_inputs(halves[at], in, out);
        }
        best[way] = std::min(best[way], (now() - begin) / static_cast<double>(count));
      }
      next += count;
    }
    std::printf("%-5s %5ld x %-5ld  by outputs %8.1f us  by inputs %8.1f us  %+5.1f %%\n",
                std::string(format(type).name).c_str(), matrix.outputs, matrix.inputs, best[0] * 1e6, best[1] * 1e6,
                (best[1] / best[0] - 1) * 100);
    std::fflush(stdout);
    step_outputs += best[0] * static_cast<double>(matrix.times),
        step_inputs += best[1] * static_cast<double>(matrix.times);
    for (Weight& one : whole) std::free(const_cast<std::byte*>(one.data));
    for (auto& list : halves)
      for (Weight& one : list) std::free(const_cast<std::byte*>(one.data));
    std::free(const_cast<std::byte*>(half.data));
  }
  std::printf("%-5s all products of a step  %8.2f ms  %8.2f ms  %+5.1f %%\n", std::string(format(type).name).c_str(),
              step_outputs * 1e3, step_inputs * 1e3, (step_inputs / step_outputs - 1) * 100);
  sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace

int main(int argc, char** argv) {
  const int workers = argc > 1 ? std::atoi(argv[1]) : 2;
  // Two workers that the system puts on one core for a while would spoil even the best of many.
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  std::string formats = argc > 2 ? argv[2] : "Q8_0,Q4_0,Q4_K,BF16,F16";
  for (char* name = std::strtok(formats.data(), ","); name != nullptr; name = std::strtok(nullptr, ",")) {
    const auto type = dtype_from_name(name);
    if (!type) return std::fprintf(stderr, "no such format\n"), 1;
    measure(*type, workers, first);
  }
}
