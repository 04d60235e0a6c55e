// How a source hands out numbers: rows in the model's order, out of fused, transposed, scaled or permuted tensors.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "model/file_names.h"
#include "model/mixers/mixers.h"
#include "model/source.h"

namespace millrace {
namespace {

// Rows of the slot out of the columns of a matrix [inputs, outputs], a square tile at a time so that both sides stay in
// the cache.
template <class T>
void transpose(const std::byte* in, int64_t stored_cols, const Slot& slot, const std::vector<int64_t>& rows,
               std::byte* out) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < slot.rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < slot.cols; c0 += kTile) {
      for (int64_t r = r0; r < std::min(r0 + kTile, slot.rows); ++r) {
        const int64_t from = rows.empty() ? r : rows[static_cast<size_t>(r)];
        for (int64_t c = c0; c < std::min(c0 + kTile, slot.cols); ++c) {
          std::memcpy(out + (r * slot.cols + c) * static_cast<int64_t>(sizeof(T)),
                      in + (c * stored_cols + from) * static_cast<int64_t>(sizeof(T)), sizeof(T));
        }
      }
    }
  }
}

// One expert of a tensor that holds all of them.
std::span<const std::byte> expert_bytes(const StoredTensor& tensor, int64_t expert, int64_t experts) {
  const size_t each = tensor.bytes.size() / static_cast<size_t>(experts);
  return tensor.bytes.subspan(static_cast<size_t>(expert) * each, each);
}

// The matrix in float32.
HostMatrix widened(const HostMatrix& matrix, std::vector<std::byte>& room) {
  const int64_t values = matrix.rows * matrix.cols;
  std::vector<std::byte> numbers(static_cast<size_t>(bytes_of(DType::f32, values)));
  format(matrix.type).to_float(matrix.bytes.data(), reinterpret_cast<float*>(numbers.data()), values);
  room = std::move(numbers);
  return {.type = DType::f32, .rows = matrix.rows, .cols = matrix.cols, .bytes = room};
}

}  // namespace

std::vector<int64_t> ModelSource::rows_of(const Slot& slot, Take take) const {
  return stored_order(spec_, slot, take, is_gguf() && architecture_->gguf.permuted);
}

HostMatrix ModelSource::unpacked(const Slot& slot, const Location& part, int64_t expert, std::vector<int64_t> rows,
                                 std::vector<std::byte>& room) const {
  if (rows.empty()) {
    rows.resize(static_cast<size_t>(slot.rows));
    std::iota(rows.begin(), rows.end(), int64_t{0});
  }
  const bool apart = part.take == Take::per_expert;
  const StoredMatrix& stored = *part.stored[apart ? static_cast<size_t>(expert) : 0];
  if (slot.experts > 0 && !apart)
    for (int64_t& row : rows) row += expert * stored.rows() / slot.experts;
  const std::span<const int32_t> order = order_of(slot);
  HostMatrix out = {.type = order.empty() ? stored.type(keep_) : stored.ordered_type(),
                    .rows = slot.rows,
                    .cols = slot.cols,
                    .order = order};
  room.resize(static_cast<size_t>(bytes_of(out.type, slot.rows * slot.cols)));
  if (order.empty())
    stored.read(rows, keep_, room);
  else
    stored.read_ordered(rows, room);
  out.bytes = room;
  return out;
}

Result<HostMatrix> ModelSource::latent(const Slot& slot, const Location& part, int64_t head,
                                       std::vector<std::byte>& room) const {
  TakenRows taken = taken_rows(spec_.layers[static_cast<size_t>(slot.layer)].mixer, part.take);
  for (int64_t& row : taken.rows) row += head * taken.each;
  Slot stored = slot;
  stored.rows = static_cast<int64_t>(taken.rows.size());
  stored.cols = part.take == Take::latent_k ? slot.rows : slot.cols;
  const auto row_bytes = static_cast<size_t>(bytes_of(part.tensor->type, stored.cols));
  HostMatrix out = {.type = part.tensor->type,
                    .rows = stored.rows,
                    .cols = stored.cols,
                    .bytes = part.tensor->bytes.subspan(static_cast<size_t>(taken.rows.front()) * row_bytes,
                                                        taken.rows.size() * row_bytes)};
  if (!part.stored.empty()) {
    stored.experts = 0;  // rows of the one matrix that has all heads
    out = unpacked(stored, part, 0, taken.rows, room);
  }
  if (part.take == Take::latent_v) return out;
  // Keys are transposed: what was multiplied with a latent is multiplied with a query now.
  const auto values = static_cast<size_t>(slot.rows * slot.cols);
  std::vector<float> numbers(values), turned(values);
  format(out.type).to_float(out.bytes.data(), numbers.data(), slot.rows * slot.cols);
  for (int64_t r = 0; r < slot.rows; ++r) {
    for (int64_t c = 0; c < slot.cols; ++c)
      turned[static_cast<size_t>(r * slot.cols + c)] = numbers[static_cast<size_t>(c * slot.rows + r)];
  }
  const DType type = type_of(slot);
  room.resize(static_cast<size_t>(bytes_of(type, slot.rows * slot.cols)));
  format(type).from_float(turned.data(), room.data(), slot.rows * slot.cols);
  return HostMatrix{.type = type, .rows = slot.rows, .cols = slot.cols, .bytes = room};
}

