// Any bytes as a quantised checkpoint: two bytes say how long the config is, then come the config and a safetensors
// file. Every module's weight is looked for, and its first and last rows are read in both ways.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "tensor/hugging_face.h"
#include "tensor/safetensors.h"
#include "tensor/stored_matrix.h"

namespace {

void write(const std::filesystem::path& path, const uint8_t* data, size_t size) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 2) return 0;
  const size_t config = std::min<size_t>(data[0] | size_t{data[1]} << 8, size - 2);
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data) + 2 + config, size - 2 - config);
  if (!parse_safetensors(file).ok()) return 0;  // its own fuzzer's business
  static const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("millrace-fuzz-stored-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  write(folder / "config.json", data + 2, config);
  write(folder / "model.safetensors", data + 2 + config, size - 2 - config);
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return 0;
  (void)unsupported_quantisation(*checkpoint);
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    for (const std::string_view ending : {".qweight", ".weight_packed", ".weight", "_blocks"}) {
      if (!tensor.name.ends_with(ending)) continue;
      const auto found = stored_matrix(*checkpoint, tensor.name.substr(0, tensor.name.size() - ending.size()));
      if (!found.ok()) CHECK(found.error().message.find('\n') == std::string::npos);
      if (!found.ok() || *found == nullptr || (*found)->rows() == 0) continue;
      const StoredMatrix& matrix = **found;
      const int64_t rows[] = {0, matrix.rows() - 1};
      for (const Keep keep : {Keep::small, Keep::exact}) {
        std::vector<std::byte> room(static_cast<size_t>(2 * bytes_of(matrix.type(keep), matrix.cols())));
        matrix.read(rows, keep, room);
      }
      if (!matrix.order().empty()) {
        CHECK(static_cast<int64_t>(matrix.order().size()) == matrix.cols());
        std::vector<bool> there(matrix.order().size());
        for (const int32_t input : matrix.order()) there.at(static_cast<size_t>(input)) = true;
        CHECK(std::find(there.begin(), there.end(), false) == there.end());
        std::vector<std::byte> room(static_cast<size_t>(2 * bytes_of(matrix.ordered_type(), matrix.cols())));
        matrix.read_ordered(rows, room);
      }
    }
  }
  return 0;
}
