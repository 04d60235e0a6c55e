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

Result<void> check_experts(const HostExperts& experts, std::span<const float> bias) {
  if (experts.experts <= 0) return error(Code::invalid, "{} experts", experts.experts);
  if (!bias.empty() && static_cast<int64_t>(bias.size()) != experts.experts * experts.rows) {
    return error(Code::invalid, "a bias of {} values beside {} experts of {} rows", bias.size(), experts.experts,
                 experts.rows);
  }
  return {};
}

Result<HostMatrix> expert_matrix(const HostExperts& experts, int64_t expert) {
  auto matrix = experts.part(expert);
  if (!matrix.ok()) return within(fmt::format("expert {}", expert), std::move(matrix).error());
  if (matrix->type != experts.type || matrix->rows != experts.rows || matrix->cols != experts.cols) {
    return error(Code::invalid, "expert {} is {} x {} in {}, others are {} x {} in {}", expert, matrix->rows,
                 matrix->cols, format(matrix->type).name, experts.rows, experts.cols, format(experts.type).name);
  }
  TRY_VOID(check_matrix(*matrix, {}));
  return matrix;
}

Result<Weight> Backend::upload_experts(const HostExperts& experts, std::span<const float>) {
  return error(Code::unsupported, "{} experts: this device ({}) has no products of experts yet; use --device cpu",
               experts.experts, description());
}

}  // namespace millrace
