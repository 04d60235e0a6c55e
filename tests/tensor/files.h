// Building model files in memory and on disk for the tests of this folder: right ones, and ones that are wrong in one
// place.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/gguf_writer.h"

namespace millrace::test {

inline std::span<const std::byte> bytes_view(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A directory of this test's own, empty at first and gone at the end.
class Folder {
 public:
  Folder() {
    static int made = 0;  // a test may have several
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            (std::string("millrace_") + info->test_suite_name() + "_" + info->name() + "_" +
             std::to_string(::getpid()) + "_" + std::to_string(made++));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// A GGUF file put together field by field, so that any field can be wrong.
class RawGguf {
 public:
  explicit RawGguf(uint64_t tensors = 0, uint64_t entries = 0, uint32_t version = 3) {
    text_ = "GGUF";
    number(version).number(tensors).number(entries);
  }
  template <class T>
  RawGguf& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  RawGguf& string(std::string_view value) {
    number<uint64_t>(value.size());
    text_ += value;
    return *this;
  }
  RawGguf& key(std::string_view name, MetaType type) { return string(name).number(static_cast<uint32_t>(type)); }
  // Dimensions innermost first, as GGUF has them.
  RawGguf& tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset) {
    string(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t extent : dimensions) number(extent);
    return number(type).number(offset);
  }
  RawGguf& pad(size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  RawGguf& data(size_t bytes, char fill = 'x') {
    text_.append(bytes, fill);
    return *this;
  }
  const std::string& text() const { return text_; }
  operator std::span<const std::byte>() const { return bytes_view(text_); }

 private:
  std::string text_;
};

// A safetensors file of this header and so many bytes of data.
inline std::string raw_safetensors(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof(length));
  out += header;
  out.append(data_bytes, 'x');
  return out;
}

// A small but complete model: every kind of metadata, several formats, about 64 KiB of tensors.
inline GgufWriter whole_gguf_writer() {
  GgufWriter writer;
  const auto ok = [](const Result<void>& result) { EXPECT_TRUE(result.ok()) << result.error().message; };
  ok(writer.put("general.architecture", "llama"));
  ok(writer.put("general.name", std::string_view("a model")));
  ok(writer.put("llama.context_length", uint32_t{2048}));
  ok(writer.put("some.negative", int32_t{-5}));
  ok(writer.put("some.large", uint64_t{1} << 63));
  ok(writer.put("some.small", int64_t{-1} << 40));
  ok(writer.put("llama.rope.freq_base", 10000.0f));
  ok(writer.put("some.double", 0.1));
  ok(writer.put("some.flag", true));
  ok(writer.put("tokenizer.chat_template", "{{ messages }}"));
  const std::vector<std::string> words = {"", "one", "two \xe2\x82\xac", "three"};
  const std::vector<float> scores = {0.0f, -1.5f, 2.5f};
  const std::vector<int32_t> kinds = {1, -2, 3};
  ok(writer.put("tokenizer.ggml.tokens", words));
  ok(writer.put("tokenizer.ggml.scores", scores));
  ok(writer.put("tokenizer.ggml.token_type", kinds));
  ok(writer.add("token_embd.weight", DType::q8_0, {64, 256}));
  ok(writer.add("blk.0.attn_q.weight", DType::q4_k, {64, 256}));
  ok(writer.add("blk.0.attn_norm.weight", DType::f32, {250}));
  ok(writer.add("blk.0.experts.weight", DType::f16, {2, 8, 32}));
  ok(writer.add("blk.0.ffn.weight", DType::q8_k, {48, 256}));
  ok(writer.add("scalar", DType::f32, {}));
  ok(writer.add("nothing", DType::f32, {0, 4}));
  ok(writer.add("output.weight", DType::bf16, {60, 256}));
  return writer;
}

inline std::string whole_gguf() {
  const GgufWriter writer = whole_gguf_writer();
  std::string out = writer.header();
  while (out.size() < writer.file_bytes()) out += static_cast<char>(out.size() % 251 + 1);
  return out;  // the last tensor needs no padding
}

}  // namespace millrace::test
