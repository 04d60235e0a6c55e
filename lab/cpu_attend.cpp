// Attention of the CPU backend: decoding one row at several depths, and a prefill chunk. Build, after the library:
//   g++ -std=c++20 -O2 -Isrc lab/cpu_attend.cpp
//     build/release/src/{backend/libmillrace_backend,tensor/libmillrace_tensor,base/libmillrace_base}.a -lfmt -lpthread
//   a.out [threads] [isa] [heads kv_heads head_dim] [format] [depth rows]
// Layers rotate through caches larger than the last cache of the machine, and a page has all layers, as the engine
// keeps them. Best of many passes; with one thread, processor time. LAB_PAGE: tokens of a page, 16 unless told.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"

using namespace millrace;

namespace {

bool one_thread = false;
double wall() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double now() {
  if (!one_thread) return wall();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Shape {
  int32_t heads = 9, kv_heads = 3, dim = 64;
};

void measure(Backend& backend, DType type, const Shape& shape, int32_t depth, int32_t rows) {
  const int32_t kPage = std::getenv("LAB_PAGE") != nullptr ? std::atoi(std::getenv("LAB_PAGE")) : 16;
  int32_t pages = (depth + rows + kPage - 1) / kPage;
  int64_t page_bytes = bytes_of(type, int64_t{2} * shape.kv_heads * kPage * shape.dim);
  int64_t span = std::getenv("LAB_NEAR") != nullptr ? 1 : int64_t{96} << 20;  // LAB_NEAR: one layer over and over
  int64_t layers = std::max<int64_t>(1, span / (page_bytes * pages));
  std::span<std::byte> store(backend.allocate(Purpose::kv, layers * pages * page_bytes).value(),
                             static_cast<size_t>(layers * pages * page_bytes));
  std::mt19937 random(1);
  std::vector<float> values(4096);
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-3f - 1;
  for (size_t at = 0; at < store.size();) {
    int64_t count = std::min<int64_t>(4096, static_cast<int64_t>(store.size() - at) / bytes_of(type, 1));
    format(type).from_float(values.data(), store.data() + at, count);
    at += static_cast<size_t>(bytes_of(type, count));
  }
  std::vector<int32_t> table, positions, visible, sequence(static_cast<size_t>(rows), 0);
  for (int32_t i = 0; i < pages; ++i) table.push_back(i);
  if (std::getenv("LAB_MIXED") != nullptr) std::shuffle(table.begin(), table.end(), random);
  for (int32_t r = 0; r < rows; ++r) positions.push_back(depth + r), visible.push_back(depth + r + 1);
  std::vector<int32_t> first_row = {0, rows};
  PageTables tables{table.data(), pages};
  Step step;
  step.rows = rows;
  step.sequences = 1;
  step.positions = positions.data();
  step.visible = visible.data();
  step.sequence = sequence.data();
  step.first_row = first_row.data();
  step.groups = {&tables, 1};
  auto ops = std::move(backend.make_ops(int64_t{64} << 20)).value();
  ops->begin(step);
  Tensor q = ops->scratch(rows, shape.heads * shape.dim), out = ops->scratch(rows, shape.heads * shape.dim);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < q.cols; ++i) q.row(r)[i] = static_cast<float>(random() % 2001) * 1e-3f - 1;
  }
  Attention attention;
  attention.heads = shape.heads;
  attention.scale = 0.125f;
  double best = 1e9, start = wall();
  for (int pass = 0; pass < 400 && (pass < 3 || wall() - start < 1.0); ++pass) {
    KvView kv{store.data() + pass % layers * page_bytes,
              layers * page_bytes,
              0,
              page_bytes / 2,
              kPage,
              shape.kv_heads,
              shape.dim,
              shape.dim,
              type,
              0};
    double begin = now();
    ops->attend(attention, q, kv, out);
    best = std::min(best, now() - begin);
  }
  double seen = static_cast<double>(rows) * (depth + (rows + 1) / 2.0);
  std::printf("%-4s heads %d/%d x %d  depth %6d  rows %4d  %9.1f us  %6.1f GB/s of cache  %6.1f GFLOP/s\n",
              std::string(format(type).name).c_str(), shape.heads, shape.kv_heads, shape.dim, depth, rows, best * 1e6,
              static_cast<double>(page_bytes * pages) / best * 1e-9, seen * shape.heads * shape.dim * 4 / best * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string isa = argc > 2 ? argv[2] : "";
  Shape shape;
  if (argc > 5) shape = {std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5])};
  one_thread = threads == 1;
  for (DType type : {DType::bf16, DType::f16, DType::f32}) {
    if (argc > 6 && dtype_from_name(argv[6]) != type) continue;
    auto backend = make_cpu_backend({.threads = threads, .isa = isa});
    if (!backend.ok()) return std::fprintf(stderr, "%s\n", backend.error().message.c_str()), 1;
    if (argc > 8) {
      measure(**backend, type, shape, std::atoi(argv[7]), std::atoi(argv[8]));
      continue;
    }
    for (int32_t depth : {512, 4096, 16384}) measure(**backend, type, shape, depth, 1);
    measure(**backend, type, shape, 0, 512);
    measure(**backend, type, shape, 1536, 512);
  }
}
