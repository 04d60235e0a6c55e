#include "tensor/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/human.h"
#include "tensor/identify.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxKey = 65'535;                  // the specification's limit
constexpr uint64_t kMaxName = 1'024;                  // it says 64; builds of other programs allow more
constexpr uint64_t kMaxString = uint64_t{256} << 20;  // a whole tokenizer.json is about a tenth of this
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxExtent = uint64_t{1} << 40;  // of one dimension
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
// The fewest bytes an entry can take: lengths, a name of one byte, types and the smallest value.
constexpr uint64_t kMinEntry = 8 + 1 + 4 + 1, kMinTensor = 8 + 1 + 4 + 4 + 8;

// Takes the header apart from front to back. Nothing is handed out that is not there.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }
  std::span<const std::byte> since(uint64_t start) const { return file_.subspan(start, at_ - start); }

  Result<std::span<const std::byte>> take(Checked count, std::string_view what) {
    if (!count.within(left())) {
      return error(
          Code::corrupt,
          "ends inside its header: {} at byte {} does not fit into the {} bytes; the download is incomplete or the "
          "file is damaged, download it again",
          what, at_, file_.size());
    }
    const uint64_t start = at_;
    at_ += *count.get();
    return since(start);
  }

  template <class T>
  Result<T> number(std::string_view what) {
    TRY(std::span<const std::byte> bytes, take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  Result<std::string_view> string(std::string_view what, uint64_t limit) {
    TRY(const auto length, number<uint64_t>(what));
    if (length > limit && length <= left()) {
      return error(Code::corrupt, "{} at byte {} is {} bytes long, more than the {} allowed", what, at_, length, limit);
    }
    TRY(std::span<const std::byte> bytes, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  std::span<const std::byte> file_;
  uint64_t at_ = 0;
};

Result<uint32_t> read_version(Cursor& cursor) {
  TRY(const std::span<const std::byte> magic, cursor.take(4, "the mark 'GGUF'"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) return error(Code::invalid, "does not begin with 'GGUF'");
  TRY(const auto version, cursor.number<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if (version == 1) {
    return error(Code::unsupported, "is GGUF version 1, which is no longer read: download a newer file of this model");
  }
  if ((version & 0xffffu) == 0 && version != 0) {
    return error(Code::unsupported, "is a big-endian GGUF file, which is not read: download the little-endian one");
  }
  return error(Code::unsupported, "is GGUF version {}, but versions 2 and 3 are read: a newer Millrace may read it",
               version);
}

Result<MetaType> read_meta_type(Cursor& cursor, std::string_view key) {
  TRY(const auto number, cursor.number<uint32_t>("a metadata type"));
  if (number > static_cast<uint32_t>(MetaType::f64)) {
    return error(Code::corrupt, "metadata {} has the unknown type {}; the file is damaged, download it again",
                 in_quotes(key), number);
  }
  return static_cast<MetaType>(number);
}

Error not_boolean(std::string_view key, unsigned value) {
  return error(Code::corrupt, "metadata {} holds the truth value {}, which is neither 0 nor 1", in_quotes(key), value);
}

Result<MetaArray> read_array(Cursor& cursor, std::string_view key) {
  TRY(const MetaType type, read_meta_type(cursor, key));
  TRY(const auto count, cursor.number<uint64_t>("an array's length"));
  if (type == MetaType::array) {
    return error(Code::unsupported, "metadata {} is an array of arrays, which no known model uses", in_quotes(key));
  }
  const uint64_t start = cursor.at();
  if (type != MetaType::string) {
    TRY(const std::span<const std::byte> bytes, cursor.take(Checked(count) * meta_type_bytes(type), "an array"));
    if (type == MetaType::boolean) {
      for (const std::byte flag : bytes) {
        if (flag > std::byte{1}) return not_boolean(key, static_cast<unsigned>(flag));
      }
    }
    return MetaArray(type, count, bytes);
  }
  if (count > cursor.left() / 8) {
    return error(Code::corrupt, "metadata {} should hold {} strings, but only {} bytes are left in the file",
                 in_quotes(key), count, cursor.left());
  }
  for (uint64_t i = 0; i < count; ++i) TRY_VOID(cursor.string("a string of an array", kMaxString));
  return MetaArray(type, count, cursor.since(start));
}

Result<MetaValue> read_value(Cursor& cursor, MetaType type, std::string_view key) {
  const auto scalar = [&]<class T>(T) -> Result<MetaValue> {
    TRY(const T number, cursor.number<T>("a metadata value"));
    if constexpr (std::is_floating_point_v<T>) return MetaValue(static_cast<double>(number));
    if constexpr (std::is_signed_v<T>) return MetaValue(static_cast<int64_t>(number));
    return MetaValue(static_cast<uint64_t>(number));
  };
  switch (type) {
    case MetaType::u8:
      return scalar(uint8_t{});
    case MetaType::i8:
      return scalar(int8_t{});
    case MetaType::u16:
      return scalar(uint16_t{});
    case MetaType::i16:
      return scalar(int16_t{});
    case MetaType::u32:
      return scalar(uint32_t{});
    case MetaType::i32:
      return scalar(int32_t{});
    case MetaType::f32:
      return scalar(float{});
    case MetaType::u64:
      return scalar(uint64_t{});
    case MetaType::i64:
      return scalar(int64_t{});
    case MetaType::f64:
      return scalar(double{});
    case MetaType::boolean: {
      TRY(const auto flag, cursor.number<uint8_t>("a metadata value"));
      if (flag > 1) return not_boolean(key, flag);
      return MetaValue(flag == 1);
    }
    case MetaType::string: {
      TRY(const std::string_view text, cursor.string("a metadata string", kMaxString));
      return MetaValue(text);
    }
    case MetaType::array: {
      TRY(MetaArray array, read_array(cursor, key));
      return MetaValue(array);
    }
  }
  return error(Code::corrupt, "metadata {} has an unknown type", in_quotes(key));
}

template <class T, class Name>
const T* find_twin(const std::vector<T>& items, Name name) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (name(items[order[i - 1]]) == name(items[order[i]])) return &items[order[i]];
  }
  return nullptr;
}

Result<std::vector<MetaEntry>> read_metadata(Cursor& cursor, uint64_t count) {
  if (count > cursor.left() / kMinEntry) {
    return error(Code::corrupt,
                 "should hold {} metadata entries, but has only {} bytes behind byte {}; the download is incomplete or "
                 "the file is damaged, download it again",
                 count, cursor.left(), cursor.at());
  }
  std::vector<MetaEntry> entries;
  entries.reserve(std::min<uint64_t>(count, 64));
  for (uint64_t i = 0; i < count; ++i) {
    TRY(const std::string_view key, cursor.string("a metadata key", kMaxKey));
    if (key.empty()) return error(Code::corrupt, "metadata entry {} has no key", i);
    TRY(const MetaType type, read_meta_type(cursor, key));
    TRY(MetaValue value, read_value(cursor, type, key));
    entries.push_back({key, type, std::move(value)});
  }
  if (const MetaEntry* twin = find_twin(entries, [](const MetaEntry& entry) { return entry.key; })) {
    return error(Code::corrupt, "has the metadata key {} twice", in_quotes(twin->key));
  }
  return entries;
}

Result<uint64_t> read_alignment(const Metadata& metadata) {
  const MetaEntry* entry = metadata.find("general.alignment");
  if (entry == nullptr) return kDefaultAlignment;
  const auto* number = std::get_if<uint64_t>(&entry->value);
  if (entry->type != MetaType::u32 || number == nullptr || *number > kMaxAlignment || !std::has_single_bit(*number)) {
    return error(Code::corrupt, "metadata 'general.alignment' must be a power of two up to {} of type u32, but is {}{}",
                 kMaxAlignment, number == nullptr ? "" : fmt::format("{} of type ", *number),
                 meta_type_name(entry->type));
  }
  return *number;
}

struct TensorInfo {
  StoredTensor tensor;
  uint64_t offset = 0, size = 0;
};

Result<void> read_shape(Cursor& cursor, StoredTensor& tensor) {
  TRY(const auto dimensions, cursor.number<uint32_t>("a tensor's number of dimensions"));
  if (dimensions > kMaxDimensions) {
    return error(Code::corrupt, "tensor {} has {} dimensions, but at most {} are possible", in_quotes(tensor.name),
                 dimensions, kMaxDimensions);
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    TRY(const auto extent, cursor.number<uint64_t>("a tensor's shape"));
    if (extent > kMaxExtent) {
      return error(Code::corrupt, "tensor {} has the impossible dimension {}", in_quotes(tensor.name), extent);
    }
    tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());  // GGUF lists the innermost dimension first
  return {};
}

Result<uint64_t> bytes_of_shape(const StoredTensor& tensor) {
  const Format& f = format(tensor.type);
  if (const int64_t cols = tensor.cols(); cols % f.group != 0) {
    return error(Code::corrupt, "tensor {} is {} with rows of {} values, which is not a multiple of that format's {}",
                 in_quotes(tensor.name), f.name, cols, f.group);
  }
  Checked values = 1u;
  for (const int64_t extent : tensor.shape) values = values * extent;
  const Checked bytes = values / f.group * f.group_bytes;
  if (!values.within(static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) || !bytes.ok()) {
    return error(Code::corrupt, "tensor {} has more values than any file can hold", in_quotes(tensor.name));
  }
  return *bytes.get();
}

Result<TensorInfo> read_tensor(Cursor& cursor) {
  TensorInfo info;
  TRY(const std::string_view name, cursor.string("a tensor's name", kMaxName));
  if (name.empty()) return error(Code::corrupt, "has a tensor without a name in its header at byte {}", cursor.at());
  info.tensor.name = name;
  TRY_VOID(read_shape(cursor, info.tensor));
  TRY(const auto number, cursor.number<uint32_t>("a tensor's type"));
  const std::optional<DType> type = dtype_from_ggml(number);
  if (!type) {
    return error(
        Code::unsupported,
        "tensor {} has the number format {}, which is unknown: the file is damaged, or from a newer program or an "
        "old one whose format was dropped; get a file of this model in a common format such as Q8_0 or Q4_K",
        in_quotes(name), number);
  }
  info.tensor.type = *type;
  TRY(info.offset, cursor.number<uint64_t>("a tensor's offset"));
  TRY(info.size, bytes_of_shape(info.tensor));
  return info;
}

Result<std::vector<TensorInfo>> read_tensors(Cursor& cursor, uint64_t count) {
  if (count > cursor.left() / kMinTensor) {
    return error(Code::corrupt,
                 "should hold {} tensors, but has only {} bytes behind byte {}; the download is incomplete or the file "
                 "is damaged, download it again",
                 count, cursor.left(), cursor.at());
  }
  std::vector<TensorInfo> infos;
  infos.reserve(std::min<uint64_t>(count, 64));
  for (uint64_t i = 0; i < count; ++i) {
    TRY(TensorInfo info, read_tensor(cursor));
    infos.push_back(std::move(info));
  }
  if (const TensorInfo* twin =
          find_twin(infos, [](const TensorInfo& info) { return std::string_view(info.tensor.name); })) {
    return error(Code::corrupt, "has the tensor {} twice", in_quotes(twin->tensor.name));
  }
  return infos;
}

// Tensors lie end to end, each at the next multiple of the alignment. Returns where the last one ends.
Result<uint64_t> check_offsets(const std::vector<TensorInfo>& infos, uint64_t data, uint64_t alignment) {
  std::vector<uint32_t> order(infos.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(infos[a].offset, infos[a].size) < std::pair(infos[b].offset, infos[b].size);
  });
  Checked end = 0u, expected = 0u;
  for (const uint32_t index : order) {
    const TensorInfo& info = infos[index];
    if (!expected.ok() || info.offset != *expected.get()) {
      const bool early = expected.ok() && info.offset < *expected.get();
      return error(Code::corrupt, "tensor {} begins at byte {} of the data, but {} {}; the file is damaged",
                   in_quotes(info.tensor.name), info.offset,
                   early ? "the tensor before it reaches to" : "everything before it ends at",
                   expected.get().value_or(std::numeric_limits<uint64_t>::max()));
    }
    end = Checked(info.offset) + info.size;
    expected = end.aligned(alignment);
  }
  const Checked total = Checked(data) + end;
  if (!total.ok() || !expected.ok()) return error(Code::corrupt, "its tensors add up to more than any file can hold");
  return *total.get();
}

// Behind the last tensor there may be what pads it to the alignment: nothing, or zeros.
Result<void> check_end(std::span<const std::byte> file, uint64_t end, uint64_t alignment) {
  if (file.size() < end) {
    return error(
        Code::corrupt,
        "is incomplete: {} expected, {} found ({:.1f} %, {} missing); the download was interrupted, download it again",
        brief_bytes(end), brief_bytes(file.size()), 100.0 * static_cast<double>(file.size()) / static_cast<double>(end),
        brief_bytes(end - file.size()));
  }
  const uint64_t padded = Checked(end).aligned(alignment).get().value_or(end);
  const auto rest = file.subspan(end);
  if (file.size() > padded || std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return error(Code::corrupt, "has {} behind its last tensor that belong to nothing ({} expected, {} found)",
                 brief_bytes(rest.size()), brief_bytes(end), brief_bytes(file.size()));
  }
  return {};
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> file) {
  Cursor cursor(file);
  GgufFile out;
  TRY(out.version, read_version(cursor));
  TRY(const auto tensors, cursor.number<uint64_t>("the number of tensors"));
  TRY(const auto entries, cursor.number<uint64_t>("the number of metadata entries"));
  TRY(std::vector<MetaEntry> metadata, read_metadata(cursor, entries));
  out.metadata = Metadata(std::move(metadata));
  TRY(const uint64_t alignment, read_alignment(out.metadata));
  TRY(std::vector<TensorInfo> infos, read_tensors(cursor, tensors));

  const uint64_t header = cursor.at();
  const uint64_t data = infos.empty() ? header : Checked(header).aligned(alignment).get().value_or(header);
  TRY(const uint64_t end, check_offsets(infos, data, alignment));
  TRY_VOID(check_end(file, end, alignment));
  out.tensors.reserve(infos.size());
  for (TensorInfo& info : infos) {
    info.tensor.bytes = file.subspan(data + info.offset, info.size);
    out.tensors.push_back(std::move(info.tensor));
  }
  return out;
}

}  // namespace millrace
