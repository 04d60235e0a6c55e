// Any bytes as a safetensors file: read it and look at everything it gave.
#include <vector>

#include "base/check.h"
#include "tensor/identify.h"
#include "tensor/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (!looks_like_safetensors(bytes)) CHECK(unknown_file(bytes).message.find('\n') == std::string::npos);
  const auto file = parse_safetensors(bytes);
  if (!file.ok()) {
    CHECK(!file.error().message.empty() && file.error().message.find('\n') == std::string::npos);
    return 0;
  }
  size_t total = 0;
  for (const StoredTensor& tensor : file->tensors) {
    CHECK(static_cast<int64_t>(tensor.bytes.size()) == bytes_of(tensor.type, tensor.values()));
    total += tensor.bytes.size();
    if (tensor.bytes.empty()) continue;
    std::vector<float> row(static_cast<size_t>(tensor.cols()));
    CHECK(read_rows(tensor, tensor.rows() - 1, 1, row).ok());
  }
  CHECK(total <= size);
  return 0;
}
