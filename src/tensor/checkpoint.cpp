#include "tensor/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <system_error>

#include "base/check.h"
#include "tensor/gguf.h"
#include "tensor/hugging_face.h"
#include "tensor/identify.h"
#include "tensor/safetensors.h"
#include "tensor/side_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSideFile = size_t{64} << 20;

bool is_gguf(std::span<const std::byte> file) { return file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0; }

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// NAME-00002-of-00005.gguf taken apart: name "NAME", part 2, parts 5.
struct PartName {
  std::string name;
  uint32_t part = 0, parts = 0;
};

std::optional<PartName> split_name(std::string_view file, std::string_view ending) {
  constexpr size_t kTail = std::string_view("-00000-of-00000").size();
  if (!file.ends_with(ending)) return std::nullopt;
  file.remove_suffix(ending.size());
  if (file.size() <= kTail) return std::nullopt;
  const std::string_view tail = file.substr(file.size() - kTail);
  PartName out = {std::string(file.substr(0, file.size() - kTail)), 0, 0};
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  for (int i = 0; i < 5; ++i) {
    const char part = tail[static_cast<size_t>(1 + i)], parts = tail[static_cast<size_t>(10 + i)];
    if (part < '0' || part > '9' || parts < '0' || parts > '9') return std::nullopt;
    out.part = out.part * 10 + static_cast<uint32_t>(part - '0');
    out.parts = out.parts * 10 + static_cast<uint32_t>(parts - '0');
  }
  return out;
}

// Names of the plain files of a directory, sorted; what cannot be listed is left out.
std::vector<std::string> list_files(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Error no_config(const fs::path& directory) {
  for (const std::string& name : list_files(directory)) {
    if (name.ends_with(".gguf")) {
      return error(Code::not_found, "{}: has no config.json, but holds {}: give the path of that file",
                   directory.string(), name);
    }
  }
  if (is_there(directory / "snapshots")) {
    return error(Code::not_found, "{}: is a download cache: give one of the directories in {} that has a config.json",
                 directory.string(), (directory / "snapshots").string());
  }
  return error(
      Code::not_found,
      "{}: has no config.json, so it is no Hugging Face model: give a directory with config.json and *.safetensors, or "
      "a GGUF file",
      directory.string());
}

Error no_weights(const fs::path& directory) {
  const std::vector<std::string> names = list_files(directory);
  for (const std::string& name : names) {
    if (name == "adapter_model.safetensors" || name == "adapter_config.json") {
      return error(Code::unsupported, "{}: is a LoRA adapter, not a whole model: give the model it was made for",
                   directory.string());
    }
    if (name.ends_with(".safetensors")) {
      return error(Code::not_found,
                   "{}: holds several .safetensors files but no model.safetensors.index.json that says how they belong "
                   "together: download the index too",
                   directory.string());
    }
    if ((name.starts_with("pytorch_model") && name.ends_with(".bin")) || name.ends_with(".pt") ||
        name.ends_with(".pth")) {
      return error(
          Code::unsupported,
          "{}: holds its weights only as pickle ({}), which can carry code and is never loaded: get the model's "
          "safetensors files, or convert it with the tool that made it",
          directory.string(), name);
    }
  }
  return error(
      Code::not_found,
      "{}: has a config.json but no weights: download model.safetensors (or all of model-*-of-*.safetensors and their "
      "index) into it",
      directory.string());
}

Result<GgufFile> parse_mapped_gguf(const MappedFile& file) {
  if (!is_gguf(file.bytes())) return within(file.path().string(), unknown_file(file.bytes()));
  Result<GgufFile> parsed = parse_gguf(file.bytes());
  if (!parsed.ok()) return within(file.path().string(), std::move(parsed).error());
  return parsed;
}

// A JSON file beside the weights, in the model's folder or one inside: null if it is not there.
Result<Json> read_json(const fs::path& folder, const fs::path& name) {
  const fs::path path = folder / name;
  if (!is_there(path)) return Json(nullptr);
  TRY(const std::string text, read_side_file(folder, path, kMaxSideFile));
  Result<Json> json = parse_config(text);
  if (!json.ok()) return within(path.string(), std::move(json).error());
  return json;
}

// The one weight file of a directory that has no model.safetensors: some makers choose another name.
std::optional<std::string> only_safetensors(const fs::path& directory) {
  std::optional<std::string> found;
  for (const std::string& name : list_files(directory)) {
    if (!name.ends_with(".safetensors") || name.starts_with("adapter_")) continue;
    if (found) return std::nullopt;
    found = name;
  }
  return found;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) {
    return error(
        Code::not_found,
        "{}: does not exist: check the path; models are opened from local files, so a model from a hub must be "
        "downloaded first",
        path.string());
  }
  if (!fs::status_known(status)) return error(Code::io, "{}: cannot be reached: {}", path.string(), code.message());
  if (!fs::is_directory(status) && !fs::is_regular_file(status)) {
    return error(Code::invalid, "{}: is neither a file nor a directory: give a GGUF file or a Hugging Face directory",
                 path.string());
  }
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  Result<void> opened = checkpoint.open_as_found(fs::is_directory(status));
  // What is wrong with a file that changes meanwhile is that it changes, whatever else was found in it.
  for (const auto& file : checkpoint.seen_) TRY_VOID(file->unchanged());
  TRY_VOID(std::move(opened));
  checkpoint.seen_.clear();
  for (const auto& file : checkpoint.files_) checkpoint.file_bytes_ += file->bytes().size();
  return checkpoint;
}

