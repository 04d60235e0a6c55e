// Slots: every tensor a spec calls for, under GGUF's names. One list drives loading, checking, counting and
// converting. A slot is a module: a matrix (or one for each expert), a norm, each with its weight and perhaps its bias,
// or a vector of numbers. What a layer's halves have is said by their kinds (model/mixers, model/ffns), which call a
// SlotWalk.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/ranks/ranks.h"
#include "model/spec.h"
#include "model/weights.h"

namespace millrace {

enum class SlotKind : uint8_t { matrix, norm, vector };

struct Slot {
  std::string name;  // "blk.3.attn_q": without .weight and .bias
  SlotKind kind = SlotKind::matrix;
  int32_t layer = -1;
  int64_t rows = 0, cols = 0;  // of the weight, of one expert; a norm or vector is one row
  bool weight = true, bias = false;
  WeightUse use = WeightUse::linear;
  int32_t heads = 0;     // of q and k (their rows) and of their norms; 0 elsewhere
  int32_t experts = 0;   // so many matrices, one after the other; 0: one, and no expert's
  bool routed = true;    // a router chooses among the experts; false: all are used (heads, streams)
  bool float32 = false;  // kept in float32 whatever the file has: it decides, and rounding would change what
  int32_t number = -1;   // of its layer in files
  int32_t turned = 0;  // a vector that files have as a matrix of so many columns and the backend turned; 0: it is none
  bool plain = false;  // a norm whose weight is stored as it is used, even where others are stored less one

  int64_t matrices() const { return experts > 0 ? experts : 1; }
  int64_t bias_size() const { return kind == SlotKind::matrix ? matrices() * rows : cols; }
  int64_t values() const { return (weight ? matrices() * rows * cols : 0) + (bias ? bias_size() : 0); }
};

// Whether a rank that has whole layers has this; without a stage, always.
bool is_here(const Slot& slot, const ModelSpec& spec, const std::optional<Stage>& stage);

// Where a slot's numbers go among the weights: exactly one of these, by its kind.
struct Place {
  Weight* matrix = nullptr;
  Norm* norm = nullptr;
  const float** vector = nullptr;

  const void* address() const {
    if (matrix != nullptr) return matrix;
    return norm != nullptr ? static_cast<const void*>(norm) : vector;
  }
};

using SlotVisitor = std::function<void(const Slot& slot, const Place& place)>;
void visit_slots(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit);

std::vector<Slot> slots(const ModelSpec& spec);  // in the order of the file: embedding, layers, head
int64_t parameters(const ModelSpec& spec);       // tied heads count once
// Those that one token is multiplied with: of experts the chosen ones.
int64_t active_parameters(const ModelSpec& spec);

// Where the numbers of each slot lie among weights that are loaded. A tied head is one of its own ("output").
struct PlacedSlot {
  Slot slot;
  const void* place = nullptr;  // a Weight, a Norm or a pointer to numbers
};
std::vector<PlacedSlot> placed_slots(const ModelSpec& spec, const ModelWeights& weights);

// How a slot's matrix lies: its format, and the order of its inputs (HostMatrix::order).
struct MatrixForm {
  DType type;
  std::span<const int32_t> order;

  MatrixForm(DType type_, std::span<const int32_t> order_ = {}) : type(type_), order(order_) {}
};

// What the kinds say their slots with.
class SlotWalk {
 public:
  struct Traits {
    bool bias = false;
    WeightUse use = WeightUse::linear;
    int32_t heads = 0;
    int32_t experts = 0;
    bool routed = true;
    bool float32 = false;
  };

  SlotWalk(const ModelSpec& spec, const SlotVisitor& visit) : spec_(spec), visit_(visit) {}

  const ModelSpec& spec() const { return spec_; }
  // `number`: its number in files.
  void set_layer(int32_t layer, int32_t number) { layer_ = layer, number_ = number; }
  void matrix(std::string_view stem, int64_t rows, int64_t cols, Weight& place, const Traits& traits);
  void norm(std::string_view stem, int64_t width, const std::optional<NormSpec>& spec, Norm& place, int32_t heads = 0,
            bool plain = false);
  void vector(std::string_view stem, int64_t size, const float*& place, int32_t turned = 0);
  void head_bias(int64_t rows, int64_t cols, Weight& place);  // of a head that is the table

 private:
  std::string named(std::string_view stem) const;

  const ModelSpec& spec_;
  const SlotVisitor& visit_;
  int32_t layer_ = -1, number_ = -1;
};

}  // namespace millrace
