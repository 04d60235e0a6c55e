// What does it cost to add a product up in fixed segments of its inputs, as ranks that share it would have to? Build,
// after the library:
//   g++ -std=c++20 -O2 -Isrc lab/cpu_segments.cpp
//   build/release/src/{backend/libmillrace_backend,tensor/libmillrace_tensor,base/libmillrace_base}.a -lfmt -lpthread
//   a.out [format,format,... [small]]
// The two products of a layer whose inputs ranks would share out (attention's output, the way down), whole and as a sum
// of narrower products in order, each packed by itself; shapes of a 1.1B model; one thread, by the processor time it
// got. Weights rotate through copies larger than the last cache. Both ways in turn, best of many.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"

using namespace millrace;

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Product {
  const char* name;
  int64_t outputs, inputs;
  int segments;
};

// Whole groups of `unit` inputs, as even as they go.
std::vector<int64_t> cuts(const Product& p, int64_t unit) {
  std::vector<int64_t> at;
  for (int64_t s = 0; s <= p.segments; ++s) at.push_back(p.inputs / unit * s / p.segments * unit);
  return at;
}

// The whole matrix and its segments as a file has them, made once and packed many times.
struct Stored {
  std::vector<std::byte> bytes;
  int64_t cols;
};

std::vector<Stored> store(DType type, const Product& p, const std::vector<float>& values) {
  const std::vector<int64_t> at = cuts(p, std::max<int64_t>(64, format(type).group));
  auto stored = [&](int64_t begin, int64_t end) {
    const int64_t cols = end - begin;
    std::vector<float> slice;
    for (int64_t row = 0; row < p.outputs; ++row) {
      const float* from = values.data() + row * p.inputs + begin;
      slice.insert(slice.end(), from, from + cols);
    }
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, p.outputs * cols)));
    format(type).from_float(slice.data(), bytes.data(), p.outputs * cols);
    return Stored{std::move(bytes), cols};
  };
  std::vector<Stored> all = {stored(0, p.inputs)};
  for (size_t s = 0; s + 1 < at.size(); ++s) all.push_back(stored(at[s], at[s + 1]));
  return all;
}

struct Packed {
  Weight whole;
  std::vector<Weight> parts;
};

Packed pack(Backend& backend, DType type, const Product& p, const std::vector<Stored>& stored) {
  Packed packed;
  for (const Stored& each : stored) {
    const Weight weight = backend.upload({type, p.outputs, each.cols, each.bytes}, WeightUse::linear, {}).value();
    if (packed.whole)
      packed.parts.push_back(weight);
    else
      packed.whole = weight;
  }
  return packed;
}

void measure(DType type, const Product& p) {
  auto backend = make_cpu_backend({.threads = 1}).value();
  std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(p.outputs * p.inputs));
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-4f - 0.1f;
  const auto copies = static_cast<size_t>((int64_t{64} << 20) / bytes_of(type, p.outputs * p.inputs) + 1);
  const std::vector<Stored> stored = store(type, p, values);
  std::vector<Packed> weights;
  for (size_t i = 0; i < copies; ++i) weights.push_back(pack(*backend, type, p, stored));
  auto ops = std::move(backend->make_ops(int64_t{256} << 20)).value();
  Step step;
  for (int64_t rows : {1, 512}) {
    ops->begin(step);
    Tensor in = ops->scratch(rows, p.inputs), out = ops->scratch(rows, p.outputs), part = ops->scratch(rows, p.outputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < p.inputs; ++i) in.row(r)[i] = static_cast<float>(random() % 2001) * 1e-3f - 1;
    }
    auto segmented = [&](const Packed& packed) {
      int64_t begin = 0;
      for (const Weight& weight : packed.parts) {
        Tensor slice = in;
        slice.data += begin * static_cast<int64_t>(sizeof(float));
        slice.cols = weight.cols;
        ops->linear(weight, slice, begin == 0 ? out : part);
        if (begin > 0) ops->add(part, 1, out);
        begin += weight.cols;
      }
    };
    double best[2] = {1e9, 1e9};
    const int passes = rows == 1 ? 30 : 4;
    for (int pass = 0; pass < passes; ++pass) {
      for (int way = 0; way < 2; ++way) {
        const double begin = now();
        size_t products = rows == 1 ? weights.size() : 1;
        for (size_t i = 0; i < products; ++i) {
          const Packed& packed = weights[(i + static_cast<size_t>(pass)) % weights.size()];
          way == 0 ? ops->linear(packed.whole, in, out) : segmented(packed);
        }
        best[way] = std::min(best[way], (now() - begin) / static_cast<double>(products));
      }
    }
    std::printf("%-5s %-6s %5ld x %5ld in %d segments, %3ld rows: whole %9.1f us, summed %9.1f us (%+.1f %%)\n",
                std::string(format(type).name).c_str(), p.name, p.outputs, p.inputs, p.segments, rows, best[0] * 1e6,
                best[1] * 1e6, 100 * (best[1] / best[0] - 1));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** words) {
  std::string formats = count > 1 ? words[1] : "Q8_0,Q4_0,Q4_K,Q6_K,F16";
  formats += ',';
  for (size_t at = 0; at < formats.size();) {
    const size_t end = formats.find(',', at);
    const auto type = dtype_from_name(formats.substr(at, end - at));
    at = end + 1;
    if (!type) continue;
    const bool small = count > 2;  // the shapes of the shipped model instead
    measure(*type, small ? Product{"out", 384, 384, 2} : Product{"out", 2048, 2048, 2});
    measure(*type, small ? Product{"down", 384, 1024, 2} : Product{"down", 2048, 5632, 4});
  }
}