Result<void> Checkpoint::open_as_found(bool directory) {
  TRY_VOID(directory ? open_directory() : open_file());
  return index_names();
}

Result<std::shared_ptr<const MappedFile>> Checkpoint::map(const fs::path& path) {
  TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  seen_.push_back(file);
  return file;
}

Result<void> Checkpoint::unchanged() const {
  for (const auto& file : files_) TRY_VOID(file->unchanged());
  return {};
}

std::vector<FileState> Checkpoint::states() const {
  std::vector<FileState> found;
  for (const auto& file : files_) found.push_back(file->state());
  return found;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Result<void> Checkpoint::index_names() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const std::string& name = tensors_[by_name_[i]].name;
    if (tensors_[by_name_[i - 1]].name == name) {
      return error(Code::corrupt, "{}: two of its files hold a tensor {}: files of different models are mixed",
                   path_.string(), in_quotes(name));
    }
  }
  return {};
}

Result<void> Checkpoint::open_file() {
  TRY(std::shared_ptr<const MappedFile> file, map(path_));
  if (is_gguf(file->bytes())) return open_gguf(std::move(file));
  if (!looks_like_safetensors(file->bytes())) return within(path_.string(), unknown_file(file->bytes()));
  const auto part = split_name(path_.filename().string(), ".safetensors");
  if (part && part->parts > 1) {
    return error(Code::invalid, "{}: is part {} of {}: give the directory that holds all parts", path_.string(),
                 part->part, part->parts);
  }
  kind_ = Kind::safetensors;
  return add_safetensors(path_);
}

