#include "shrink/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "model/convert.h"
#include "tensor/gguf_writer.h"

namespace millrace {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

// All numbers of a small tensor, whole and not negative.
Result<std::vector<double>> read_numbers(const StoredTensor& tensor) {
  std::vector<double> numbers;
  if (tensor.type == DType::f64) {
    numbers.resize(tensor.bytes.size() / sizeof(double));
    if (!numbers.empty()) std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.type == DType::f32) {
    TRY(const std::vector<float> floats, read_floats(tensor));
    numbers.assign(floats.begin(), floats.end());
  } else {
    return error(Code::invalid, "'{}' has format {}: expected F32", tensor.name, format(tensor.type).name);
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!(numbers[i] >= 0) || std::isinf(numbers[i]))
      return error(Code::corrupt, "'{}' has {} at {}: expected numbers from 0 up", tensor.name, numbers[i], i);
  }
  return numbers;
}

using ByName = std::unordered_map<std::string_view, const StoredTensor*>;

Result<InputSquares> read_entry(const ByName& tensors, const StoredTensor& sums, std::string name) {
  InputSquares entry;
  entry.name = std::move(name);
  const auto found = tensors.find(entry.name + std::string(kCounts));
  if (found == tensors.end()) return error(Code::corrupt, "'{}' has sums but no counts", entry.name);
  const StoredTensor* counts = found->second;
  entry.cols = sums.cols();
  entry.experts = sums.rows();
  if (counts->values() != entry.experts) {
    return error(Code::corrupt, "'{}' has sums of {} matrices and {} counts", entry.name, entry.experts,
                 counts->values());
  }
  TRY(entry.sums, read_numbers(sums));
  TRY(entry.counts, read_numbers(*counts));
  return entry;
}

Result<void> put_keys(GgufWriter& writer, const Importance& importance) {
  TRY_VOID(writer.put("general.type", "imatrix"));
  TRY_VOID(writer.put("imatrix.datasets", std::span<const std::string>(importance.datasets)));
  TRY_VOID(writer.put("imatrix.chunk_count", static_cast<uint32_t>(importance.chunks)));
  TRY_VOID(writer.put("imatrix.chunk_size", static_cast<uint32_t>(importance.chunk_tokens)));
  if (!importance.of.empty()) TRY_VOID(writer.put("millrace.calibrate.of", importance.of));
  return {};
}

Result<void> write_numbers(GgufWriter& writer, const std::vector<double>& numbers, bool exact) {
  if (exact) return writer.write(std::as_bytes(std::span(numbers)));
  const std::vector<float> floats(numbers.begin(), numbers.end());
  return writer.write(std::as_bytes(std::span(floats)));
}

}  // namespace

const InputSquares* Importance::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const InputSquares& each, std::string_view key) { return each.name < key; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

Result<Importance> read_importance(const Metadata& metadata, std::span<const StoredTensor> tensors) {
  TRY(const std::string type, metadata.get_string("general.type", "model"));
  if (type != "imatrix")
    return error(Code::invalid, "is a '{}' file, not an imatrix; make one with `millrace calibrate`", type);
  Importance out;
  TRY(out.chunks, metadata.get_int("imatrix.chunk_count", 0));
  TRY(out.chunk_tokens, metadata.get_int("imatrix.chunk_size", 0));
  TRY(out.of, metadata.get_string("millrace.calibrate.of", ""));
  if (const MetaArray* datasets = metadata.find_array("imatrix.datasets")) {
    TRY(const auto names, datasets->strings());
    out.datasets.assign(names.begin(), names.end());
  }
  ByName by_name;
  for (const StoredTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  for (const StoredTensor& tensor : tensors) {
    if (!tensor.name.ends_with(kSums)) continue;
    TRY(InputSquares entry, read_entry(by_name, tensor, tensor.name.substr(0, tensor.name.size() - kSums.size())));
    out.tensors.push_back(std::move(entry));
  }
  if (out.tensors.empty()) return error(Code::invalid, "has no tensor NAME{}, so it says nothing", kSums);
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const InputSquares& a, const InputSquares& b) { return a.name < b.name; });
  return out;
}

Result<Importance> read_importance(const Checkpoint& checkpoint) {
  const std::string path = checkpoint.path().string();
  if (checkpoint.kind() != Checkpoint::Kind::gguf)
    return error(Code::invalid, "{}: is no GGUF file; make one with `millrace calibrate`", path);
  auto read = read_importance(checkpoint.metadata(), checkpoint.tensors());
  TRY_VOID(checkpoint.unchanged());
  if (!read.ok()) return within(path, std::move(read).error());
  return read;
}

Result<void> write_importance(const Importance& importance, const std::filesystem::path& path, bool exact) {
  GgufWriter writer;
  TRY_VOID(put_keys(writer, importance));
  const DType type = exact ? DType::f64 : DType::f32;
  for (const InputSquares& each : importance.tensors) {
    TRY_VOID(writer.add(each.name + std::string(kSums), type, {each.experts, each.cols}));
    TRY_VOID(writer.add(each.name + std::string(kCounts), type, {each.experts, 1}));
  }
  TRY_VOID(writer.begin(path));
  for (const InputSquares& each : importance.tensors) {
    TRY_VOID(write_numbers(writer, each.sums, exact));
    TRY_VOID(write_numbers(writer, each.counts, exact));
  }
  return writer.finish();
}

Result<ColumnWeights> ColumnWeights::match(const Importance& importance, const ModelSource& source, bool head) {
  ColumnWeights out;
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind != SlotKind::matrix || !slot.weight || slot.use == WeightUse::table || slot.float32) continue;
    const bool is_head = slot.layer < 0 && (slot.name == "output" || slot.name == "token_embd");
    if (is_head && !head) continue;
    const InputSquares* found = importance.find(file_tensor(source, slot));
    if (found == nullptr) {
      ++out.missing_;
      continue;
    }
    if (found->cols != slot.cols || found->experts != slot.matrices()) {
      return error(Code::invalid,
                   "the imatrix is another model's: {} has {} inputs of {} matrices there, and {} of {} in the model",
                   found->name, found->cols, found->experts, slot.cols, slot.matrices());
    }
    ++out.matched_;
    Entry entry = {.slot = slot.name, .experts = std::vector<std::vector<float>>(static_cast<size_t>(found->experts))};
    for (size_t e = 0; e < entry.experts.size(); ++e) {
      if (!(found->counts[e] > 0)) continue;
      for (size_t c = 0; c < static_cast<size_t>(slot.cols); ++c) {
        const double mean = found->sums[e * static_cast<size_t>(slot.cols) + c] / found->counts[e];
        entry.experts[e].push_back(static_cast<float>(std::min(mean, 1e30)));
      }
    }
    out.entries_.push_back(std::move(entry));
  }
  if (out.matched_ == 0) {
    return error(Code::invalid,
                 "the imatrix is another model's: none of its {} tensors is one of the model's, such as {}",
                 importance.tensors.size(), file_tensor(source, slots(source.spec()).back()));
  }
  std::sort(out.entries_.begin(), out.entries_.end(), [](const Entry& a, const Entry& b) { return a.slot < b.slot; });
  return out;
}

std::span<const float> ColumnWeights::of(const Slot& slot, int64_t expert) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), slot.name,
                                      [](const Entry& each, const std::string& name) { return each.slot < name; });
  if (found == entries_.end() || found->slot != slot.name) return {};
  return found->experts[static_cast<size_t>(expert)];
}

}  // namespace millrace
