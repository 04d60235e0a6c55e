// GPTQ: codes chosen column by column, each column's error passed on to the columns that are still to come, by what
// the inputs have in common. Scales are chosen when a group is entered, from the numbers as they are then, and count an
// error as much as it would cost once the columns after it have made good what they can. Results are the same for any
// number of workers. One thread, with a team.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "base/team.h"
#include "tensor/dtype.h"
#include "tensor/importance.h"

namespace millrace {

// What a product's inputs have in common, ready for use: H = mean x x^T + ridge * mean of its diagonal, and the upper U
// with U^T U = H^-1.
struct Curvature {
  int64_t cols = 0;
  double ridge = 0;               // that was needed
  std::vector<float> upper;       // [cols, cols]
  std::vector<float> importance;  // [cols] 1 / U_jj^2: what an error costs that later columns cannot make good
  std::vector<float> squares;     // [cols] H_jj without the ridge
  std::vector<bool> dead;         // inputs that were always zero

  static int64_t bytes(int64_t cols);  // that making one takes at most, beside the sums
  // `products` are sums of x x^T over `rows` rows, whole (not the upper half alone).
  static Result<Curvature> make(Team& team, std::span<const double> products, int64_t cols, int64_t rows, double ridge);
};

// Chooses the scales of a group of columns when it is entered, and keeps the codes that were chosen. Rows are taken by
// several threads, each row by one.
class GroupCoder {
 public:
  virtual ~GroupCoder() = default;
  virtual int64_t group() const = 0;  // columns that are entered at once, at most 256; they divide the matrix's
  // `numbers` and `importance` are the row's from column `from` on, as they are now, to its end.
  virtual void enter(int64_t row, int64_t from, const float* numbers, const float* importance, Grid& grid) = 0;
  virtual void put(int64_t row, int64_t from, const int8_t* codes) = 0;
};
// Codes of a matrix [rows, cols]; without `compensate` the nearest ones, with the same scales.
void gptq(Team& team, std::span<const float> weights, int64_t rows, const Curvature& curvature, GroupCoder& coder,
          bool compensate);

struct GptqOptions {
  DType type = DType::q4_k;
  bool compensate = true;  // false: nearest codes, with the same scales
};

// A matrix [rows, cols] in that format. Refused where the format has no grid or rows do not fill its groups.
Result<std::vector<std::byte>> gptq(Team& team, std::span<const float> weights, int64_t rows,
                                    const Curvature& curvature, const GptqOptions& options);

// The sum over rows of e H e^T, where e is what a matrix lost: what its product's outputs lost, squared, a token.
double output_error(Team& team, std::span<const float> weights, std::span<const float> quantised, int64_t rows,
                    std::span<const double> products, int64_t cols, int64_t tokens);

}  // namespace millrace