Result<void> Checkpoint::add_safetensors(const fs::path& path, std::string_view prefix) {
  TRY(std::shared_ptr<const MappedFile> file, map(path));
  if (!looks_like_safetensors(file->bytes())) return within(path.string(), unknown_file(file->bytes()));
  Result<SafetensorsFile> parsed = parse_safetensors(file->bytes());
  if (!parsed.ok()) return within(path.string(), std::move(parsed).error());
  for (StoredTensor& tensor : parsed->tensors) {
    if (!prefix.empty()) tensor.name.insert(0, prefix);
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  return {};
}

Result<void> Checkpoint::open_directory() {
  kind_ = Kind::hugging_face;
  if (!is_there(path_ / "config.json")) return no_config(path_);
  TRY_VOID(read_side_files());
  TRY_VOID(add_weights());
  return read_modules();
}

Result<void> Checkpoint::add_weights() {
  if (is_there(path_ / "model.safetensors")) return add_safetensors(path_ / "model.safetensors");
  const fs::path index_path = path_ / "model.safetensors.index.json";
  if (!is_there(index_path)) {
    const std::optional<std::string> only = only_safetensors(path_);
    return only ? add_safetensors(path_ / *only) : no_weights(path_);
  }
  TRY(const std::string text, read_side_file(path_, index_path, kMaxSafetensorsHeader));
  Result<ShardIndex> index = parse_shard_index(text);
  if (!index.ok()) return within(index_path.string(), std::move(index).error());
  for (size_t i = 0; i < index->files.size(); ++i) {
    if (!is_there(path_ / index->files[i])) {
      return error(Code::not_found,
                   "{}: {} is missing, one of the {} files its index names: download it into the directory",
                   path_.string(), index->files[i], index->files.size());
    }
    TRY_VOID(add_safetensors(path_ / index->files[i]));
  }
  TRY_VOID(index_names());
  for (const auto& [name, file] : index->tensors) {
    if (find(name) != nullptr) continue;
    return error(Code::corrupt, "{}: {} should hold tensor {} but does not: files of different versions are mixed",
                 path_.string(), index->files[file], in_quotes(name));
  }
  return {};
}

// The modules after the model itself: folders beside it, each with its settings and perhaps weights.
Result<void> Checkpoint::read_modules() {
  const fs::path list = path_ / "modules.json";
  if (!is_there(list)) return {};
  TRY(const std::string text, read_side_file(path_, list, kMaxSideFile));
  Result<Json> parsed = parse_json(text);
  if (!parsed.ok()) return within(list.string(), std::move(parsed).error());
  constexpr size_t kMostModules = 32;
  if (!parsed->is_array() || parsed->get_array().size() > kMostModules)
    return error(Code::invalid, "{}: should be a list of at most {} modules", list.string(), kMostModules);
  for (Json& module : parsed->get_array()) {
    TRY(const std::string folder, get_string(module, "path", ""));
    if (folder.empty()) continue;
    const bool plain =
        folder.size() <= 64 && folder != "." && folder != ".." && folder.find_first_of("/\\") == std::string::npos;
    if (!plain || !module.is_object())
      return error(Code::invalid, "{}: {} is no folder beside it", list.string(), in_quotes(folder));
    TRY(Json config, read_json(path_, fs::path(folder) / "config.json"));
    module.get_object()["config"] = std::move(config);
    if (const fs::path weights = path_ / folder / "model.safetensors"; is_there(weights))
      TRY_VOID(add_safetensors(weights, folder + "."));
  }
  modules_ = std::move(*parsed);
  return {};
}

Result<void> Checkpoint::read_side_files() {
  TRY(sentence_config_, read_json(path_, "config_sentence_transformers.json"));
  TRY(sentence_limits_, read_json(path_, "sentence_bert_config.json"));
  TRY(config_, read_json(path_, "config.json"));
  TRY(generation_config_, read_json(path_, "generation_config.json"));
  TRY(tokenizer_config_, read_json(path_, "tokenizer_config.json"));
  if (const fs::path path = path_ / "tokenizer.json"; is_there(path)) {
    TRY_VOID(check_side_file(path_, path));
    tokenizer_json_ = path;
  }
  chat_template_ = chat_template_of(tokenizer_config_);
  if (const fs::path path = path_ / "chat_template.jinja"; is_there(path)) {
    TRY(std::string text, read_side_file(path_, path, kMaxSideFile));
    chat_template_ = std::move(text);
  }
  return {};
}

Result<void> Checkpoint::open_gguf(std::shared_ptr<const MappedFile> opened) {
  kind_ = Kind::gguf;
  TRY(const GgufFile seen, parse_mapped_gguf(*opened));
  TRY(const int64_t parts, seen.metadata.get_int("split.count", 0));
  if (parts > 1) {
    TRY_VOID(add_gguf_parts(parts));
  } else {
    TRY_VOID(add_gguf(std::move(opened)));
  }
  TRY(std::string chat, metadata_.get_string("tokenizer.chat_template", ""));
  if (!chat.empty()) chat_template_ = std::move(chat);
  return {};
}

Result<void> Checkpoint::add_gguf(std::shared_ptr<const MappedFile> file) {
  TRY(GgufFile parsed, parse_mapped_gguf(*file));
  std::move(parsed.tensors.begin(), parsed.tensors.end(), std::back_inserter(tensors_));
  if (files_.empty()) {
    metadata_ = std::move(parsed.metadata);
    gguf_version_ = parsed.version;
  }
  files_.push_back(std::move(file));
  return {};
}

Result<void> Checkpoint::add_gguf_parts(int64_t parts) {
  const auto named = split_name(path_.filename().string(), ".gguf");
  if (!named || static_cast<int64_t>(named->parts) != parts) {
    return error(
        Code::invalid,
        "{}: is one of {} parts of a model, but its name does not say which: keep the names NAME-00001-of-{:05}.gguf "
        "of the download",
        path_.string(), parts, parts);
  }
  for (int64_t part = 0; part < parts; ++part) {
    const fs::path path = path_.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", named->name, part + 1, parts);
    if (!is_there(path)) {
      return error(Code::not_found, "{}: part {} of {} is missing ({}): download it into the same directory",
                   path_.string(), part + 1, parts, path.filename().string());
    }
    TRY(std::shared_ptr<const MappedFile> file, map(path));
    TRY(const GgufFile seen, parse_mapped_gguf(*file));
    TRY(const int64_t number, seen.metadata.get_int("split.no", 0));
    TRY(const int64_t count, seen.metadata.get_int("split.count", 0));
    if (number != part || count != parts) {
      return error(Code::corrupt, "{}: says it is part {} of {}: files of different models are mixed", path.string(),
                   number + 1, count);
    }
    TRY_VOID(add_gguf(std::move(file)));
  }
  TRY(const int64_t tensors, metadata_.get_int("split.tensors.count", static_cast<int64_t>(tensors_.size())));
  if (tensors != static_cast<int64_t>(tensors_.size())) {
    return error(Code::corrupt,
                 "{}: its parts hold {} tensors together, but should hold {}: files of different models are mixed",
                 path_.string(), tensors_.size(), tensors);
  }
  return {};
}

// ---- StoredTensor
// -------------------------------------------------------------------------------------------------------

int64_t StoredTensor::values() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

int64_t StoredTensor::rows() const {
  if (shape.size() < 2) return 1;
  return std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<int64_t>());
}

