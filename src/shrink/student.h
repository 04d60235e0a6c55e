// A model that is being made smaller: a source with changes, loaded onto a backend of its own as often as they change,
// and numbers of its matrices in and out. One thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/team.h"
#include "model/model.h"
#include "shrink/imatrix.h"

namespace millrace {

// A model on a backend of its own.
struct Loaded {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};
struct StudentOptions {
  CpuOptions cpu;
  int64_t context = 0;
  int64_t memory_limit = 0;  // of each model that is loaded; 0: none
};
Result<Loaded> load_student(const ModelSource& source, const StudentOptions& options);

// All numbers of a slot's matrix, [rows, cols].
Result<std::vector<float>> read_matrix(const ModelSource& source, const Slot& slot, int64_t expert);
std::vector<float> widened(DType type, std::span<const std::byte> bytes, int64_t values);
// Puts numbers in a format; importance may be empty.
void put_quantised(Team& team, ModelSource& source, const Slot& slot, int64_t expert, std::span<const float> numbers,
                   DType type, std::span<const float> importance);
using TypeOf = std::function<DType(const Slot& slot)>;  // the format of each matrix

// Every matrix of the model in the format that `type_of` says.
Result<void> quantise_all(Team& team, ModelSource& source, const TypeOf& type_of, const ColumnWeights* importance);

// Refuses with the numbers what would not fit a limit; 0: none.
Result<void> check_room(int64_t limit, int64_t bytes, const std::string& what);

const Slot* find_slot(const std::vector<Slot>& slots, std::string_view name);

}  // namespace millrace
