// Number formats against another implementation's reading of the same bytes: a safetensors file with pairs of tensors
// NAME.raw (U8 [rows, bytes]) and NAME.values (F32 [rows, values]), NAME being a format as GGUF calls it. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct FormatResult {
  std::string name;
  int64_t values = 0, different = 0;  // compared, and not the same bit for bit (a NaN equals any NaN)
  int64_t first_difference = -1;      // index of the first that is not
  float expected = 0, found = 0;      // there
  std::string failure;                // why it could not be compared; empty: it was
  bool passed() const { return failure.empty() && different == 0; }
};

// One result for each NAME.raw, in the order of the file. An error if the file has none.
Result<std::vector<FormatResult>> check_formats(const Checkpoint& file);

}  // namespace millrace
