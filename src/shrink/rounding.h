// Rounding: what matrices become, as formats of a GGUF file or as codes with scales of a Hugging Face directory, and a
// student with what was chosen for it. Methods ask it and need not know which. One thread, with a team.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shrink/affine.h"
#include "shrink/folds.h"
#include "shrink/student.h"

namespace millrace {

// A source whose matrices were put; where they are codes with scales, these too, by "SLOT" or "SLOT.EXPERT". Copies
// share what was put before.
struct Student {
  ModelSource source;
  std::map<std::string, std::shared_ptr<const GroupedCodes>> codes;
};
std::string code_name(const Slot& slot, int64_t expert);
// Codes of a matrix, and its numbers by them.
void put_codes(Student& student, const Slot& slot, int64_t expert, std::shared_ptr<const GroupedCodes> codes);

class Rounding {
 public:
  virtual ~Rounding() = default;
  virtual bool takes(const Slot& slot) const = 0;                          // it is rounded
  virtual bool takes_codes(const Slot& slot) const = 0;                    // by codes that may be chosen one by one
  virtual int64_t group(const Slot& slot) const = 0;                       // inputs that share a scale
  virtual bool is_so(const ModelSource& source, const Slot& slot) const {  // already, as the source has it
    static_cast<void>(source), static_cast<void>(slot);
    return false;
  }
  // Rows of the slot's matrix as they would be read again. `importance` [cols] or empty.
  virtual std::vector<float> rounded(Team& team, const Slot& slot, std::span<const float> rows,
                                     std::span<const float> importance) const = 0;
  // Puts the whole matrix: rounded by importance, or with a curvature by GPTQ.
  virtual Result<void> put(Team& team, Student& student, const Slot& slot, int64_t expert,
                           std::span<const float> numbers, std::span<const float> importance,
                           const Curvature* curvature) const = 0;
};

// Formats of GGUF files.
class FormatRounding final : public Rounding {
 public:
  explicit FormatRounding(TypeOf type_of) : type_of_(std::move(type_of)) {}
  bool is_so(const ModelSource& source, const Slot& slot) const override {
    return source.type_of(slot) == type_of_(slot);
  }
  bool takes(const Slot& slot) const override;
  bool takes_codes(const Slot& slot) const override;
  int64_t group(const Slot& slot) const override;
  std::vector<float> rounded(Team& team, const Slot& slot, std::span<const float> rows,
                             std::span<const float> importance) const override;
  Result<void> put(Team& team, Student& student, const Slot& slot, int64_t expert, std::span<const float> numbers,
                   std::span<const float> importance, const Curvature* curvature) const override;

 private:
  TypeOf type_of_;
};

// Codes with scales, of matrices that `taken` says.
class CodeRounding final : public Rounding {
 public:
  CodeRounding(CodeGrid grid, std::function<bool(const Slot& slot)> taken) : grid_(grid), taken_(std::move(taken)) {}
  bool takes(const Slot& slot) const override { return taken_(slot); }
  bool takes_codes(const Slot& slot) const override { return taken_(slot) && slot.experts == 0; }
  int64_t group(const Slot& slot) const override { return grid_.group_of(slot.cols); }
  std::vector<float> rounded(Team& team, const Slot& slot, std::span<const float> rows,
                             std::span<const float> importance) const override;
  Result<void> put(Team& team, Student& student, const Slot& slot, int64_t expert, std::span<const float> numbers,
                   std::span<const float> importance, const Curvature* curvature) const override;

 private:
  CodeGrid grid_;
  std::function<bool(const Slot& slot)> taken_;
};

// Every matrix that is rounded, out of `wide` and folded; `importance` may be null: columns count alike.
Result<void> round_matrices(Team& team, const ModelSource& wide, const Folds& folds, const Rounding& rounding,
                            const ColumnWeights* importance, const std::function<bool(const Slot& slot)>& which,
                            Student& student);

}  // namespace millrace
