#include "shrink/affine.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int kTries = 24;
constexpr double kNarrower = 0.025;  // of the range, each time

float stored(DType type, double scale) {
  const Format& f = format(type);
  std::byte bytes[4];
  float least = type == DType::f16 ? 0x1p-24f : 0x1p-126f;  // never zero: codes would say nothing
  float number = std::clamp(static_cast<float>(scale), least, type == DType::f16 ? 65504.0f : 1e30f);
  f.from_float(&number, bytes, 1);
  f.to_float(bytes, &number, 1);
  return number;
}

class Fit {
 public:
  Fit(const CodeGrid& grid, const float* numbers, const float* importance, int64_t count)
      : grid_(grid), numbers_(numbers), importance_(importance), count_(count) {}

  // The error with this scale, and again with the scale that suits the codes it gave best.
  void attempt(double scale, int zero) {
    const float first = stored(grid_.scale_type, scale);
    double products = 0, squares = 0;
    weigh(first, zero, &products, &squares);
    if (squares > 0 && products > 0) weigh(stored(grid_.scale_type, products / squares), zero, nullptr, nullptr);
  }
  GroupScale best() const { return best_; }

 private:
  void weigh(float scale, int zero, double* products, double* squares) {
    double error = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const float weight = importance_ != nullptr ? importance_[i] : 1.0f;
      const auto code = static_cast<float>(
          std::clamp(static_cast<int>(std::nearbyint(std::clamp(numbers_[i] / scale, -1000.0f, 1000.0f))), -zero,
                     grid_.highest() - zero));
      const double lost = static_cast<double>(numbers_[i]) - static_cast<double>(code * scale);
      error += static_cast<double>(weight) * lost * lost;
      if (products == nullptr) continue;
      *products += static_cast<double>(weight) * static_cast<double>(code) * static_cast<double>(numbers_[i]);
      *squares += static_cast<double>(weight) * static_cast<double>(code) * static_cast<double>(code);
    }
    if (least_ >= 0 && !(error < least_)) return;
    least_ = error;
    best_ = {scale, zero};
  }

  const CodeGrid& grid_;
  const float* numbers_;
  const float* importance_;
  int64_t count_;
  double least_ = -1;
  GroupScale best_;
};

// Keeps codes and scales of groups as GPTQ goes over the columns.
class AffineCoder final : public GroupCoder {
 public:
  explicit AffineCoder(GroupedCodes& out) : out_(out), whole_(out.grid.group_of(out.cols)), group_(whole_) {
    for (int64_t parts = 2; group_ > 256; ++parts) {
      if (whole_ % parts == 0) group_ = whole_ / parts;
    }
  }
  int64_t group() const override { return group_; }

  void enter(int64_t row, int64_t from, const float* numbers, const float* importance, Grid& grid) override {
    const auto at = static_cast<size_t>(row * out_.groups() + from / whole_);
    if (from % whole_ == 0) {
      const GroupScale chosen = choose_scale(out_.grid, numbers, importance, whole_);
      out_.scales[at] = chosen.scale;
      out_.zeros[at] = static_cast<uint8_t>(chosen.zero);
    }
    grid.levels = nullptr;
    grid.low = -int{out_.zeros[at]};
    grid.high = out_.grid.highest() - int{out_.zeros[at]};
    std::fill(grid.step, grid.step + group_, out_.scales[at]);
    std::fill(grid.offset, grid.offset + group_, 0.0f);
  }
  void put(int64_t row, int64_t from, const int8_t* codes) override {
    const int zero = out_.zeros[static_cast<size_t>(row * out_.groups() + from / whole_)];
    for (int64_t i = 0; i < group_; ++i)
      out_.codes[static_cast<size_t>(row * out_.cols + from + i)] = static_cast<uint8_t>(codes[i] + zero);
  }

 private:
  GroupedCodes& out_;
  int64_t whole_, group_;  // that share a scale, and that are entered at once
};

GroupedCodes empty_codes(const CodeGrid& grid, int64_t rows, int64_t cols) {
  CHECK(cols % grid.group_of(cols) == 0 && (grid.bits < 8 || grid.symmetric), "{} inputs, {} bits", cols, grid.bits);
  GroupedCodes out = {.grid = grid, .rows = rows, .cols = cols};
  out.codes.resize(static_cast<size_t>(rows * cols));
  out.scales.resize(static_cast<size_t>(rows * out.groups()));
  out.zeros.resize(out.scales.size());
  return out;
}

}  // namespace

GroupScale choose_scale(const CodeGrid& grid, const float* numbers, const float* importance, int64_t count) {
  double low = 0, high = 0, weights = 0;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, static_cast<double>(numbers[i])), high = std::max(high, static_cast<double>(numbers[i]));
    weights += importance != nullptr ? static_cast<double>(importance[i]) : 1.0;
  }
  Fit fit(grid, numbers, weights > 0 ? importance : nullptr, count);
  const double most = std::max(-low, high);
  for (int i = 0; i < kTries; ++i) {
    const double share = 1 - kNarrower * i;
    if (grid.symmetric) {
      fit.attempt(most * share / (grid.middle() - 0.5), grid.middle());
    } else {
      const double scale = (high - low) * share / grid.highest();
      const double zero = scale > 0 ? -low * share / scale : 0;
      fit.attempt(scale, std::clamp(static_cast<int>(std::nearbyint(zero)), grid.least_zero, grid.highest()));
    }
  }
  return fit.best();
}

GroupedCodes round_to_codes(Team& team, const CodeGrid& grid, std::span<const float> weights, int64_t rows,
                            int64_t cols, std::span<const float> importance) {
  GroupedCodes out = empty_codes(grid, rows, cols);
  AffineCoder coder(out);
  team.each(rows, [&](int64_t r, int) {
    Grid places;
    int8_t codes[256];
    const std::vector<float> alike(importance.empty() ? static_cast<size_t>(cols) : 0, 1.0f);
    const float* count = importance.empty() ? alike.data() : importance.data();
    for (int64_t from = 0; from < cols; from += coder.group()) {
      const float* numbers = &weights[static_cast<size_t>(r * cols + from)];
      coder.enter(r, from, numbers, count + from, places);
      for (int64_t i = 0; i < coder.group(); ++i)
        codes[i] = static_cast<int8_t>(nearest_code(places, static_cast<int>(i), numbers[i]));
      coder.put(r, from, codes);
    }
  });
  return out;
}

GroupedCodes gptq_codes(Team& team, const CodeGrid& grid, std::span<const float> weights, int64_t rows,
                        const Curvature& curvature) {
  GroupedCodes out = empty_codes(grid, rows, curvature.cols);
  AffineCoder coder(out);
  gptq(team, weights, rows, curvature, coder, true);
  return out;
}

}  // namespace millrace
