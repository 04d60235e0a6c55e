#include "model/directory.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "base/file.h"
#include "model/directory_config.h"
#include "model/file_names.h"
#include "tensor/safetensors_writer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A tensor by the name that tables have; files may have other words before it.
const StoredTensor* find_tensor(const Checkpoint& checkpoint, std::string_view name) {
  if (const StoredTensor* found = checkpoint.find(name)) return found;
  if (name.starts_with("model.")) name.remove_prefix(6);
  if (const StoredTensor* found = checkpoint.find(name)) return found;
  const std::string ending = "." + std::string(name);
  for (const StoredTensor& each : checkpoint.tensors()) {
    if (each.name.ends_with(ending)) return &each;
  }
  return nullptr;
}

bool is_plain(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

// A slot, or one of its experts, within a tensor.
struct Share {
  Slot slot;
  int64_t expert = 0;
  bool bias = false;
  StoredAt at;
};

class DirectoryWriter {
 public:
  DirectoryWriter(const ModelSource& source, const ModelSource& original, const DirectoryOptions& options)
      : source_(source), original_(original), options_(options) {}

  Result<DirectoryReport> run(const fs::path& folder) {
    collect();
    TRY_VOID(list_tensors());
    TRY_VOID(writer_.begin(folder / "model.safetensors"));
    report_.bytes = writer_.file_bytes();
    for (const StoredTensor& tensor : source_.checkpoint().tensors()) {
      auto written = packed_.contains(&tensor) ? write_packed(tensor) : write_plain(tensor);
      if (!written.ok()) return within(tensor.name, std::move(written).error());
      if (options_.progress && !options_.progress(done_, report_.bytes))
        return error(Code::cancelled, "writing was stopped");
    }
    TRY_VOID(source_.checkpoint().unchanged());
    TRY_VOID(writer_.finish());
    TRY_VOID(
        write_side_files(source_.checkpoint(), folder, {options_.layout, options_.grid, report_.kept, options_.maker}));
    return std::move(report_);
  }

 private:
  static std::string stem_of(const StoredTensor& tensor) {
    return tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size());
  }

  // Which slots lie in which tensor.
  void collect() {
    for (const Slot& slot : slots(source_.spec())) {
      for (int64_t e = 0; e < slot.matrices(); ++e) {
        if (slot.weight) add({slot, e, false, {}});
        if (slot.bias && slot.experts == 0) add({slot, e, true, {}});
      }
    }
    for (const auto& [tensor, shares] : shares_) {
      const Slot& first = shares.front().slot;
      if (shares.front().bias || first.kind != SlotKind::matrix || first.layer < 0) continue;
      if (options_.codes(first, shares.front().expert) != nullptr) {
        packed_.insert({tensor, true});
      } else if (tensor->name.ends_with(".weight")) {
        report_.kept.push_back(stem_of(*tensor));
      }
    }
    std::sort(report_.kept.begin(), report_.kept.end());
    report_.packed = static_cast<int>(packed_.size());
  }
  void add(Share share) {
    auto at = stored_at(source_, share.slot, share.expert, share.bias);
    if (!at) return;
    share.at = std::move(*at);
    shares_[share.at.tensor].push_back(std::move(share));
  }

  // The whole tensor's codes out of those of its slots.
  GroupedCodes codes_of(const StoredTensor& tensor, bool shape_only) const {
    GroupedCodes out = {.grid = options_.grid, .rows = tensor.rows(), .cols = tensor.cols()};
    if (shape_only) return out;
    const auto cols = static_cast<size_t>(out.cols), groups = static_cast<size_t>(out.groups());
    out.codes.resize(static_cast<size_t>(out.rows) * cols);
    out.scales.resize(static_cast<size_t>(out.rows) * groups);
    out.zeros.resize(out.scales.size());
    for (const Share& share : shares_.at(&tensor)) {
      const GroupedCodes* part = options_.codes(share.slot, share.expert);
      CHECK(part != nullptr && part->cols == out.cols, "{} has codes", share.slot.name);
      for (size_t r = 0; r < static_cast<size_t>(part->rows); ++r) {
        const size_t to = share.at.rows.empty() ? r : static_cast<size_t>(share.at.rows[r]);
        std::copy_n(&part->codes[r * cols], cols, &out.codes[to * cols]);
        std::copy_n(&part->scales[r * groups], groups, &out.scales[to * groups]);
        std::copy_n(&part->zeros[r * groups], groups, &out.zeros[to * groups]);
      }
    }
    return out;
  }

  Result<void> list_tensors() {
    for (const StoredTensor& tensor : source_.checkpoint().tensors()) {
      if (!packed_.contains(&tensor)) {
        TRY_VOID(writer_.add(tensor.name, tensor.type, tensor.shape));
        ++report_.tensors;
        continue;
      }
      for (const PackedTensor& each : pack(options_.layout, codes_of(tensor, false))) {
        TRY_VOID(writer_.add(stem_of(tensor) + "." + each.ending, each.type, each.shape));
        ++report_.tensors;
      }
    }
    return {};
  }

  Result<void> put(std::span<const std::byte> bytes) {
    done_ += bytes.size();
    return writer_.write(bytes);
  }

  Result<void> write_packed(const StoredTensor& tensor) {
    for (const PackedTensor& each : pack(options_.layout, codes_of(tensor, false))) TRY_VOID(put(each.bytes));
    return {};
  }

  static Result<std::vector<float>> numbers_of(const ModelSource& source, const Share& share) {
    if (share.bias) return source.bias(share.slot);
    if (share.slot.kind == SlotKind::norm) return source.norm_weight(share.slot);
    if (share.slot.kind == SlotKind::vector) return source.vector(share.slot);
    std::vector<std::byte> room;
    TRY(const HostMatrix matrix, source.matrix(share.slot, share.expert, room));
    std::vector<float> out(static_cast<size_t>(matrix.rows * matrix.cols));
    format(matrix.type).to_float(matrix.bytes.data(), out.data(), matrix.rows * matrix.cols);
    return out;
  }

  // As it was, but for what was put instead.
  Result<void> write_plain(const StoredTensor& tensor) {
    const auto found = shares_.find(&tensor);
    if (found == shares_.end() || !is_plain(tensor.type)) return put(tensor.bytes);
    std::vector<float> whole;
    for (const Share& share : found->second) {
      if (!can_write(source_, share.slot)) continue;
      TRY(const std::vector<float> before, numbers_of(original_, share));
      TRY(const std::vector<float> now, numbers_of(source_, share));
      if (before == now) continue;
      if (whole.empty()) {
        TRY(whole, read_floats(tensor));
      }
      const size_t cols = share.slot.kind == SlotKind::matrix && !share.bias ? static_cast<size_t>(share.slot.cols) : 1;
      for (size_t i = 0; i < now.size(); ++i) {
        const size_t row = share.at.rows.empty() ? i / cols : static_cast<size_t>(share.at.rows[i / cols]);
        whole[row * cols + i % cols] = now[i] - (share.at.less_one ? 1.0f : 0.0f);
      }
    }
    if (whole.empty()) return put(tensor.bytes);
    std::vector<std::byte> bytes(tensor.bytes.size());
    format(tensor.type).from_float(whole.data(), bytes.data(), static_cast<int64_t>(whole.size()));
    return put(bytes);
  }

  const ModelSource &source_, &original_;
  const DirectoryOptions& options_;
  SafetensorsWriter writer_;
  DirectoryReport report_;
  std::map<const StoredTensor*, std::vector<Share>> shares_;
  std::map<const StoredTensor*, bool> packed_;
  uint64_t done_ = 0;
};