Result<HostMatrix> ModelSource::matrix(const Slot& slot, int64_t expert, std::vector<std::byte>& room) const {
  if (const Edit* put = edit(slot, ".weight"))
    return HostMatrix{
        .type = put->type, .rows = slot.rows, .cols = slot.cols, .bytes = put->parts[static_cast<size_t>(expert)]};
  const Location& part = this->part(slot, ".weight");
  if (part.latent()) return latent(slot, part, expert, room);
  const bool apart = part.take == Take::per_expert;
  if (!part.stored.empty()) return unpacked(slot, part, expert, rows_of(slot, part.take), room);
  const StoredTensor& tensor = apart ? *find(numbered(part.name, expert)) : *part.tensor;
  HostMatrix out = {.type = tensor.type, .rows = slot.rows, .cols = slot.cols};
  const std::vector<int64_t> rows = rows_of(slot, part.take);
  const std::span<const std::byte> stored =
      slot.experts > 0 && !apart ? expert_bytes(tensor, expert, slot.experts) : tensor.bytes;
  const auto row_bytes = static_cast<size_t>(bytes_of(tensor.type, slot.cols));
  const bool in_order = rows.empty() || (rows.back() - rows.front() == slot.rows - 1 && std::ranges::is_sorted(rows));
  if (is_transposed(slot, part)) {
    room.resize(static_cast<size_t>(slot.rows) * row_bytes);
    const int64_t columns = stored_rows(spec_, slot, part.take);
    const auto size = static_cast<size_t>(format(tensor.type).group_bytes);
    if (size == 2) transpose<uint16_t>(stored.data(), columns, slot, rows, room.data());
    if (size == 4) transpose<uint32_t>(stored.data(), columns, slot, rows, room.data());
    out.bytes = room;
  } else if (in_order) {
    const size_t first = rows.empty() ? 0 : static_cast<size_t>(rows.front());
    out.bytes = stored.subspan(first * row_bytes, static_cast<size_t>(slot.rows) * row_bytes);
  } else {
    room.resize(static_cast<size_t>(slot.rows) * row_bytes);
    for (size_t r = 0; r < rows.size(); ++r)
      std::memcpy(&room[r * row_bytes], &stored[static_cast<size_t>(rows[r]) * row_bytes], row_bytes);
    out.bytes = room;
  }
  return slot.float32 && out.type != DType::f32 ? widened(out, room) : out;
}

std::vector<std::span<const std::byte>> ModelSource::places(const Slot& slot) const {
  std::vector<std::span<const std::byte>> found;
  if (edit(slot, ".weight") != nullptr) return found;
  const Location& part = this->part(slot, ".weight");
  for (int64_t i = 0; i < (part.take == Take::per_expert ? slot.experts : 1); ++i)
    found.push_back(part.take != Take::per_expert ? part.tensor->bytes
                    : part.stored.empty()         ? find(numbered(part.name, i))->bytes
                                                  : part.stored[static_cast<size_t>(i)]->tensors().front()->bytes);
  return found;
}

void ModelSource::done_with(const Slot& slot) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const std::span<const std::byte> bytes : places(slot)) {
    const auto start = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t first = (start + page - 1) / page * page, end = (start + bytes.size()) / page * page;
    // Checkpoints are mapped files, so pages that are read again come from the file.
    if (end > first) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }
}

