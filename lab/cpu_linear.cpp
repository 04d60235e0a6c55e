// Products of the CPU backend by format, shape and number of rows. Build, after the library:
//   g++ -std=c++20 -O2 -Isrc lab/cpu_linear.cpp
//   build/release/src/{backend/libmillrace_backend,tensor/libmillrace_tensor,base/libmillrace_base}.a -lfmt -lpthread
//   a.out [threads] [isa] [format,format,...] [outputs inputs [rows]]
// Weights rotate through copies larger than the last cache, as the layers of a model do. Best of many passes: the
// machine may be shared, and a preempted pass says nothing about a kernel.
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"

using namespace millrace;

namespace {

double wall() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// With one thread, the processor time it got: other people's time slices do not count.
bool one_thread = false;
double now() {
  if (!one_thread) return wall();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Options {
  int threads = 2;
  std::string isa, formats = "Q8_0,Q4_0,Q4_K,Q5_K,Q6_K,F16,BF16,F32";
  int64_t outputs = 2048, inputs = 2048, rows = 0;
};

void measure(Backend& backend, DType type, const Options& options) {
  int64_t outputs = options.outputs, inputs = options.inputs;
  std::vector<float> values(static_cast<size_t>(outputs * inputs));
  std::mt19937 random(1);
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-4f - 0.1f;
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, outputs * inputs)));
  format(type).from_float(values.data(), bytes.data(), outputs * inputs);
  int64_t copies = (int64_t{160} << 20) / static_cast<int64_t>(bytes.size()) + 1;
  std::vector<Weight> weights;
  for (int64_t i = 0; i < copies; ++i) {
    weights.push_back(backend.upload({type, outputs, inputs, bytes}, WeightUse::linear, {}).value());
  }
  auto ops = std::move(backend.make_ops(int64_t{256} << 20)).value();
  Step step;
  for (int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
    if (options.rows > 0 && rows != options.rows) continue;
    ops->begin(step);
    Tensor in = ops->scratch(rows, inputs), out = ops->scratch(rows, outputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < inputs; ++i) in.row(r)[i] = static_cast<float>(random() % 2001) * 1e-3f - 1;
    }
    double best = 1e9, start = wall();
    for (int pass = 0; pass < 400 && (pass < 5 || wall() - start < 0.4); ++pass) {
      // A few products at a time: long enough for the clock, short enough to slip between other people's time slices.
      int64_t count = std::max<int64_t>(1, std::min<int64_t>(copies, 24 / rows));
      double begin = now();
      for (int64_t i = 0; i < count; ++i)
        ops->linear(weights[static_cast<size_t>((pass * count + i) % copies)], in, out);
      best = std::min(best, (now() - begin) / static_cast<double>(count));
    }
    double gbs = static_cast<double>(weights[0].bytes) / best * 1e-9;
    double gops = 2.0 * static_cast<double>(rows * outputs * inputs) / best * 1e-9;
    std::printf("%-6s %5ld x %-5ld rows %4ld  %9.1f us  %6.1f GB/s of weights  %7.1f GOP/s\n",
                std::string(format(type).name).c_str(), outputs, inputs, rows, best * 1e6, gbs, gops);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.threads = std::atoi(argv[1]);
  one_thread = options.threads == 1;
  if (argc > 2) options.isa = argv[2];
  if (argc > 3) options.formats = argv[3];
  if (argc > 5) options.outputs = std::atol(argv[4]), options.inputs = std::atol(argv[5]);
  if (argc > 6) options.rows = std::atol(argv[6]);
  for (char* name = std::strtok(options.formats.data(), ","); name != nullptr; name = std::strtok(nullptr, ",")) {
    auto backend = make_cpu_backend({.threads = options.threads, .isa = options.isa});
    auto type = dtype_from_name(name);
    if (!backend.ok() || !type) return std::fprintf(stderr, "no such instruction set or format\n"), 1;
    measure(**backend, *type, options);
  }
}
