#include "shrink/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shrink/solve.h"
#include "shrink/tiles.h"
#include "tensor/importance.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

constexpr int64_t kTogether = 32;  // rows of a task: U is read once for all of them
constexpr int64_t kColumns = 128;  // whose errors are passed on at once

// Rows [first, first + count) of a matrix on their way through the columns.
class Rows {
 public:
  Rows(std::span<const float> weights, int64_t first, int64_t count, const Curvature& curvature, GroupCoder& coder,
       bool compensate)
      : curvature_(curvature),
        coder_(coder),
        compensate_(compensate),
        first_(first),
        count_(count),
        cols_(curvature.cols),
        group_(coder.group()),
        width_(group_ < kColumns ? kColumns / group_ * group_ : group_),
        numbers_(weights.begin() + first * cols_, weights.begin() + (first + count) * cols_) {
    for (int64_t c = 0; c < cols_; ++c) {
      if (!curvature_.dead[static_cast<size_t>(c)]) continue;
      for (int64_t r = 0; r < count_; ++r) number(r, c) = 0;
    }
  }

  void run() {
    const int64_t width = width_;
    for (int64_t first = 0; first < cols_; first += width) {
      const int64_t end = std::min(cols_, first + width);
      errors_.assign(static_cast<size_t>(count_ * width), 0);
      for (int64_t from = first; from < end; from += group_) {
        for (int64_t r = 0; r < count_; ++r) run_group(r, from, first, end);
      }
      pass_on(first, end, width);
    }
  }

 private:
  float& number(int64_t r, int64_t c) { return numbers_[static_cast<size_t>(r * cols_ + c)]; }

  // One group of one row; what it loses goes to the columns up to `end` at once.
  void run_group(int64_t r, int64_t from, int64_t first, int64_t end) {
    Grid& grid = grid_;
    coder_.enter(first_ + r, from, &number(r, from), &curvature_.importance[static_cast<size_t>(from)], grid);
    int8_t codes[256];
    float* row = &number(r, 0);
    const int64_t width = width_;
    for (int64_t i = 0; i < group_; ++i) {
      const int64_t j = from + i;
      const int code = nearest_code(grid, static_cast<int>(i), row[j]);
      codes[i] = static_cast<int8_t>(code);
      if (!compensate_) continue;
      const float* u = &curvature_.upper[static_cast<size_t>(j * cols_)];
      const float lost = (row[j] - value_of(grid, static_cast<int>(i), code)) / u[j];
      errors_[static_cast<size_t>(r * width + j - first)] = lost;
      for (int64_t k = j + 1; k < end; ++k) row[k] -= lost * u[k];
    }
    coder_.put(first_ + r, from, codes);
  }

  // What these columns lost, to all after them, column by column.
  void pass_on(int64_t first, int64_t end, int64_t width) {
    if (!compensate_) return;
    constexpr int64_t kAcross = kTileCols<float>;
    float tile[kTileRows * kAcross] = {};
    for (int64_t k = end; k < cols_; k += kAcross) {
      const int64_t wide = std::min(kAcross, cols_ - k);
      for (int64_t r = 0; r < count_; r += kTileRows) {
        const int64_t tall = std::min(kTileRows, count_ - r);
        for (int64_t t = 0; t < tall; ++t) {
          for (int64_t w = 0; w < wide; ++w) tile[t * kAcross + w] = -number(r + t, k + w);
        }
        add_tile<float>({&errors_[static_cast<size_t>(r * width)], width, 1,
                         &curvature_.upper[static_cast<size_t>(first * cols_ + k)], cols_, end - first},
                        tall, wide, tile);
        for (int64_t t = 0; t < tall; ++t) {
          for (int64_t w = 0; w < wide; ++w) number(r + t, k + w) = -tile[t * kAcross + w];
        }
      }
    }
  }

  const Curvature& curvature_;
  GroupCoder& coder_;
  bool compensate_;
  int64_t first_, count_, cols_, group_;
  int64_t width_;  // whole groups
  std::vector<float> numbers_, errors_;
  Grid grid_;
};

// Groups of a format of GGUF files.
class FormatCoder final : public GroupCoder {
 public:
  FormatCoder(DType type, int64_t cols, std::byte* out)
      : type_(type), how_(grid_format(type)), cols_(cols), group_(format(type).group), out_(out) {}

  int64_t group() const override { return group_; }
  void enter(int64_t row, int64_t from, const float* numbers, const float* importance, Grid& grid) override {
    from_important(type_)(numbers, importance, place(row, from), group_);
    how_.grid(place(row, from), grid);
  }
  void put(int64_t row, int64_t from, const int8_t* codes) override { how_.put_codes(codes, place(row, from)); }

