// Checkpoint: a model as it lies on disk, whatever its layout: a GGUF file (or the first of its parts), a Hugging Face
// directory, or one safetensors file. It maps files and checks that every byte is accounted for; it knows nothing of
// architectures (model/load does). Open once, then read from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/metadata.h"

namespace millrace {

struct StoredTensor {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;        // outermost first, as in Hugging Face files: [rows, cols]
  std::span<const std::byte> bytes;  // into the mapped file

  int64_t values() const;  // product of the shape (checked when the file was opened)
};

class Checkpoint {
 public:
  enum class Kind { gguf, hugging_face, safetensors };

  static Result<Checkpoint> open(const std::filesystem::path& path);

  Kind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }  // as given
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  uint64_t file_bytes() const { return file_bytes_; }

  const Metadata& metadata() const { return metadata_; }  // GGUF; empty otherwise
  uint32_t gguf_version() const { return gguf_version_; }
  // Hugging Face: the files beside the weights, null where absent.
  const Json& config() const { return config_; }
  const Json& generation_config() const { return generation_config_; }
  const Json& tokenizer_config() const { return tokenizer_config_; }
  const std::optional<std::filesystem::path>& tokenizer_json() const { return tokenizer_json_; }
  const std::optional<std::string>& chat_template() const {
    return chat_template_;
  }  // from tokenizer_config, chat_template.jinja or GGUF

 private:
  Kind kind_ = Kind::gguf;
  std::filesystem::path path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  uint64_t file_bytes_ = 0;
  Metadata metadata_;
  uint32_t gguf_version_ = 0;
  Json config_, generation_config_, tokenizer_config_;
  std::optional<std::filesystem::path> tokenizer_json_;
  std::optional<std::string> chat_template_;
};

}  // namespace millrace
