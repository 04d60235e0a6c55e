// Any bytes as a GGUF file: read it, look at everything it gave, and write its metadata again.
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "tensor/gguf.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

void look_at(const GgufFile& file) {
  GgufWriter writer;
  for (const MetaEntry& entry : file.metadata.entries()) {
    CHECK(file.metadata.find(entry.key) == &entry);
    if (const auto* array = std::get_if<MetaArray>(&entry.value)) {
      const auto words = array->strings();
      const auto numbers = array->integers();
      const auto floats = array->floats();
      CHECK(!words.ok() || words->size() == array->size());
      CHECK(!numbers.ok() || numbers->size() == array->size());
      CHECK(!floats.ok() || floats->size() == array->size());
    }
    CHECK(writer.put(entry).ok());
  }
  for (const StoredTensor& tensor : file.tensors) {
    CHECK(static_cast<int64_t>(tensor.bytes.size()) == bytes_of(tensor.type, tensor.values()));
    CHECK(writer.add(tensor.name, tensor.type, tensor.shape).ok());
    if (tensor.bytes.empty() || !format(tensor.type).readable()) continue;
    std::vector<float> row(static_cast<size_t>(tensor.cols()));
    CHECK(read_rows(tensor, tensor.rows() - 1, 1, row).ok());
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = millrace::parse_gguf({reinterpret_cast<const std::byte*>(data), size});
  if (file.ok()) {
    millrace::look_at(*file);
  } else {
    CHECK(!file.error().message.empty() && file.error().message.find('\n') == std::string::npos);
  }
  return 0;
}
