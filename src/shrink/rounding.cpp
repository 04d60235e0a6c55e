#include "shrink/rounding.h"

#include "model/convert.h"
#include "tensor/importance.h"

namespace millrace {
namespace {

std::vector<float> all_floats(const GroupedCodes& codes) {
  std::vector<float> out(static_cast<size_t>(codes.rows * codes.cols));
  for (int64_t r = 0; r < codes.rows; ++r) codes.floats(r, &out[static_cast<size_t>(r * codes.cols)]);
  return out;
}

bool is_matrix(const Slot& slot) { return slot.kind == SlotKind::matrix && slot.weight && !slot.float32; }

}  // namespace

std::string code_name(const Slot& slot, int64_t expert) {
  return slot.experts > 0 ? fmt::format("{}.{}", slot.name, expert) : slot.name;
}

void put_codes(Student& student, const Slot& slot, int64_t expert, std::shared_ptr<const GroupedCodes> codes) {
  const std::vector<float> values = all_floats(*codes);
  const auto bytes = std::as_bytes(std::span(values));
  student.source.put_matrix(slot, expert, DType::f32, {bytes.begin(), bytes.end()});
  student.codes[code_name(slot, expert)] = std::move(codes);
}

bool FormatRounding::takes(const Slot& slot) const { return is_matrix(slot); }

bool FormatRounding::takes_codes(const Slot& slot) const {
  return is_matrix(slot) && slot.experts == 0 && slot.use == WeightUse::linear &&
         grid_format(type_of_(slot)).grid != nullptr;
}

// Formats of 256 have scales of parts of them.
int64_t FormatRounding::group(const Slot& slot) const { return std::min(32, format(type_of_(slot)).group); }

std::vector<float> FormatRounding::rounded(Team& team, const Slot& slot, std::span<const float> rows,
                                           std::span<const float> importance) const {
  const auto values = static_cast<int64_t>(rows.size());
  const DType type = type_of_(slot);
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, values)));
  quantise_rows(team, {DType::f32, values / slot.cols, slot.cols, std::as_bytes(rows)}, type, importance, bytes);
  return widened(type, bytes, values);
}

Result<void> FormatRounding::put(Team& team, Student& student, const Slot& slot, int64_t expert,
                                 std::span<const float> numbers, std::span<const float> importance,
                                 const Curvature* curvature) const {
  const DType type = type_of_(slot);
  if (curvature == nullptr) {
    put_quantised(team, student.source, slot, expert, numbers, type, importance);
    return {};
  }
  TRY(std::vector<std::byte> codes, gptq(team, numbers, slot.rows, *curvature, {.type = type}));
  student.source.put_matrix(slot, expert, type, std::move(codes));
  return {};
}

std::vector<float> CodeRounding::rounded(Team& team, const Slot& slot, std::span<const float> rows,
                                         std::span<const float> importance) const {
  return all_floats(
      round_to_codes(team, grid_, rows, static_cast<int64_t>(rows.size()) / slot.cols, slot.cols, importance));
}

Result<void> CodeRounding::put(Team& team, Student& student, const Slot& slot, int64_t expert,
                               std::span<const float> numbers, std::span<const float> importance,
                               const Curvature* curvature) const {
  auto codes = std::make_shared<GroupedCodes>(
      curvature != nullptr ? gptq_codes(team, grid_, numbers, slot.rows, *curvature)
                           : round_to_codes(team, grid_, numbers, slot.rows, slot.cols, importance));
  put_codes(student, slot, expert, std::move(codes));
  return {};
}

Result<void> round_matrices(Team& team, const ModelSource& wide, const Folds& folds, const Rounding& rounding,
                            const ColumnWeights* importance, const std::function<bool(const Slot& slot)>& which,
                            Student& student) {
  for (const Slot& slot : slots(wide.spec())) {
    if (!rounding.takes(slot) || (which && !which(slot))) continue;
    if (!folds.changes(slot) && rounding.is_so(wide, slot)) continue;
    for (int64_t expert = 0; expert < slot.matrices(); ++expert) {
      TRY(const std::vector<float> numbers, folds.matrix(wide, slot, expert));
      const std::span<const float> given =
          importance != nullptr ? importance->of(slot, expert) : std::span<const float>();
      TRY_VOID(rounding.put(team, student, slot, expert, numbers, folds.importance(slot, expert, given), nullptr));
    }
  }
  return folds.put_beside(
      wide, [&](const Slot& slot) { return rounding.takes(slot); }, student.source);
}

}  // namespace millrace
