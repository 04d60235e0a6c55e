// What the backend tests share: random numbers, weights in any format, steps over a paged cache.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "backend/trace/trace.h"
#include "tensor/half.h"

namespace millrace::testing {

inline constexpr int64_t kWorkspace = int64_t{64} << 20;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float normal(float deviation = 1) { return std::normal_distribution<float>(0, deviation)(engine_); }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  std::vector<float> normals(int64_t count, float deviation = 1) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(deviation);
    return values;
  }

 private:
  std::mt19937 engine_;
};

// Rows of floats with a stride of their own, so that nothing can depend on rows being dense.
struct Rows {
  Rows(int64_t rows, int64_t cols) : storage(static_cast<size_t>(rows * (cols + 3)), NAN), count(rows), width(cols) {}
  Rows(int64_t rows, int64_t cols, Random& random, float deviation = 1) : Rows(rows, cols) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < cols; ++i) row(r)[i] = random.normal(deviation);
    }
  }
  float* row(int64_t r) { return storage.data() + r * (width + 3); }
  const float* row(int64_t r) const { return storage.data() + r * (width + 3); }
  Tensor tensor() { return slice(0, count); }
  Tensor slice(int64_t first, int64_t rows) {
    return {reinterpret_cast<std::byte*>(row(first)), DType::f32, rows, width, (width + 3) * 4};
  }

  std::vector<float> storage;
  int64_t count, width;
};

// The bytes of a random matrix in any readable format, values of about `deviation`.
inline std::vector<std::byte> random_matrix(DType type, int64_t rows, int64_t cols, Random& random,
                                            float deviation = 0.1f) {
  const Format& f = format(type);
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, rows * cols)));
  if (f.from_float != nullptr) {
    std::vector<float> values = random.normals(rows * cols, deviation);
    f.from_float(values.data(), bytes.data(), rows * cols);
    return bytes;
  }
  // A group is drawn until none of its numbers is NaN or so large that it hides all others.
  std::vector<float> values(static_cast<size_t>(f.group));
  const auto group = static_cast<size_t>(f.group_bytes);
  auto sensible = [&] {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::abs(value) <= 1e3f; });
  };
  for (size_t at = 0; at < bytes.size(); at += group) {
    do {
      for (size_t i = 0; i < group; ++i) bytes[at + i] = static_cast<std::byte>(random.integer(0, 255));
      if (f.group > 1) {  // most start with a float16 scale
        const uint16_t scale = f32_to_f16(deviation / 64 * (1 + std::abs(random.normal())));
        std::memcpy(bytes.data() + at, &scale, 2);
      }
      f.to_float(bytes.data() + at, values.data(), f.group);
    } while (!sensible());
  }
  return bytes;
}

// A backend with its ops.
struct Machine {
  explicit Machine(std::unique_ptr<Backend> made)
      : backend(std::move(made)), ops(std::move(backend->make_ops(kWorkspace)).value()) {}
  Weight upload(DType type, int64_t rows, int64_t cols, const std::vector<std::byte>& bytes,
                const std::vector<float>& bias = {}, WeightUse use = WeightUse::linear) {
    return backend->upload({type, rows, cols, bytes}, use, bias).value();
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Ops> ops;
};

inline Machine reference() { return Machine(make_reference_backend()); }
inline Machine cpu(std::string_view isa, int threads = 2, Activations activations = Activations::float32) {
  CpuOptions options;
  options.threads = threads;
  options.isa = isa;
  options.activations = activations;
  return Machine(std::move(make_cpu_backend(options)).value());
}

// Some sequences' rows, and a paged cache of one layer for them. Pages are handed out in a shuffled order.
struct Piece {
  int32_t begin, rows;  // positions of the rows of one sequence
};

struct Batch {
  Batch(std::vector<Piece> pieces, int32_t page_tokens, uint32_t seed) {
    int32_t longest = 0;
    for (const Piece& piece : pieces) longest = std::max(longest, piece.begin + piece.rows);
    stride = (longest + page_tokens - 1) / page_tokens;
    page_count = stride * static_cast<int32_t>(pieces.size());
    for (int32_t i = 0; i < page_count; ++i) pages.push_back(i);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
    first_row.push_back(0);
    for (size_t s = 0; s < pieces.size(); ++s) {
      for (int32_t i = 0; i < pieces[s].rows; ++i) {
        positions.push_back(pieces[s].begin + i);
        visible.push_back(pieces[s].begin + i + 1);
        sequence.push_back(static_cast<int32_t>(s));
      }
      first_row.push_back(static_cast<int32_t>(positions.size()));
    }
    tables = {pages.data(), stride};
  }
  Batch(const Batch&) = delete;

  Step step() const {
    Step s;
    s.rows = static_cast<int32_t>(positions.size());
    s.sequences = static_cast<int32_t>(first_row.size()) - 1;
    s.positions = positions.data();
    s.visible = visible.data();
    s.sequence = sequence.data();
    s.first_row = first_row.data();
    s.groups = {&tables, 1};
    return s;
  }

  std::vector<int32_t> positions, visible, sequence, first_row, pages;
  int32_t stride = 0, page_count = 0;
  PageTables tables;
};

struct CacheShape {
  int32_t kv_heads, k_dim, v_dim, page_tokens;
  KvForm form;
};

struct Cache {
  Cache(const CacheShape& shape, int32_t pages) {
    int64_t k = int64_t{shape.kv_heads} * shape.page_tokens * kv_bytes(shape.form.k, shape.k_dim);
    int64_t v = int64_t{shape.kv_heads} * shape.page_tokens * kv_bytes(shape.form.v, shape.v_dim);
    // NaN everywhere: whoever reads what was never written shows it.
    bytes.assign(static_cast<size_t>((k + v) * pages), std::byte{0xff});
    view = {bytes.data(), k + v, 0, k, shape.page_tokens, shape.kv_heads, shape.k_dim, shape.v_dim, shape.form, 0};
  }
  std::vector<std::byte> bytes;
  KvView view;
};

inline void expect_same_bits(const Rows& a, const Rows& b, int64_t a_first, int64_t b_first, int64_t rows,
                             const std::string& what) {
  ASSERT_EQ(a.width, b.width);
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_EQ(std::memcmp(a.row(a_first + r), b.row(b_first + r), static_cast<size_t>(a.width) * 4), 0)
        << what << ": row " << a_first + r << " of " << a.count << " against row " << b_first + r << " of " << b.count;
  }
}

// |a - b| <= tolerance * (largest |b| of the row, at least `least`), everywhere.
inline void expect_close(const Rows& a, const Rows& b, float tolerance, const std::string& what, float least = 1e-6f) {
  ASSERT_EQ(a.count, b.count);
  for (int64_t r = 0; r < a.count; ++r) {
    float largest = least;
    for (int64_t i = 0; i < a.width; ++i) largest = std::max(largest, std::abs(b.row(r)[i]));
    for (int64_t i = 0; i < a.width; ++i) {
      ASSERT_LE(std::abs(a.row(r)[i] - b.row(r)[i]), tolerance * largest)
          << what << ": row " << r << " value " << i << ": " << a.row(r)[i] << " against " << b.row(r)[i];
    }
  }
}

}  // namespace millrace::testing
