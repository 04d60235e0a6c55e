// Tensor: a view of numbers somebody else owns, as rows of columns. In activations a row is a token; in weights a row
// is an output. Vectors are one row. Copied by value; never owns, never allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

struct Tensor {
  std::byte* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // bytes from one row to the next

  template <class T = float>
  T* row(int64_t index) const {
    return reinterpret_cast<T*>(data + index * stride);
  }
  explicit operator bool() const { return data != nullptr; }
};

// Bytes of `values` numbers; values must be a multiple of the format's group.
inline int64_t bytes_of(DType type, int64_t values) {
  const Format& f = format(type);
  return values / f.group * f.group_bytes;
}

}  // namespace millrace
