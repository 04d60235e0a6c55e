// Checkpoint: a model as it lies on disk, whatever its layout: a GGUF file (or any of its parts), a Hugging Face
// directory, or one safetensors file. It maps files and checks that every byte is accounted for; it knows nothing of
// architectures (model/load does). Open once, then read from any thread.
//
// Files are mapped and may change under us: reading is always safe (base/mapped_file.h), and unchanged() tells whether
// what was read can be trusted. What always holds after open(): every tensor's bytes lie within a mapped file, overlap
// no other tensor's, and are exactly as many as shape and type say; rows are whole groups; no name occurs twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/metadata.h"
#include "tensor/tensor.h"

namespace millrace {

struct StoredTensor {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;        // outermost first, as in Hugging Face files: [rows, cols]
  std::span<const std::byte> bytes;  // into the mapped file; any alignment

  int64_t values() const;  // product of the shape (checked when the file was opened)
  int64_t rows() const;    // product of all dimensions but the last; 1 for vectors and scalars
  int64_t cols() const;    // the last dimension; 1 for scalars
  // The same numbers as rows() rows of cols() columns. The file is mapped read-only: never write through the view.
  Tensor view() const;
};

// Rows [first, first + count) as float32, into count * cols() numbers. An error if the format is not readable.
Result<void> read_rows(const StoredTensor& tensor, int64_t first, int64_t count, std::span<float> out);
// All of it; for tensors that are known to be small.
Result<std::vector<float>> read_floats(const StoredTensor& tensor);

class Checkpoint {
 public:
  enum class Kind { gguf, hugging_face, safetensors };

  // Decides by content what the path is. Errors say what was found instead, and what to do.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  Kind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }         // as given
  std::span<const StoredTensor> tensors() const { return tensors_; }  // in file order
  const StoredTensor* find(std::string_view name) const;
  uint64_t file_bytes() const { return file_bytes_; }  // of all weight files together
  // Everything read until now, tensors and metadata, is what the files held when they were opened; else an error that
  // names the file and what happened to it. To be asked after reading, before what was read is used.
  Result<void> unchanged() const;
  size_t files() const { return files_.size(); }  // weight files: parts of a split GGUF, shards of safetensors
  const FileState& state_of_file(size_t file) const { return files_[file]->state(); }  // when it was opened
  std::vector<FileState> states() const;                                               // of all of them

  const Metadata& metadata() const { return metadata_; }  // GGUF (of the first part); empty otherwise
  uint32_t gguf_version() const { return gguf_version_; }
  // Hugging Face: the files beside the weights, null where absent.
  const Json& config() const { return config_; }
  const Json& generation_config() const { return generation_config_; }
  const Json& tokenizer_config() const { return tokenizer_config_; }
  const std::optional<std::filesystem::path>& tokenizer_json() const { return tokenizer_json_; }
  // Of sentence-transformers: modules.json as a list of {type, path, config}, the module's own config.json in the last;
  // tensors of a module are among tensors() as PATH.NAME. And config_sentence_transformers.json and
  // sentence_bert_config.json. Null where absent.
  const Json& modules() const { return modules_; }
  const Json& sentence_config() const { return sentence_config_; }
  const Json& sentence_limits() const { return sentence_limits_; }
  // From chat_template.jinja, else tokenizer_config.json (the one named "default" if there are several), or from the
  // GGUF.
  const std::optional<std::string>& chat_template() const { return chat_template_; }

 private:
  Result<std::shared_ptr<const MappedFile>> map(const std::filesystem::path& path);
  Result<void> open_as_found(bool directory);
  Result<void> open_file();
  Result<void> open_gguf(std::shared_ptr<const MappedFile> file);
  Result<void> add_gguf(std::shared_ptr<const MappedFile> file);
  Result<void> add_gguf_parts(int64_t parts);
  Result<void> open_directory();
  Result<void> read_side_files();
  Result<void> read_modules();
  Result<void> add_safetensors(const std::filesystem::path& file, std::string_view prefix = {});
  Result<void> add_weights();
  Result<void> index_names();

  Kind kind_ = Kind::gguf;
  std::filesystem::path path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<std::shared_ptr<const MappedFile>> seen_;  // all that were looked into, while it is being opened
  std::vector<StoredTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, sorted by name
  uint64_t file_bytes_ = 0;
  Metadata metadata_;
  uint32_t gguf_version_ = 0;
  Json config_, generation_config_, tokenizer_config_, modules_, sentence_config_, sentence_limits_;
  std::optional<std::filesystem::path> tokenizer_json_;
  std::optional<std::string> chat_template_;
};

// A sentence naming the quantisation that keeps us from using these weights as they are (GPTQ, scaled FP8, a GGUF type
// that is not readable, ...) and what to use instead; nothing if there is none.
std::optional<std::string> unsupported_quantisation(const Checkpoint& checkpoint);

}  // namespace millrace
