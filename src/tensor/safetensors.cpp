#include "tensor/safetensors.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "base/human.h"
#include "base/json.h"
#include "tensor/identify.h"

namespace millrace {
namespace {

namespace bj = boost::json;

constexpr size_t kMaxName = 1'024, kMaxDimensions = 8, kMaxMetadataText = size_t{16} << 20;
constexpr uint64_t kMaxExtent = uint64_t{1} << 40, kMaxOffset = uint64_t{1} << 60;

struct Entry {
  std::string name, type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

// Receives the header as it is scanned and keeps only what belongs there, so a hostile header of many megabytes cannot
// become a tree in memory. What a header may hold: {"NAME": {"dtype": text, "shape": [..], "data_offsets": [begin,
// end]}, ...,
// "__metadata__": {text: text}}.
struct HeaderHandler {
  static constexpr size_t max_object_size = size_t(-1), max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1), max_string_size = size_t(-1);
  using ec = bj::error_code;

  enum class Place { outside, top, tensor, metadata };
  enum class Field { none, dtype, shape, offsets };

  Place place = Place::outside;
  Field field = Field::none;
  bool in_array = false, seen_metadata = false, seen[4] = {};
  std::string text, key;  // the key or string being collected; the last key
  std::vector<uint64_t> numbers;
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string failure;

  bool fail(ec& code, std::string message) {
    failure = std::move(message);
    code = bj::error::syntax;
    return false;
  }
  bool misplaced(ec& code, std::string_view what) {
    if (place == Place::outside) return fail(code, "its header is not a JSON object");
    return fail(code, fmt::format("its header has {} where none belongs, under {}", what,
                                  in_quotes(place == Place::tensor ? entries.back().name : key)));
  }

  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }

  bool on_object_begin(ec& code) {
    if (place == Place::outside) {
      place = Place::top;
      return true;
    }
    if (place != Place::top) return misplaced(code, "an object");
    if (key == "__metadata__") {
      if (seen_metadata) return fail(code, "its header has '__metadata__' twice");
      seen_metadata = true;
      place = Place::metadata;
      return true;
    }
    place = Place::tensor;
    entries.emplace_back().name = key;
    std::fill(std::begin(seen), std::end(seen), false);
    return true;
  }