// A folder that goes away again unless it is kept.
class PartFolder {
 public:
  explicit PartFolder(const fs::path& target) : path_(target) { path_ += fmt::format(".part-{}", getpid()); }
  ~PartFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  PartFolder(const PartFolder&) = delete;
  PartFolder& operator=(const PartFolder&) = delete;

  const fs::path& path() const { return path_; }
  Result<void> make() const {
    std::error_code failed;
    fs::create_directory(path_, failed);
    if (failed) return error(Code::io, "{}: cannot make the directory: {}", path_.string(), failed.message());
    return {};
  }
  Result<void> keep(const fs::path& target) {
    std::error_code failed;
    fs::rename(path_, target, failed);
    if (failed) return error(Code::io, "{}: cannot name the directory so: {}", target.string(), failed.message());
    path_.clear();
    return {};
  }

 private:
  fs::path path_;
};

}  // namespace

std::optional<StoredAt> stored_at(const ModelSource& source, const Slot& slot, int64_t expert, bool bias) {
  const Checkpoint& checkpoint = source.checkpoint();
  if (checkpoint.kind() != Checkpoint::Kind::hugging_face) return std::nullopt;
  const Architecture& architecture = source.architecture();
  for (const FileName& each : file_names(architecture, slot, false, false)) {
    const bool apart = each.take == Take::per_expert;
    const std::string stem = apart ? numbered(each.name, expert) : each.name;
    const StoredTensor* tensor =
        find_tensor(checkpoint, stem + (bias ? (each.bare ? "_bias" : ".bias") : (each.bare ? "" : ".weight")));
    if (tensor == nullptr) continue;
    if (!is_plain(tensor->type) || each.change != Change::none || each.take == Take::latent_k ||
        each.take == Take::latent_v || each.take == Take::per_head || (slot.experts > 0 && !apart))
      return std::nullopt;
    StoredAt at = {.tensor = tensor, .rows = {}};
    if (slot.kind == SlotKind::matrix) at.rows = stored_order(source.spec(), slot, each.take, false);
    at.transposed =
        slot.kind == SlotKind::matrix && !bias && (each.transposed || (architecture.transposed && slot.layer >= 0));
    at.less_one = slot.kind == SlotKind::norm && !bias && architecture.norms_plus_one && !slot.plain;
    return at;
  }
  return std::nullopt;
}

