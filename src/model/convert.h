// Converting: a Hugging Face directory or a GGUF file in, a GGUF file out, with the matrices in another format. Names,
// order of rows and metadata are those llama.cpp's loaders expect of the architecture, so the file runs there too, as
// far as that program knows the architecture. Streams tensor by tensor; the result appears under its name only when
// whole.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/team.h"
#include "model/source.h"
#include "tensor/gguf_writer.h"

namespace millrace {

// What `--type` can say. Most names give every matrix one format, but for the head, which bears little rounding; the _M
// mixes keep more of the values' and the feed-forward part's matrices.
struct FileType {
  DType type = DType::f16;
  bool mixed = false;
  uint32_t number = 1;  // general.file_type

  static Result<FileType> parse(std::string_view name);  // "F16", "q8_0", "Q4_K_M"
};

struct ConvertOptions {
  FileType type;
  // The format of a slot's matrix where it is not the one that stored_type says. Rows fill its groups.
  std::function<std::optional<DType>(const Slot& slot)> type_of;
  // What an error in each column of a matrix counts, [slot.cols]; empty: all alike (tensor/importance.h).
  std::function<std::span<const float>(const Slot& slot, int64_t expert)> importance;
  std::string name;  // general.name; empty: from the path
  std::function<Result<void>(GgufWriter& writer)>
      tokenizer;  // puts the tokenizer's keys; none: the file says it has none
  std::function<Result<void>(GgufWriter& writer)> sampling;     // puts the keys of sampling, if any
  std::function<bool(uint64_t done, uint64_t total)> progress;  // bytes of the result; false stops
  int threads = 0;                                              // 0: one for every core
};

struct ConvertReport {
  uint64_t bytes = 0;  // of the file
  int64_t parameters = 0;
  int tensors = 0;
  int fallbacks = 0;  // matrices whose rows do not fit the format and got a nearby one
};

Result<ConvertReport> convert(const ModelSource& source, const std::filesystem::path& target,
                              const ConvertOptions& options);

// The format a slot's weight gets in a file of that type.
DType stored_type(const ModelSpec& spec, const Slot& slot, const FileType& type);

// The tensor of a GGUF file that a slot's matrix lies in: "blk.3.attn_qkv.weight".
std::string file_tensor(const ModelSource& source, const Slot& slot);

// A matrix in another format, rows shared among the team. `importance` as in ConvertOptions, or empty. Whatever the
// team's size, the same bytes.
void quantise_rows(Team& team, const HostMatrix& matrix, DType type, std::span<const float> importance,
                   std::span<std::byte> out);

// The keys of a model that came from a Hugging Face directory; of one from GGUF, those it had.
Result<void> put_metadata(GgufWriter& writer, const ModelSource& source, const ConvertOptions& options);

}  // namespace millrace