  bool on_object_end(size_t, ec& code) {
    if (place == Place::tensor && !(seen[1] && seen[2] && seen[3])) {
      return fail(code,
                  fmt::format("tensor {} lacks its dtype, shape or data_offsets", in_quotes(entries.back().name)));
    }
    place = place == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool on_array_begin(ec& code) {
    if (place != Place::tensor || in_array || (field != Field::shape && field != Field::offsets)) {
      return misplaced(code, "an array");
    }
    in_array = true;
    numbers.clear();
    return true;
  }

  bool on_array_end(size_t, ec& code) {
    in_array = false;
    Entry& entry = entries.back();
    if (field == Field::offsets) {
      if (numbers.size() != 2) {
        return fail(code, fmt::format("tensor {} should have two data_offsets, but has {}", in_quotes(entry.name),
                                      numbers.size()));
      }
      entry.begin = numbers[0];
      entry.end = numbers[1];
      return true;
    }
    entry.shape.assign(numbers.begin(), numbers.end());
    return true;
  }

  bool on_key_part(bj::string_view part, size_t total, ec& code) { return collect(part, total, kMaxName, code); }
  bool on_key(bj::string_view part, size_t total, ec& code) {
    if (!collect(part, total, kMaxName, code)) return false;
    key = std::exchange(text, {});
    if (place != Place::tensor) return true;
    field = key == "dtype"          ? Field::dtype
            : key == "shape"        ? Field::shape
            : key == "data_offsets" ? Field::offsets
                                    : Field::none;
    if (field == Field::none) {
      return fail(code,
                  fmt::format("tensor {} has the unknown field {}", in_quotes(entries.back().name), in_quotes(key)));
    }
    if (std::exchange(seen[static_cast<size_t>(field)], true)) {
      return fail(code, fmt::format("tensor {} has its {} twice", in_quotes(entries.back().name), key));
    }
    return true;
  }

  bool on_string_part(bj::string_view part, size_t total, ec& code) {
    return collect(part, total, kMaxMetadataText, code);
  }
  bool on_string(bj::string_view part, size_t total, ec& code) {
    if (!collect(part, total, kMaxMetadataText, code)) return false;
    if (place == Place::metadata) {
      metadata.emplace_back(key, std::exchange(text, {}));
      return true;
    }
    if (place != Place::tensor || field != Field::dtype) return misplaced(code, "a string");
    entries.back().type = std::exchange(text, {});
    return true;
  }

  bool collect(bj::string_view part, size_t total, size_t limit, ec& code) {
    if (total > limit) return fail(code, fmt::format("its header has a text of more than {} bytes", limit));
    text.append(part.data(), part.size());
    return true;
  }

  bool on_number_part(bj::string_view, ec&) { return true; }
  bool on_uint64(uint64_t number, bj::string_view, ec& code) {
    if (!in_array) return misplaced(code, "a number");
    if (number > (field == Field::shape ? kMaxExtent : kMaxOffset) || numbers.size() == kMaxDimensions) {
      return fail(code, fmt::format("tensor {} has an impossible shape or offset", in_quotes(entries.back().name)));
    }
    numbers.push_back(number);
    return true;
  }
  bool on_int64(int64_t number, bj::string_view digits, ec& code) {
    if (number >= 0 || !in_array) return on_uint64(static_cast<uint64_t>(number), digits, code);
    return fail(code,
                fmt::format("tensor {} has the negative shape or offset {}", in_quotes(entries.back().name), number));
  }
  bool on_double(double, bj::string_view, ec& code) { return misplaced(code, "a fraction"); }
  bool on_bool(bool, ec& code) { return misplaced(code, "true or false"); }
  bool on_null(ec& code) { return misplaced(code, "null"); }
  bool on_comment_part(bj::string_view, ec&) { return true; }
  bool on_comment(bj::string_view, ec&) { return true; }
};

Result<HeaderHandler> scan_header(std::string_view header) {
  bj::parse_options options;
  options.max_depth = 4;
  bj::basic_parser<HeaderHandler> parser(options);
  bj::error_code code;
  const size_t used = parser.write_some(false, header.data(), header.size(), code);
  if (code) {
    const std::string& failure = parser.handler().failure;
    if (!failure.empty()) return error(Code::corrupt, "{}; the file is damaged", failure);
    return error(Code::corrupt, "its header is not valid JSON at byte {} ({}); the file is damaged, download it again",
                 used + 8, code.message());
  }
  if (header.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    return error(Code::corrupt, "its header goes on behind its JSON, at byte {}; the file is damaged", used + 8);
  }
  return std::move(parser.handler());
}

template <class T, class Name>
Result<void> check_unique(const std::vector<T>& items, Name name, std::string_view what) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(name(item));
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return error(Code::corrupt, "has the {} {} twice", what, in_quotes(*twin));
}

Result<StoredTensor> check_tensor(Entry& entry) {
  StoredTensor tensor;
  const std::optional<DType> type = dtype_from_safetensors(entry.type);
  if (!type) {
    return error(Code::unsupported,
                 "tensor {} has the number format {}, which is not supported: use a BF16 or F16 checkpoint",
                 in_quotes(entry.name), in_quotes(entry.type));
  }
  tensor.type = *type;
  Checked values = 1u;
  for (const int64_t extent : entry.shape) values = values * extent;
  const Checked bytes = values * format(*type).group_bytes, stored = Checked(entry.end) - entry.begin;
  if (!values.within(static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) || !bytes.ok() || !stored.ok() ||
      *bytes.get() != *stored.get()) {
    return error(Code::corrupt, "tensor {} of type {} and shape [{}] cannot lie at bytes {} to {}; the file is damaged",
                 in_quotes(entry.name), entry.type, fmt::join(entry.shape, ", "), entry.begin, entry.end);
  }
  tensor.name = std::move(entry.name);
  tensor.shape = std::move(entry.shape);
  return tensor;
}

}  // namespace

