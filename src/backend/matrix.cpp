#include "backend/matrix.h"

#include "base/checked.h"

namespace millrace {

Result<void> check_matrix(const HostMatrix& matrix, std::span<const float> bias) {
  const Format& f = format(matrix.type);
  if (!f.readable()) {
    return error(Code::unsupported, "weights of format {} cannot be read; convert the model to another format", f.name);
  }
  if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.cols % f.group != 0) {
    return error(Code::invalid, "a matrix of {} x {} cannot be {}: its rows must be a multiple of {} values",
                 matrix.rows, matrix.cols, f.name, f.group);
  }
  Checked bytes = Checked(matrix.rows) * Checked(matrix.cols / f.group) * Checked(f.group_bytes);
  if (!bytes.within(INT64_MAX) || *bytes.get() != matrix.bytes.size()) {
    return error(Code::corrupt, "a matrix of {} x {} in {} does not take {} bytes", matrix.rows, matrix.cols, f.name,
                 matrix.bytes.size());
  }
  if (!bias.empty() && static_cast<int64_t>(bias.size()) != matrix.rows) {
    return error(Code::invalid, "a bias of {} values beside a matrix of {} rows", bias.size(), matrix.rows);
  }
  return {};
}

}  // namespace millrace
