#include "shrink/student.h"

#include "base/human.h"
#include "model/convert.h"

namespace millrace {

Result<Loaded> load_student(const ModelSource& source, const StudentOptions& options) {
  Loaded out;
  TRY(out.backend, make_cpu_backend(options.cpu));
  if (options.memory_limit > 0) out.backend->set_limit(options.memory_limit);
  TRY(out.model, Model::load(source, *out.backend, {.context = options.context}));
  return out;
}

std::vector<float> widened(DType type, std::span<const std::byte> bytes, int64_t values) {
  std::vector<float> out(static_cast<size_t>(values));
  format(type).to_float(bytes.data(), out.data(), values);
  return out;
}

Result<std::vector<float>> read_matrix(const ModelSource& source, const Slot& slot, int64_t expert) {
  std::vector<std::byte> room;
  TRY(const HostMatrix matrix, source.matrix(slot, expert, room));
  return widened(matrix.type, matrix.bytes, slot.rows * slot.cols);
}

void put_quantised(Team& team, ModelSource& source, const Slot& slot, int64_t expert, std::span<const float> numbers,
                   DType type, std::span<const float> importance) {
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, slot.rows * slot.cols)));
  quantise_rows(team, {DType::f32, slot.rows, slot.cols, std::as_bytes(numbers)}, type, importance, bytes);
  source.put_matrix(slot, expert, type, std::move(bytes));
}

Result<void> quantise_all(Team& team, ModelSource& source, const TypeOf& type_of, const ColumnWeights* importance) {
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind != SlotKind::matrix || !slot.weight || slot.float32) continue;
    const DType type = type_of(slot);
    if (type == source.type_of(slot)) continue;
    for (int64_t expert = 0; expert < slot.matrices(); ++expert) {
      TRY(const std::vector<float> numbers, read_matrix(source, slot, expert));
      put_quantised(team, source, slot, expert, numbers, type,
                    importance != nullptr ? importance->of(slot, expert) : std::span<const float>());
    }
  }
  return {};
}

Result<void> check_room(int64_t limit, int64_t bytes, const std::string& what) {
  if (limit == 0 || bytes <= limit) return {};
  return error(Code::no_memory, "no room for {}: {} of at most {}; allow more (--memory-limit) or quantise without it",
               what, human_bytes(static_cast<uint64_t>(bytes)), human_bytes(static_cast<uint64_t>(limit)));
}

const Slot* find_slot(const std::vector<Slot>& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

}  // namespace millrace