bool looks_like_safetensors(std::span<const std::byte> file) {
  if (file.size() < 9) return false;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return length >= 2 && length <= kMaxSafetensorsHeader && file[8] == std::byte{'{'};
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < 8) return error(Code::corrupt, "has {} bytes, too few for a safetensors file", file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxSafetensorsHeader) {
    return error(Code::corrupt,
                 "should have a header of {} bytes, more than the {} allowed; it is damaged or no safetensors file",
                 length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - 8) {
    return error(
        Code::corrupt,
        "ends inside its header: at least {} expected, {} found; the download was interrupted, download it again",
        brief_bytes(length + 8), brief_bytes(file.size()));
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data() + 8), length);
  TRY(HeaderHandler found, scan_header(header));
  TRY_VOID(check_unique(
      found.entries, [](const Entry& entry) { return std::string_view(entry.name); }, "tensor"));
  TRY_VOID(check_unique(
      found.metadata, [](const auto& pair) { return std::string_view(pair.first); }, "metadata key"));
  std::sort(found.entries.begin(), found.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.begin, a.end, std::string_view(a.name)) < std::tuple(b.begin, b.end, std::string_view(b.name));
  });

  SafetensorsFile out;
  out.metadata = std::move(found.metadata);
  out.tensors.reserve(found.entries.size());
  const std::span<const std::byte> data = file.subspan(8 + length);
  const uint64_t last = found.entries.empty() ? 0 : found.entries.back().end;
  uint64_t expected = 0;
  for (Entry& entry : found.entries) {
    const uint64_t begin = entry.begin, end = entry.end;
    if (begin != expected) {
      return error(Code::corrupt,
                   "tensor {} begins at byte {} of the data, but what is before it ends at {}; the file is damaged",
                   in_quotes(entry.name), begin, expected);
    }
    TRY(StoredTensor tensor, check_tensor(entry));
    expected = end;
    if (end <= data.size()) tensor.bytes = data.subspan(begin, end - begin);
    out.tensors.push_back(std::move(tensor));
  }
  const Checked total = Checked(last) + length + 8u;
  if (last > data.size()) {
    return error(
        Code::corrupt,
        "is incomplete: {} expected, {} found ({:.1f} %, {} missing); the download was interrupted, download it again",
        brief_bytes(total.get().value_or(0)), brief_bytes(file.size()),
        100.0 * static_cast<double>(file.size()) / static_cast<double>(total.get().value_or(1)),
        brief_bytes(last - data.size()));
  }
  if (last < data.size()) {
    return error(Code::corrupt, "has {} behind its last tensor that belong to nothing ({} expected, {} found)",
                 brief_bytes(data.size() - last), brief_bytes(*total.get()), brief_bytes(file.size()));
  }
  return out;
}

Result<ShardIndex> parse_shard_index(std::string_view text) {
  if (is_lfs_pointer(text)) return unknown_file(std::as_bytes(std::span(text.data(), text.size())));
  TRY(const Json json,
      parse_json(text, {.max_bytes = kMaxSafetensorsHeader, .max_depth = 8, .refuse_duplicate_keys = true}));
  const Json* map = find(json, "weight_map");
  if (map == nullptr || !map->is_object())
    return error(Code::corrupt, "has no 'weight_map' that says which file holds which tensor");
  ShardIndex index;
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string()) return error(Code::corrupt, "names no file for tensor {}", in_quotes(name));
    const std::string_view plain(file.get_string().data(), file.get_string().size());
    if (plain.empty() || plain.front() == '.' || plain.find_first_of("/\\") != std::string_view::npos ||
        plain.find('\0') != std::string_view::npos || !plain.ends_with(".safetensors")) {
      return error(Code::corrupt, "puts tensor {} into {}, which is not the plain name of a .safetensors file",
                   in_quotes(name), in_quotes(plain));
    }
    index.files.emplace_back(plain);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  index.tensors.reserve(map->get_object().size());
  for (const auto& [name, file] : map->get_object()) {
    const auto at = std::lower_bound(index.files.begin(), index.files.end(), std::string_view(file.get_string()));
    index.tensors.emplace_back(name, static_cast<size_t>(at - index.files.begin()));
  }
  return index;
}

}  // namespace millrace
