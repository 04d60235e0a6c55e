// What the products of a model read over a text, as sums: squares and sizes of each input column and the largest of
// them, of each expert apart, and where asked the sums of products of any two columns (x x^T). Float32 over the rows of
// a call, in fixed order, and double beyond, so that figures do not depend on threads. Memory is the backend's, charged
// before the first step. One thread, with a team.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/observe/observe.h"
#include "base/team.h"
#include "model/model.h"

namespace millrace {

// sums[i * b.cols + j] += over rows a[r][i] * b[r][j]. With `upper`, a and b are the same and only columns from about i
// on are kept: those left of the diagonal's tile are not touched. Whatever the team's size, the same bits.
void add_products(Team& team, Tensor a, Tensor b, bool upper, double* sums);
// Fills what `upper` left out.
void mirror(double* sums, int64_t cols);

// Sums of one slot.
struct SlotSums {
  Slot slot;
  double* squares = nullptr;    // [experts, cols]
  double* sizes = nullptr;      // likewise, of |x|
  double* most = nullptr;       // likewise, the largest |x|
  double* products = nullptr;   // [cols, cols] or null; the upper half until mirror()
  std::vector<int64_t> counts;  // [experts] rows

  int64_t rows() const { return counts.front(); }
};

class InputSums final : public Watcher {
 public:
  // Every matrix of the model that is multiplied with; x x^T of those that `products` names, which no experts have.
  static Result<std::unique_ptr<InputSums>> make(const Model& model, Backend& backend, Team& team,
                                                 const std::function<bool(const Slot& slot)>& products);

  void product(const Weight& weight, Tensor in, Tensor out) override;
  void product_of_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in) override;
  void added(Tensor, Tensor) override {}

  std::span<SlotSums> slots() { return slots_; }
  SlotSums* find(std::string_view slot);
  // The first slot whose inputs were not finite, or empty.
  const std::string& broken() const { return broken_; }

 private:
  explicit InputSums(Team& team) : team_(team) {}
  void add_squares(SlotSums& sums, size_t expert, const float* row);
  void check(const SlotSums& sums, size_t expert);

  struct Whose {
    size_t slot, expert;
  };
  Team& team_;
  std::vector<SlotSums> slots_;
  std::unordered_map<const std::byte*, Whose> by_data_;
  std::string broken_;
};

}  // namespace millrace
