#include "eval/ops/rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int64_t kWorkspace = int64_t{256} << 20;
// Of a random weight, in deviations. Scales of any size would make sums of hundreds, whose rounding is larger than
// what a gate with limits leaves of them; and one number would hide all others, with whatever its terms cancel.
constexpr float kLargest = 8, kLeast = 0.5f;

// Places of the step's arrays among the staged integers.
enum Place : int64_t {
  kTokens = 0,
  kPositions = kTokens + Rig::kMostRows,
  kVisible = kPositions + Rig::kMostRows,
  kSequence = kVisible + Rig::kMostRows,
  kIntegers = kSequence + Rig::kMostRows,
  kFirstRow = kIntegers + Rig::kMostRows,
  kPages = kFirstRow + Rig::kMostSequences + 16,
  kStaged = kPages + Rig::kMostPages
};

// Of a group: none too large, and the largest not too small. Not a number is never sensible.
bool sensible(std::span<const float> values, float deviation) {
  float largest = 0;
  for (const float value : values) {
    if (!(std::abs(value) <= kLargest * deviation)) return false;
    largest = std::max(largest, std::abs(value));
  }
  return largest >= kLeast * deviation;
}

}  // namespace

uint64_t Chance::bits() {
  uint64_t x = state_ += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

float Chance::normal(float deviation) {
  const uint64_t some = bits();
  float sum = 0;  // of four even numbers from -0.5 to 0.5
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(some >> (16 * i) & 0xFFFF) / 65536 - 0.5f;
  return sum * 1.7320508f * deviation;
}

std::vector<float> Chance::normals(int64_t count, float deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(deviation);
  return values;
}

Numbers Numbers::some(int64_t first, int64_t count) const {
  Numbers part(count, cols);
  std::copy_n(row(first), count * cols, part.all.data());
  return part;
}

Numbers Numbers::picked(std::span<const int32_t> which) const {
  Numbers part(static_cast<int64_t>(which.size()), cols);
  for (size_t i = 0; i < which.size(); ++i) std::copy_n(row(which[i]), cols, part.row(static_cast<int64_t>(i)));
  return part;
}

FileMatrix::FileMatrix(DType type_, int64_t rows_, int64_t cols_, Chance& chance, float deviation)
    : type(type_), rows(rows_), cols(cols_), bytes(static_cast<size_t>(bytes_of(type_, rows_ * cols_))) {
  const Format& f = format(type);
  if (f.from_float != nullptr) {
    const std::vector<float> values = chance.normals(rows * cols, deviation);
    f.from_float(values.data(), bytes.data(), rows * cols);
    return;
  }
  std::vector<float> values(static_cast<size_t>(f.group));
  const auto group = static_cast<size_t>(f.group_bytes);
  for (size_t at = 0; at < bytes.size(); at += group) {
    do {
      for (size_t i = 0; i < group; ++i) bytes[at + i] = static_cast<std::byte>(chance.bits());
      f.to_float(bytes.data() + at, values.data(), f.group);
    } while (!sensible(values, deviation));
  }
}

std::vector<int32_t> positions_of(std::span<const StepPiece> pieces) {
  std::vector<int32_t> positions;
  for (const StepPiece& piece : pieces)
    for (int32_t i = 0; i < piece.rows; ++i) positions.push_back(piece.begin + i);
  return positions;
}

std::vector<DType> weight_formats() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i) {
    const DType type = static_cast<DType>(i);
    const bool number = type == DType::f32 || type == DType::f16 || type == DType::bf16 || type == DType::f8_e4m3 ||
                        type == DType::f8_e5m2;
    if (format(type).readable() && (format(type).group > 1 || number)) types.push_back(type);
  }
  return types;
}

Result<std::unique_ptr<Rig>> Rig::open(std::unique_ptr<Backend> backend, bool f16_first) {
  std::unique_ptr<Rig> rig(new Rig);
  rig->backend_ = std::move(backend);
  Chance chance(1);
  TRY(Weight first, rig->backend_->upload(FileMatrix(f16_first ? DType::f16 : DType::bf16, 16, 64, chance).host(),
                                          WeightUse::linear, {}));
  static_cast<void>(first);
  TRY(std::byte * staged, rig->backend_->allocate(Purpose::staging, kStaged * 4));
  rig->staged_ = reinterpret_cast<int32_t*>(staged);
  TRY(rig->ops_, rig->backend_->make_ops(kWorkspace));
  return rig;
}

void Rig::begin(int32_t rows) {
  const StepPiece whole = {0, 0, rows};
  const int32_t page = 0;
  begin({&whole, 1}, {&page, 1}, 1);
}

