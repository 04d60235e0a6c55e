// Any bytes as an imatrix file: sums and counts that keep their promises, or an error of one line.
#include <cmath>

#include "base/check.h"
#include "shrink/imatrix.h"
#include "tensor/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto file = parse_gguf({reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) return 0;
  const auto read = read_importance(file->metadata, file->tensors);
  if (!read.ok()) {
    CHECK(!read.error().message.empty() && read.error().message.find('\n') == std::string::npos);
    return 0;
  }
  CHECK(!read->tensors.empty());
  for (const InputSquares& each : read->tensors) {
    CHECK(each.sums.size() == static_cast<size_t>(each.experts * each.cols));
    CHECK(each.counts.size() == static_cast<size_t>(each.experts));
    for (double sum : each.sums) CHECK(sum >= 0 && std::isfinite(sum));
    CHECK(read->find(each.name) != nullptr);
  }
  return 0;
}
