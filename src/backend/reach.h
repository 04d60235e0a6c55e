// Reach: what ranks need of an Ops whose rows the host does not read (cuda). An Ops of the host's has none: its rows
// are read where they lie, and a part of a product is computed as the whole is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tensor.h"

namespace millrace {

class Reach {
 public:
  virtual ~Reach() = default;

  // ---- rows on their way between ranks
  // Does what is held back. What others have of the tensor will be written as float32; `written`: some of it was
  // computed here, and must lie so.
  virtual void settle(Tensor tensor, bool written) = 0;
  // Queues a copy of `rows` pieces of `bytes` each, so far apart on either side. Both sides may be the host's, this
  // machine's or another's of this process.
  virtual void copy(std::byte* to, int64_t to_apart, const std::byte* from, int64_t from_apart, int64_t bytes,
                    int64_t rows) = 0;
  virtual void wait() = 0;  // until all is done; what failed is said by Ops::fetch

  // ---- parts that must have the bits of the whole
  // So many outputs has the matrix whose part lies at `weights`.
  virtual void all_outputs(const std::byte* weights, int64_t rows) = 0;
  // The next call writes columns of `whole`: as it would write all of it, and rounded as that would be. Of attention:
  // so many heads share a key in all.
  virtual void begin_part(Tensor whole, int32_t heads_per_key) = 0;
  virtual void end_part() = 0;
};

}  // namespace millrace
