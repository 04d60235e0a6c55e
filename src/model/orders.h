// The orders of inputs that matrices were brought to a backend with (HostMatrix::order): one that the matrix before had
// too is kept once. Planning and loading ask in the order of the slots. Loading thread only.
#pragma once

#include <algorithm>

#include "backend/backend.h"

namespace millrace {

class Orders {
 public:
  // Bytes that bring() will charge.
  int64_t bytes(std::span<const int32_t> order) { return is_new(order) ? static_cast<int64_t>(order.size_bytes()) : 0; }
  // Where the backend has it; null if there is none.
  Result<const int32_t*> bring(std::span<const int32_t> order, Backend& backend) {
    if (order.empty()) return nullptr;
    if (is_new(order)) {
      // Numbers of four bytes each, whatever they are.
      static_assert(sizeof(float) == sizeof(int32_t));
      TRY(const float* kept, backend.upload_vector({reinterpret_cast<const float*>(order.data()), order.size()}));
      place_ = reinterpret_cast<const int32_t*>(kept);
    }
    return place_;
  }

 private:
  bool is_new(std::span<const int32_t> order) {
    if (order.empty() || std::ranges::equal(order, last_)) return false;
    last_ = order;
    return true;
  }

  std::span<const int32_t> last_;
  const int32_t* place_ = nullptr;
};

}  // namespace millrace
