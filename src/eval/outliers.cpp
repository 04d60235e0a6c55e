#include "eval/outliers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/ops/rig.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// Rows times the transpose of a matrix, in float64.
std::vector<double> product(const Numbers& in, const Numbers& matrix) {
  std::vector<double> out;
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t n = 0; n < matrix.rows; ++n) {
      double sum = 0;
      for (int64_t i = 0; i < in.cols; ++i) sum += static_cast<double>(in.row(r)[i]) * matrix.row(n)[i];
      out.push_back(sum);
    }
  }
  return out;
}

// Some columns alone, or all but those.
Numbers with_columns(Numbers numbers, const std::vector<int32_t>& columns, bool those) {
  std::vector<bool> named(static_cast<size_t>(numbers.cols));
  for (const int32_t column : columns) named[static_cast<size_t>(column)] = true;
  for (int64_t r = 0; r < numbers.rows; ++r) {
    for (int64_t i = 0; i < numbers.cols; ++i)
      if (named[static_cast<size_t>(i)] != those) numbers.row(r)[i] = 0;
  }
  return numbers;
}

// As they are after rounding to eight bits with one factor a row.
Numbers in_eight_bits(Numbers numbers) {
  for (int64_t r = 0; r < numbers.rows; ++r) {
    float most = 0;
    for (int64_t i = 0; i < numbers.cols; ++i) most = std::max(most, std::abs(numbers.row(r)[i]));
    const float factor = most / 127;
    for (int64_t i = 0; factor > 0 && i < numbers.cols; ++i)
      numbers.row(r)[i] = std::nearbyint(numbers.row(r)[i] / factor) * factor;
  }
  return numbers;
}

Numbers in_sixteen_bits(Numbers numbers) {
  for (float& number : numbers.all) number = f16_to_f32(f32_to_f16(number));
  return numbers;
}

// The columns that were loudest in rows other than those to come.
std::vector<int32_t> loudest(const Numbers& rows, int32_t count) {
  std::vector<float> most(static_cast<size_t>(rows.cols));
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t i = 0; i < rows.cols; ++i)
      most[static_cast<size_t>(i)] = std::max(most[static_cast<size_t>(i)], std::abs(rows.row(r)[i]));
  }
  std::vector<int32_t> columns(most.size());
  std::iota(columns.begin(), columns.end(), 0);
  std::stable_sort(columns.begin(), columns.end(),
                   [&](int32_t a, int32_t b) { return most[static_cast<size_t>(a)] > most[static_cast<size_t>(b)]; });
  columns.resize(static_cast<size_t>(count));
  std::sort(columns.begin(), columns.end());
  return columns;
}

// The backend's own product with Q8_0.
std::vector<double> grouped(Rig& rig, const Numbers& in, const Numbers& matrix, Chance& chance) {
  FileMatrix file(DType::q8_0, matrix.rows, matrix.cols, chance);
  format(DType::q8_0).from_float(matrix.all.data(), file.bytes.data(), matrix.rows * matrix.cols);
  rig.begin(static_cast<int32_t>(in.rows));
  const Weight weight = rig.weight(file);
  if (!rig.failure().empty()) return {};
  const Tensor from = rig.bring(in), to = rig.blank(in.rows, matrix.rows);
  rig.ops().linear(weight, from, to);
  const Numbers out = rig.read(to);
  return {out.all.begin(), out.all.end()};
}

double error_of(std::vector<double> found, const std::vector<double>& beside, const std::vector<double>& right,
                const std::vector<double>& ordinary) {
  double wrong = 0, size = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    const double all = found[i] + (beside.empty() ? 0 : beside[i]);
    wrong += (all - right[i]) * (all - right[i]);
    size += ordinary[i] * ordinary[i];
  }
  return std::sqrt(wrong / size);
}

}  // namespace

Result<OutlierErrors> measure_outliers(std::unique_ptr<Backend> backend, const OutlierAsk& ask) {
  if (ask.inputs < 64 || ask.inputs % 32 != 0 || ask.outputs < 1 || ask.rows < 1 || ask.planted < 1 ||
      ask.planted > ask.inputs / 2 || ask.rows > Rig::kMostRows || ask.inputs * ask.outputs > (int64_t{1} << 28))
    return error(Code::invalid, "{} outliers in {} rows of {} inputs, {} outputs: inputs are a multiple of 32",
                 ask.planted, ask.rows, ask.inputs, ask.outputs);
  TRY(auto rig, Rig::open(std::move(backend)));
  Chance chance(ask.seed);
  const Numbers matrix(ask.outputs, ask.inputs, chance, 0.05f);
  std::vector<int32_t> planted;
  while (static_cast<int32_t>(planted.size()) < ask.planted) {
    const int32_t column = chance.below(static_cast<int32_t>(ask.inputs));
    if (std::find(planted.begin(), planted.end(), column) == planted.end()) planted.push_back(column);
  }
  auto plant = [&](Numbers rows) {
    for (int64_t r = 0; r < rows.rows; ++r)
      for (const int32_t column : planted) rows.row(r)[column] *= ask.times;
    return rows;
  };
  const Numbers earlier = plant(Numbers(64, ask.inputs, chance)), in = plant(Numbers(ask.rows, ask.inputs, chance));
  OutlierErrors errors;
  errors.columns = loudest(earlier, ask.planted);
  const Numbers quiet_in = with_columns(in, errors.columns, false), loud_in = with_columns(in, errors.columns, true);
  const Numbers quiet = with_columns(matrix, errors.columns, false), loud = with_columns(matrix, errors.columns, true);
  const std::vector<double> right = product(in, matrix);
  const std::vector<double> ordinary = product(with_columns(in, planted, false), matrix);
  const std::vector<double> beside = product(loud_in, in_sixteen_bits(loud));
  errors.plain = error_of(product(in_eight_bits(in), in_eight_bits(matrix)), {}, right, ordinary);
  errors.plain_apart = error_of(product(in_eight_bits(quiet_in), in_eight_bits(quiet)), beside, right, ordinary);
  const std::vector<double> ours = grouped(*rig, in, matrix, chance), rest = grouped(*rig, quiet_in, quiet, chance);
  if (!rig->failure().empty()) return error(Code::unsupported, "{}", rig->failure());
  errors.grouped = error_of(ours, {}, right, ordinary);
  errors.grouped_apart = error_of(rest, beside, right, ordinary);
  return errors;
}

}  // namespace millrace
