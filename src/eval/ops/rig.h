// What the checks of operations stand on: numbers on the host, random weights of any format, and a Rig: a backend with
// its operations, whose tensors are filled and read from the host wherever they lie. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/ops.h"
#include "base/result.h"

namespace millrace {

// The same numbers from the same seed on every machine.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  int32_t below(int32_t limit) { return static_cast<int32_t>(bits() % static_cast<uint64_t>(limit)); }
  float normal(float deviation = 1);  // about normal: a sum of even ones
  std::vector<float> normals(int64_t count, float deviation = 1);

 private:
  uint64_t state_;
};

// Rows of float32 on the host, densely.
struct Numbers {
  Numbers() = default;
  Numbers(int64_t rows_, int64_t cols_, float value = 0)
      : rows(rows_), cols(cols_), all(static_cast<size_t>(rows_ * cols_), value) {}
  Numbers(int64_t rows_, int64_t cols_, Chance& chance, float deviation = 1)
      : rows(rows_), cols(cols_), all(chance.normals(rows_ * cols_, deviation)) {}
  float* row(int64_t i) { return all.data() + i * cols; }
  const float* row(int64_t i) const { return all.data() + i * cols; }
  Numbers some(int64_t first, int64_t count) const;
  Numbers picked(std::span<const int32_t> which) const;

  int64_t rows = 0, cols = 0;
  std::vector<float> all;
};

// A matrix as a file has it, random, every number finite and about `deviation` large where the format lets us choose.
struct FileMatrix {
  FileMatrix(DType type, int64_t rows, int64_t cols, Chance& chance, float deviation = 0.1f);
  HostMatrix host() const { return {type, rows, cols, bytes}; }

  DType type;
  int64_t rows, cols;
  std::vector<std::byte> bytes;
};

// Formats that weights may be in.
std::vector<DType> weight_formats();

// Some rows of one sequence in a step.
struct StepPiece {
  int32_t sequence = 0, begin = 0, rows = 0;
  int32_t sees = 0;  // positions that all of its rows see; 0: each those up to its own
};
// Which positions the rows of such a step have, in their order.
std::vector<int32_t> positions_of(std::span<const StepPiece> pieces);

class Rig {
 public:
  static constexpr int32_t kMostRows = 2048, kMostSequences = 64, kMostGroups = 4, kMostPages = 1 << 18;

  // `f16_first`: the first weight is of float16, by which some backends choose the form of their activations.
  static Result<std::unique_ptr<Rig>> open(std::unique_ptr<Backend> backend, bool f16_first = false);

  Ops& ops() { return *ops_; }
  Backend& backend() { return *backend_; }

  // Starts a step of so many rows of one sequence from its start; tensors of the step before are gone.
  void begin(int32_t rows);
  // The same with rows of several sequences; page p of sequence s is pages[s * stride + p]. Of several groups the pages
  // of one lie behind those of another.
  void begin(std::span<const StepPiece> pieces, std::span<const int32_t> pages, int32_t stride, int32_t groups = 1);
  const Step& step() const { return step_; }
  // Integers the step's operations read (ids, rows), at most as many as it has rows. Starts the step anew.
  const int32_t* integers(std::span<const int32_t> values);

  Tensor bring(const Numbers& numbers);      // a tensor of the step with these
  Tensor blank(int64_t rows, int64_t cols);  // one of NaN
  void finish();                             // does what may be held back, and waits
  Numbers read(Tensor tensor);               // waits for it
  Weight weight(const FileMatrix& matrix, std::span<const float> bias = {}, WeightUse use = WeightUse::linear);
  // A matrix for each expert; bias of all of them, or none.
  Weight experts(std::span<const FileMatrix> matrices, std::span<const float> bias = {});
  const float* vector(std::span<const float> values);
  std::byte* memory(Purpose purpose, int64_t bytes);

  // The first thing that went wrong with the backend itself, or nothing.
  const std::string& failure() const { return failure_; }

 private:
  Rig() = default;
  template <class T>
  T kept(Result<T> result, T otherwise) {
    if (result.ok()) return std::move(result).value();
    if (failure_.empty()) failure_ = result.error().message;
    return otherwise;
  }
  void note(const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Ops> ops_;
  int32_t* staged_ = nullptr;  // the step's arrays
  std::array<PageTables, kMostGroups> tables_;
  Step step_;
  std::string failure_;
};

}  // namespace millrace