int64_t StoredTensor::cols() const { return shape.empty() ? 1 : shape.back(); }

Tensor StoredTensor::view() const {
  const int64_t columns = cols();
  return {const_cast<std::byte*>(bytes.data()), type, rows(), columns, bytes_of(type, columns)};
}

Result<void> read_rows(const StoredTensor& tensor, int64_t first, int64_t count, std::span<float> out) {
  const Format& f = format(tensor.type);
  const int64_t cols = tensor.cols(), rows = tensor.rows();
  CHECK(first >= 0 && count >= 0 && first <= rows && count <= rows - first, "rows {} to {} of {}", first, first + count,
        rows);
  CHECK(static_cast<int64_t>(out.size()) == count * cols, "{} numbers for {} rows of {}", out.size(), count, cols);
  if (!f.readable()) {
    return error(Code::unsupported, "tensor {} is in {}, which cannot be read", in_quotes(tensor.name), f.name);
  }
  f.to_float(tensor.bytes.data() + first * bytes_of(tensor.type, cols), out.data(), count * cols);
  return {};
}

Result<std::vector<float>> read_floats(const StoredTensor& tensor) {
  std::vector<float> out(format(tensor.type).readable() ? static_cast<size_t>(tensor.values()) : 0);
  TRY_VOID(read_rows(tensor, 0, format(tensor.type).readable() ? tensor.rows() : 0, out));
  return out;
}

}  // namespace millrace
