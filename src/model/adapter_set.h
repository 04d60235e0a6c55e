// AdapterSet: the adapters that lie on a model's backend beside it, each at a place of its own. What they take is in
// the ledger: numbers as weights, room as workspace. A place that was given back is used again; its memory stays the
// backend's and goes to whoever comes next and fits. Whoever changes the set sees to it that no step runs meanwhile.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "model/adapter.h"
#include "model/model.h"

namespace millrace {

class AdapterSet {
 public:
  // Of steps of up to so many rows. The model and the backend outlive it. Takes nothing before the first adapter comes.
  AdapterSet(const Model& model, Backend& backend, int32_t rows) : model_(model), backend_(backend), rows_(rows) {}

  Result<int> add(const Adapter& adapter);  // its place
  void remove(int place);
  bool has(int place) const { return place >= 0 && place < kMostAdapters && used_[static_cast<size_t>(place)].held; }
  bool empty() const { return count_ == 0; }
  int64_t version() const { return version_; }  // another one whenever the set has changed; not 0 once it has
  int64_t bytes(int place) const { return used_[static_cast<size_t>(place)].bytes; }

  // What the adapters change of a matrix of the model; nothing if none does.
  const Delta* listed(const Weight& weight) const;
  RowDeltas deltas(const Delta* listed) const;  // without rows

 private:
  struct Place {
    bool held = false;
    std::byte* memory = nullptr;  // stays when the place is given back
    int64_t room = 0, bytes = 0;
    int32_t rank = 0;
  };
  Result<void> prepare();
  Result<void> grow_low(int32_t rank);
  Result<int> take_place(int64_t bytes);

  const Model& model_;
  Backend& backend_;
  const int32_t rows_;
  std::array<Place, kMostAdapters> used_;
  int count_ = 0;
  int64_t version_ = 0;
  struct Matrix {
    const Weight* weight = nullptr;
    bool changed = false;  // by any adapter, ever
  };
  std::vector<Matrix> matrices_;
  std::unordered_map<std::string, size_t> by_slot_;
  std::unordered_map<const Weight*, size_t> by_place_;
  std::vector<Delta> table_;         // [matrices, kMostAdapters]
  std::byte* on_backend_ = nullptr;  // the same
  float* low_ = nullptr;             // [rows, low_rank_]
  int32_t low_rank_ = 0, rank_ = 0;  // room for, and the largest there is
};

}  // namespace millrace