void Rig::begin(std::span<const StepPiece> pieces, std::span<const int32_t> pages, int32_t stride, int32_t groups) {
  finish();  // the arrays may still be on their way
  int32_t row = 0, number = 0;
  for (const StepPiece& piece : pieces) row += piece.rows;
  const auto count = static_cast<int32_t>(pieces.size());
  CHECK(row <= kMostRows && count <= kMostSequences && groups <= kMostGroups &&
            int64_t{groups} * count * stride <= kMostPages,
        "{} rows of {} pieces with {} pages in {} groups", row, count, stride, groups);
  row = 0;
  for (const StepPiece& piece : pieces) {
    staged_[kFirstRow + number] = row;
    for (int32_t i = 0; i < piece.rows; ++i, ++row) {
      staged_[kTokens + row] = 0;
      staged_[kPositions + row] = piece.begin + i;
      staged_[kVisible + row] = piece.sees > 0 ? piece.sees : piece.begin + i + 1;
      staged_[kSequence + row] = number;
    }
    ++number;
  }
  staged_[kFirstRow + number] = row;
  int32_t* table = staged_ + kPages;
  for (int32_t group = 0; group < groups; ++group) {
    const std::span<const int32_t> own =
        pages.subspan(pages.size() / static_cast<size_t>(groups) * static_cast<size_t>(group));
    tables_[static_cast<size_t>(group)] = {table, stride};
    for (const StepPiece& piece : pieces) table = std::copy_n(own.begin() + piece.sequence * stride, stride, table);
  }
  step_ = {.rows = row,
           .sequences = number,
           .wanted = 0,  // so that no step is recorded
           .tokens = staged_ + kTokens,
           .positions = staged_ + kPositions,
           .visible = staged_ + kVisible,
           .sequence = staged_ + kSequence,
           .first_row = staged_ + kFirstRow,
           .wanted_rows = staged_ + kTokens,
           .groups = {tables_.data(), static_cast<size_t>(groups)}};
  ops_->begin(step_);
}

const int32_t* Rig::integers(std::span<const int32_t> values) {
  CHECK(static_cast<int32_t>(values.size()) <= step_.rows, "{} integers in a step of {}", values.size(), step_.rows);
  // They travel with the tokens of a step, which nothing else here reads.
  std::copy(values.begin(), values.end(), staged_ + kTokens);
  ops_->begin(step_);
  return staged_ + kTokens;
}

Tensor Rig::bring(const Numbers& numbers) {
  const Tensor tensor = ops_->scratch(numbers.rows, numbers.cols);
  std::vector<std::byte> rows(static_cast<size_t>(numbers.rows * tensor.stride), std::byte{0xff});
  for (int64_t i = 0; i < numbers.rows; ++i)
    std::memcpy(rows.data() + i * tensor.stride, numbers.row(i), static_cast<size_t>(numbers.cols) * sizeof(float));
  // The last row may end where its numbers do.
  const int64_t bytes = numbers.rows == 0 ? 0 : (numbers.rows - 1) * tensor.stride + numbers.cols * 4;
  backend_->copy(tensor.data, rows.data(), bytes);
  return tensor;
}

Tensor Rig::blank(int64_t rows, int64_t cols) {
  return bring(Numbers(rows, cols, std::numeric_limits<float>::quiet_NaN()));
}

void Rig::finish() { note(ops_->fetch({}, nullptr, nullptr)); }

Numbers Rig::read(Tensor tensor) {
  finish();
  Numbers numbers(tensor.rows, tensor.cols);
  // In whatever form the numbers lie, adding them to zeros gives them as float32.
  const Tensor plain = bring(numbers);
  ops_->add(tensor, 1, plain);
  note(ops_->fetch(plain, numbers.all.data(), nullptr));
  return numbers;
}

Weight Rig::weight(const FileMatrix& matrix, std::span<const float> bias, WeightUse use) {
  return kept(backend_->upload(matrix.host(), use, bias), Weight{});
}

Weight Rig::experts(std::span<const FileMatrix> matrices, std::span<const float> bias) {
  const FileMatrix& one = matrices.front();
  const HostExperts host = {
      .experts = static_cast<int64_t>(matrices.size()),
      .type = one.type,
      .rows = one.rows,
      .cols = one.cols,
      .part = [&](int64_t e) -> Result<HostMatrix> { return matrices[static_cast<size_t>(e)].host(); }};
  return kept(backend_->upload_experts(host, bias), Weight{});
}

const float* Rig::vector(std::span<const float> values) {
  return kept<const float*>(backend_->upload_vector(values), nullptr);
}

std::byte* Rig::memory(Purpose purpose, int64_t bytes) {
  return kept<std::byte*>(backend_->allocate(purpose, bytes), nullptr);
}

}  // namespace millrace