Result<std::vector<float>> ModelSource::floats(const Slot& slot, const Location& part, int64_t size) const {
  if (part.several()) {
    std::vector<float> all;
    const int64_t tensors = part.take == Take::per_head ? slot.heads : slot.experts;
    for (int64_t i = 0; i < tensors; ++i) {
      TRY(const std::vector<float> one, read_floats(*find(numbered(part.name, i))));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  TRY(std::vector<float> stored, read_floats(*part.tensor));
  const std::vector<int64_t> rows = slot.kind == SlotKind::matrix ? rows_of(slot, part.take) : std::vector<int64_t>();
  if (rows.empty()) return stored;
  std::vector<float> out(static_cast<size_t>(size));
  const size_t each = stored.size() / static_cast<size_t>(slot.matrices());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = stored[i / rows.size() * each + static_cast<size_t>(rows[i % rows.size()])];
  return out;
}

Result<std::vector<float>> ModelSource::norm_weight(const Slot& slot) const {
  if (const Edit* put = edit(slot, ".weight")) return put->numbers;
  TRY(std::vector<float> values, floats(slot, part(slot, ".weight"), slot.cols));
  if (architecture_->norms_plus_one && !is_gguf() && !slot.plain) {
    for (float& value : values) value += 1;
  }
  return values;
}

Result<std::vector<float>> ModelSource::bias(const Slot& slot) const {
  if (!slot.bias) return std::vector<float>();
  if (const Edit* put = edit(slot, ".bias")) return put->numbers;
  return floats(slot, part(slot, ".bias"), slot.bias_size());
}

Result<std::vector<float>> ModelSource::vector(const Slot& slot) const {
  if (const Edit* put = edit(slot, ".weight")) return put->numbers;
  const Location& found = part(slot, ".weight");
  TRY(std::vector<float> values, floats(slot, found, slot.cols));
  for (float& value : values) {
    const double x = value;
    if (found.change == Change::minus_exp) value = static_cast<float>(-std::exp(x));
    if (found.change == Change::lru_rate) value = static_cast<float>(-8 * (x > 30 ? x : std::log1p(std::exp(x))));
  }
  return values;
}

// Tables are read by rows, and experts and latents multiplied together: there inputs stay where they are.
std::span<const int32_t> ModelSource::order_of(const Slot& slot) const {
  if (keep_ != Keep::small || slot.kind != SlotKind::matrix || !slot.weight || slot.experts > 0 || slot.float32 ||
      slot.use != WeightUse::linear || edit(slot, ".weight") != nullptr)
    return {};
  const Location& found = part(slot, ".weight");
  return found.latent() || found.stored.size() != 1 ? std::span<const int32_t>() : found.stored.front()->order();
}

DType ModelSource::type_of(const Slot& slot) const {
  if (slot.float32) return DType::f32;
  if (const Edit* put = edit(slot, ".weight")) return put->type;
  const Location& found = part(slot, ".weight");
  if (!order_of(slot).empty()) return found.stored.front()->ordered_type();
  const DType type = found.stored.empty() ? found.tensor->type : found.stored.front()->type(keep_);
  return found.take == Take::latent_k && format(type).group != 1 ? DType::bf16 : type;
}

std::string ModelSource::kept_as() const {
  struct Share {
    int matrices = 0;
    int64_t stored = 0, kept = 0;
  };
  std::map<std::pair<std::string, DType>, Share> shares;
  for (const Slot& slot : slots(spec_)) {
    const auto found = parts_.find(slot.name + ".weight");
    if (found == parts_.end()) continue;
    for (const StoredMatrixPtr& matrix : found->second.stored) {
      const std::span<const int32_t> order = order_of(slot);
      const DType type = order.empty() ? matrix->type(keep_) : matrix->ordered_type();
      Share& share = shares[{matrix->method(), type}];
      ++share.matrices;
      for (const StoredTensor* tensor : matrix->tensors()) share.stored += static_cast<int64_t>(tensor->bytes.size());
      share.kept += bytes_of(type, matrix->rows() * matrix->cols()) + static_cast<int64_t>(order.size_bytes());
    }
  }
  std::vector<std::string> lines;
  for (const auto& [what, share] : shares)
    lines.push_back(fmt::format("{} matrices in {} ({:.1f} MB) become {} ({:.1f} MB)", share.matrices, what.first,
                                static_cast<double>(share.stored) / 1e6, format(what.second).name,
                                static_cast<double>(share.kept) / 1e6));
  return fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace millrace
