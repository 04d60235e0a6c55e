// What a damaged file may do: load, or be refused. Every length a file can be cut to and every single bit of its header
// that can flip is tried, and memory is watched: reading must not take more than the file justifies, whatever its
// counts say.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <new>
#include <string>

#include "tensor/files.h"
#include "tensor/gguf.h"
#include "tensor/hugging_face.h"
#include "tensor/safetensors.h"

namespace {

// Bytes held through operator new since the last reset, and the most there were at once.
std::atomic<size_t> g_held{0}, g_most{0};

struct Header {
  size_t bytes;
  size_t unused;  // keeps what follows aligned to 16
};

void* counted_new(size_t bytes) {
  auto* header = static_cast<Header*>(std::malloc(bytes + sizeof(Header)));
  if (header == nullptr) throw std::bad_alloc();
  header->bytes = bytes;
  const size_t held = g_held += bytes;
  if (held > g_most) g_most = held;
  return header + 1;
}

void counted_delete(void* pointer) {
  if (pointer == nullptr) return;
  auto* header = static_cast<Header*>(pointer) - 1;
  g_held -= header->bytes;
  std::free(header);
}

}  // namespace

void* operator new(size_t bytes) { return counted_new(bytes); }
void* operator new[](size_t bytes) { return counted_new(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted_new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted_new(bytes); }
void operator delete(void* pointer) noexcept { counted_delete(pointer); }
void operator delete[](void* pointer) noexcept { counted_delete(pointer); }
void operator delete(void* pointer, size_t) noexcept { counted_delete(pointer); }
void operator delete[](void* pointer, size_t) noexcept { counted_delete(pointer); }

namespace millrace {
namespace {

using namespace test;

// Of this thread: a busy machine must not look like a slow reader.
std::chrono::nanoseconds processor_time() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

struct Tally {
  size_t loaded = 0, refused = 0, worst_bytes = 0;
  std::chrono::nanoseconds worst_time{0};
};

void look_at(const StoredTensor& tensor, std::span<const std::byte> bytes) {
  EXPECT_EQ(static_cast<int64_t>(tensor.bytes.size()), bytes_of(tensor.type, tensor.values()));
  if (tensor.bytes.empty()) return;
  EXPECT_GE(tensor.bytes.data(), bytes.data());
  EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size());
  if (!format(tensor.type).readable()) return;
  std::vector<float> row(static_cast<size_t>(tensor.cols()));
  EXPECT_TRUE(read_rows(tensor, tensor.rows() - 1, 1, row).ok());
}

void look_at(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const MetaEntry& entry : file.metadata.entries()) {
    const auto* array = std::get_if<MetaArray>(&entry.value);
    if (array == nullptr) continue;
    const auto words = array->strings();
    const auto numbers = array->integers();
    const auto floats = array->floats();
    EXPECT_EQ(words.ok()     ? words->size()
              : numbers.ok() ? numbers->size()
              : floats.ok()  ? floats->size()
                             : 0,
              array->size());
  }
  for (const StoredTensor& tensor : file.tensors) look_at(tensor, bytes);
}

void look_at(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  for (const StoredTensor& tensor : file.tensors) look_at(tensor, bytes);
}

void look_at(const ShardIndex& index, std::span<const std::byte>) {
  for (const auto& [name, file] : index.tensors) EXPECT_LT(file, index.files.size());
}

void look_at(const Json& config, std::span<const std::byte>) {
  quantisation_of(config);
  chat_template_of(config);
}

// Reads one version of a file under watch; then looks at everything that was read.
template <class Parse>
void try_one(std::span<const std::byte> file, Parse parse, Tally& tally) {
  const size_t before = g_held;
  g_most = before;
  const auto start = processor_time();
  const auto result = parse(file);
  tally.worst_time = std::max(tally.worst_time, processor_time() - start);
  tally.worst_bytes = std::max(tally.worst_bytes, g_most - before);
  ++(result.ok() ? tally.loaded : tally.refused);
  if (result.ok()) {
    look_at(*result, file);
  } else {
    EXPECT_FALSE(result.error().message.empty());
  }
}

template <class Parse>
Tally every_truncation(const std::string& file, Parse parse) {
  Tally tally;
  for (size_t length = 0; length < file.size(); ++length) {
    // Ending where the memory ends would need a copy each; an exact copy every so often is enough, the rest are views.
    if (length % 64 == 0) {
      const std::vector<std::byte> exact(bytes_view(file).begin(),
                                         bytes_view(file).begin() + static_cast<ptrdiff_t>(length));
      try_one(exact, parse, tally);
    } else {
      try_one(bytes_view(file).first(length), parse, tally);
    }
  }
  return tally;
}

template <class Parse>
Tally every_flip(std::string file, size_t header_bytes, Parse parse) {
  Tally tally;
  for (size_t bit = 0; bit < header_bytes * 8; ++bit) {
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    try_one(bytes_view(file), parse, tally);
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
  }
  return tally;
}

std::string whole_safetensors() {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* name : {"self_attn.q_proj.weight", "mlp.up_proj.weight"}) {
      header += fmt::format(R"(,"model.layers.{}.{}":{{"dtype":"BF16","shape":[64,32],"data_offsets":[{},{}]}})", layer,
                            name, at, at + 4096);
      at += 4096;
    }
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw_safetensors(header, at);
}

