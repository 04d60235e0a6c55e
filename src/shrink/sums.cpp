#include "shrink/sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "shrink/tiles.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 64;              // of a float32 sum
constexpr int64_t kStrip = 8 * kTileRows;  // columns of a task

}  // namespace

void add_products(Team& team, Tensor a, Tensor b, bool upper, double* sums) {
  constexpr int64_t kAcross = kTileCols<float>;
  const auto a_step = a.stride / static_cast<int64_t>(sizeof(float)),
             b_step = b.stride / static_cast<int64_t>(sizeof(float));
  team.each((a.cols + kStrip - 1) / kStrip, [&](int64_t task, int) {
    const int64_t from = task * kStrip, to = std::min(a.cols, from + kStrip);
    float tile[kTileRows * kAcross];
    for (int64_t first = 0; first < a.rows; first += kRows) {
      const int64_t depth = std::min(a.rows - first, kRows);
      for (int64_t j = upper ? from / kAcross * kAcross : 0; j < b.cols; j += kAcross) {
        for (int64_t i = from; i < to; i += kTileRows) {
          const int64_t tall = std::min(kTileRows, to - i), wide = std::min(kAcross, b.cols - j);
          if (upper && j + wide <= i) continue;
          std::fill_n(tile, kTileRows * kAcross, 0.0f);
          add_tile<float>({a.row(first) + i, 1, a_step, b.row(first) + j, b_step, depth}, tall, wide, tile);
          for (int64_t t = 0; t < tall; ++t) {
            for (int64_t w = 0; w < wide; ++w)
              sums[(i + t) * b.cols + j + w] += static_cast<double>(tile[t * kAcross + w]);
          }
        }
      }
    }
  });
}

void mirror(double* sums, int64_t cols) {
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < i; ++j) sums[i * cols + j] = sums[j * cols + i];
  }
}

Result<std::unique_ptr<InputSums>> InputSums::make(const Model& model, Backend& backend, Team& team,
                                                   const std::function<bool(const Slot& slot)>& products) {
  std::unique_ptr<InputSums> out(new InputSums(team));
  ModelWeights weights = model.weights();
  Result<void> failed;
  auto numbers = [&](int64_t rows, int64_t cols) -> Result<double*> {
    const Checked bytes = Checked(rows) * Checked(cols) * Checked(sizeof(double));
    if (!bytes.within(std::numeric_limits<int64_t>::max()))
      return error(Code::no_memory, "sums of {} by {} numbers are more than can be counted", rows, cols);
    TRY(std::byte * memory, backend.allocate(Purpose::workspace, static_cast<int64_t>(*bytes.get())));
    return reinterpret_cast<double*>(memory);
  };
  auto add = [&](const Slot& slot, const Weight& weight) -> Result<void> {
    if (weight.data == nullptr) return {};  // another layer's, which is not loaded
    SlotSums sums = {.slot = slot, .counts = std::vector<int64_t>(static_cast<size_t>(slot.matrices()))};
    TRY(sums.squares, numbers(3 * slot.matrices(), slot.cols));
    sums.sizes = sums.squares + slot.matrices() * slot.cols;
    sums.most = sums.sizes + slot.matrices() * slot.cols;
    if (slot.experts == 0 && products && products(slot)) {
      TRY(sums.products, numbers(slot.cols, slot.cols));
    }
    for (int64_t e = 0; e < slot.matrices(); ++e) {
      const std::byte* data = slot.experts > 0 ? weight.expert(e).data : weight.data;
      out->by_data_[data] = {out->slots_.size(), static_cast<size_t>(e)};
    }
    out->slots_.push_back(std::move(sums));
    return {};
  };
  visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
    const bool table = slot.use == WeightUse::table;
    if (!failed.ok() || place.matrix == nullptr || !slot.weight || table) return;
    // The slots were filled when the model was made; walking over them again only sets what norms are.
    failed = add(slot, *place.matrix);
  });
  TRY_VOID(std::move(failed));
  return out;
}

SlotSums* InputSums::find(std::string_view slot) {
  for (SlotSums& each : slots_) {
    if (each.slot.name == slot) return &each;
  }
  return nullptr;
}

void InputSums::add_squares(SlotSums& sums, size_t expert, const float* row) {
  const auto cols = static_cast<size_t>(sums.slot.cols);
  const size_t first = expert * cols;
  for (size_t c = 0; c < cols; ++c) {
    const double x = row[c], size = std::abs(x);
    sums.squares[first + c] += x * x;
    sums.sizes[first + c] += size;
    sums.most[first + c] = std::max(sums.most[first + c], size);
  }
  ++sums.counts[expert];
}

void InputSums::check(const SlotSums& sums, size_t expert) {
  if (!broken_.empty()) return;
  const auto cols = static_cast<size_t>(sums.slot.cols);
  for (size_t c = 0; c < cols; ++c) {
    if (!std::isfinite(sums.squares[expert * cols + c])) broken_ = sums.slot.name;
  }
}

void InputSums::product(const Weight& weight, Tensor in, Tensor) {
  const auto found = by_data_.find(weight.data);
  if (found == by_data_.end()) return;
  SlotSums& sums = slots_[found->second.slot];
  for (int64_t r = 0; r < in.rows; ++r) add_squares(sums, found->second.expert, in.row(r));
  if (in.rows > 0) check(sums, found->second.expert);
  if (sums.products != nullptr) add_products(team_, in, in, true, sums.products);
}

void InputSums::product_of_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in) {
  const auto found = by_data_.find(weight.data);
  if (found == by_data_.end()) return;
  SlotSums& sums = slots_[found->second.slot];
  for (int32_t e = 0; e < routing.experts; ++e) {
    for (int32_t p = routing.first[e]; p < routing.first[e + 1]; ++p)
      add_squares(sums, static_cast<size_t>(e), in.row(input == ExpertInput::rows ? routing.row[p] : p));
    if (routing.first[e] < routing.first[e + 1]) check(sums, static_cast<size_t>(e));
  }
}

}  // namespace millrace