 private:
  std::byte* place(int64_t row, int64_t from) const { return out_ + bytes_of(type_, row * cols_ + from); }

  DType type_;
  GridFormat how_;
  int64_t cols_, group_;
  std::byte* out_;
};

}  // namespace

int64_t Curvature::bytes(int64_t cols) {
  return cols * cols * static_cast<int64_t>(2 * sizeof(double) + sizeof(float));
}

Result<Curvature> Curvature::make(Team& team, std::span<const double> products, int64_t cols, int64_t rows,
                                  double ridge) {
  Curvature out;
  out.cols = cols;
  out.squares.resize(static_cast<size_t>(cols));
  out.importance.resize(static_cast<size_t>(cols));
  out.dead.resize(static_cast<size_t>(cols));
  const auto n = static_cast<size_t>(cols);
  const double scale = 1 / static_cast<double>(std::max<int64_t>(rows, 1));
  double mean = 0;
  for (size_t j = 0; j < n; ++j) {
    const double square = products[j * n + j] * scale;
    if (!std::isfinite(square)) return error(Code::corrupt, "sums of inputs are not finite");
    out.squares[j] = static_cast<float>(square);
    out.dead[j] = !(square > 0);
    mean += square / static_cast<double>(cols);
  }
  std::vector<double> turned(n * n), inverse(n * n);
  for (double share = ridge; share <= 10; share *= 10) {
    // Rows and columns are taken from last to first: then the inverse of the lower factor is the upper one wanted.
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) turned[i * n + j] = products[(n - 1 - i) * n + (n - 1 - j)] * scale;
      turned[i * n + i] += out.dead[n - 1 - i] ? std::max(mean, 1e-30) : share * mean;
    }
    if (!cholesky(team, turned.data(), cols)) continue;
    invert_lower(team, turned.data(), cols, inverse.data());
    out.upper.resize(n * n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j)
        out.upper[i * n + j] = j < i ? 0.0f : static_cast<float>(inverse[(n - 1 - i) * n + (n - 1 - j)]);
      const double u = inverse[(n - 1 - i) * n + (n - 1 - i)];
      out.importance[i] = out.dead[i] ? 0.0f : static_cast<float>(1 / (u * u));
    }
    out.ridge = share;
    return out;
  }
  return error(Code::corrupt, "inputs of {} columns have no curvature that can be inverted", cols);
}

Result<std::vector<std::byte>> gptq(Team& team, std::span<const float> weights, int64_t rows,
                                    const Curvature& curvature, const GptqOptions& options) {
  const Format& f = format(options.type);
  const int64_t cols = curvature.cols;
  if (grid_format(options.type).grid == nullptr)
    return error(Code::unsupported, "codes of {} cannot be chosen one by one", f.name);
  if (cols % f.group != 0)
    return error(Code::invalid, "rows of {} numbers cannot be {}: expected a multiple of {}", cols, f.name, f.group);
  std::vector<std::byte> out(static_cast<size_t>(bytes_of(options.type, rows * cols)));
  FormatCoder coder(options.type, cols, out.data());
  gptq(team, weights, rows, curvature, coder, options.compensate);
  return out;
}

void gptq(Team& team, std::span<const float> weights, int64_t rows, const Curvature& curvature, GroupCoder& coder,
          bool compensate) {
  team.each((rows + kTogether - 1) / kTogether, [&](int64_t task, int) {
    const int64_t first = task * kTogether;
    Rows(weights, first, std::min(kTogether, rows - first), curvature, coder, compensate).run();
  });
}

double output_error(Team& team, std::span<const float> weights, std::span<const float> quantised, int64_t rows,
                    std::span<const double> products, int64_t cols, int64_t tokens) {
  std::vector<double> errors(static_cast<size_t>(rows));
  const auto n = static_cast<size_t>(cols);
  team.each(rows, [&](int64_t r, int) {
    std::vector<double> lost(n);
    for (size_t c = 0; c < n; ++c) {
      const size_t at = static_cast<size_t>(r) * n + c;
      lost[c] = static_cast<double>(weights[at]) - static_cast<double>(quantised[at]);
    }
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      double part = 0;
      for (size_t j = 0; j < n; ++j) part += products[i * n + j] * lost[j];
      sum += lost[i] * part;
    }
    errors[static_cast<size_t>(r)] = sum;
  });
  double sum = 0;
  for (double each : errors) sum += each;
  return sum / static_cast<double>(std::max<int64_t>(tokens, 1));
}

}  // namespace millrace