void expect_frugal(const Tally& tally, size_t header_bytes) {
  EXPECT_LE(tally.worst_bytes, 8 * header_bytes + 4096);
  EXPECT_LT(tally.worst_time, std::chrono::seconds(1));
}

TEST(Damage, GgufCutAtEveryLength) {
  const std::string file = whole_gguf();
  const size_t header = whole_gguf_writer().header().size();
  ASSERT_GT(file.size(), 60000u);
  ASSERT_TRUE(parse_gguf(bytes_view(file)).ok());
  const Tally tally = every_truncation(file, parse_gguf);
  EXPECT_EQ(tally.loaded, 0u);
  expect_frugal(tally, header);
}

TEST(Damage, GgufWithEveryHeaderBitFlipped) {
  const std::string file = whole_gguf();
  const size_t header = whole_gguf_writer().header().size();
  const Tally tally = every_flip(file, header, parse_gguf);
  // Flips in names, texts and plain numbers go unnoticed; flips in counts, lengths, types, shapes and offsets do not.
  EXPECT_GT(tally.loaded, 1000u);
  EXPECT_GT(tally.refused, 3000u);
  expect_frugal(tally, header);
}

TEST(Damage, SafetensorsCutAtEveryLength) {
  const std::string file = whole_safetensors();
  ASSERT_GT(file.size(), 60000u);
  ASSERT_TRUE(parse_safetensors(bytes_view(file)).ok());
  const Tally tally = every_truncation(file, parse_safetensors);
  EXPECT_EQ(tally.loaded, 0u);
  expect_frugal(tally, file.size() - 65536);
}

TEST(Damage, SafetensorsWithEveryHeaderBitFlipped) {
  const std::string file = whole_safetensors();
  const Tally tally = every_flip(file, file.size() - 65536, parse_safetensors);
  EXPECT_GT(tally.loaded, 1000u);
  EXPECT_GT(tally.refused, 3000u);
  expect_frugal(tally, file.size() - 65536);
}

TEST(Damage, ShardIndexAndConfigWithEveryBitFlipped) {
  const std::string index =
      R"({"metadata":{"total_size":12},"weight_map":{"model.a":"model-00001-of-00002.safetensors",)"
      R"("model.b":"model-00002-of-00002.safetensors"}})";
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const Tally indices = every_flip(index, index.size(), [&](auto bytes) { return parse_shard_index(text(bytes)); });
  EXPECT_GT(indices.refused, 0u);
  expect_frugal(indices, index.size());
  const std::string config =
      R"({"model_type":"llama","rope":{"type":"yarn","factor":4.0},"limit":[0.0,Infinity],"nan":NaN,)"
      R"("quantization_config":{"quant_method":"gptq","bits":4},"chat_template":[{"template":"x"}]})";
  const Tally configs = every_flip(config, config.size(), [&](auto bytes) { return parse_config(text(bytes)); });
  EXPECT_GT(configs.refused, 0u);
  expect_frugal(configs, config.size());
}

// Counts that promise a lot and files that hold little.
TEST(Damage, ClaimsAreNotBelieved) {
  Tally tally;
  for (int shift = 0; shift < 64; ++shift) {
    const uint64_t claim = uint64_t{1} << shift;
    for (const uint64_t count : {claim, claim - 1, claim + 1}) {
      try_one(RawGguf(count, 0).data(100, '\1'), parse_gguf, tally);
      try_one(RawGguf(0, count).data(100, '\1'), parse_gguf, tally);
      RawGguf text(0, 1), array(0, 1), words(0, 1), shape(1, 0);
      try_one(text.key("a", MetaType::string).number(count).data(100), parse_gguf, tally);
      array.key("a", MetaType::array).number(static_cast<uint32_t>(MetaType::u32)).number(count).data(100);
      try_one(array, parse_gguf, tally);
      words.key("a", MetaType::array).number(static_cast<uint32_t>(MetaType::string)).number(count).data(100, '\0');
      try_one(words, parse_gguf, tally);
      try_one(shape.tensor("a", {count, 3}, 0, 0).pad().data(128), parse_gguf, tally);
      std::string file(reinterpret_cast<const char*>(&count), 8);
      try_one(bytes_view(file + "{\"a\":{\"dtype\":\"U8\"}}"), parse_safetensors, tally);
    }
  }
  expect_frugal(tally, 256);
}

}  // namespace
}  // namespace millrace