bool can_write(const ModelSource& source, const Slot& slot) {
  if (slot.kind == SlotKind::vector) return false;
  for (int64_t e = 0; e < slot.matrices(); ++e) {
    const auto weight = slot.weight ? stored_at(source, slot, e, false) : std::optional(StoredAt{});
    if (!weight || weight->transposed) return false;
    if (slot.bias && (slot.experts > 0 || !stored_at(source, slot, e, true))) return false;
  }
  return true;
}

bool can_pack(const ModelSource& source, const Slot& slot, PackLayout layout, const CodeGrid& grid) {
  if (slot.kind != SlotKind::matrix || !slot.weight || slot.float32 || slot.layer < 0 || slot.use != WeightUse::linear)
    return false;
  for (int64_t e = 0; e < slot.matrices(); ++e) {
    const auto at = stored_at(source, slot, e, false);
    if (!at || at->transposed || at->tensor->shape.size() != 2 || !at->tensor->name.ends_with(".weight") ||
        at->tensor->cols() != slot.cols || !unpackable(layout, grid, at->tensor->rows(), slot.cols).empty())
      return false;
  }
  return true;
}

Result<DirectoryReport> write_directory(const ModelSource& source, const fs::path& target,
                                        const DirectoryOptions& options) {
  TRY(const ModelSource original, ModelSource::open(source.checkpoint()));
  PartFolder part(target);
  TRY_VOID(part.make());
  TRY(DirectoryReport report, DirectoryWriter(source, original, options).run(part.path()));
  TRY_VOID(part.keep(target));
  return report;
}

}  // namespace millrace
