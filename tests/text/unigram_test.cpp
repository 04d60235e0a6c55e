#include "text/unigram.h"

#include <gtest/gtest.h>

#include <deque>

#include "text/charsmap.h"
#include "text/test_data.h"

namespace millrace {
namespace {

using test::ids, test::str;

// The bytes of arrays as a GGUF file has them; they outlive the metadata that points at them.
struct Arrays {
  std::deque<std::string> kept;

  MetaArray strings(const std::vector<std::string>& texts) {
    std::string bytes;
    for (const std::string& text : texts) {
      const uint64_t size = text.size();
      bytes.append(reinterpret_cast<const char*>(&size), 8).append(text);
    }
    return array(MetaType::string, texts.size(), std::move(bytes));
  }
  template <class T>
  MetaArray numbers(MetaType type, const std::vector<T>& values) {
    return array(type, values.size(),
                 std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }
  MetaArray array(MetaType type, size_t count, std::string bytes) {
    kept.push_back(std::move(bytes));
    return MetaArray(type, count, std::as_bytes(std::span(kept.back().data(), kept.back().size())));
  }
};

std::string from_base64(std::string_view text) {
  static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((held += 6) >= 8) out.push_back(static_cast<char>(bits >> (held -= 8)));
  }
  return out;
}

TEST(Unigram, SameAsHuggingFace) {
  const Json file = test::read_json(test::data("unigram.json"));
  auto tokenizer = Tokenizer::from_json(to_text(file.at("tokenizer")));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const Json& item : file.at("cases").as_array()) {
    EXPECT_EQ(tokenizer->encode(str(item.at(0)), {.parse_special = true}).value(), ids(item.at(1))) << str(item.at(0));
    EXPECT_EQ(tokenizer->decode(ids(item.at(1))), str(item.at(2))) << str(item.at(0));
  }
}

TEST(Unigram, SameAsLlamaCppFromGguf) {
  const Json file = test::read_json(test::data("unigram.json"));
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const Json& entry : file.at("tokenizer").at("model").at("vocab").as_array()) {
    texts.push_back(str(entry.at(0)));
    scores.push_back(entry.at(1).to_number<float>());
  }
  for (const Json& type : file.at("types").as_array()) types.push_back(static_cast<int32_t>(type.as_int64()));
  const std::string charsmap =
      from_base64(str(file.at("tokenizer").at("normalizer").at("normalizers").at(0).at("precompiled_charsmap")));
  for (bool merges_spaces : {false, true}) {
    Arrays arrays;
    std::vector<MetaEntry> entries = {
        {"tokenizer.ggml.model", MetaType::string, std::string_view("t5")},
        {"tokenizer.ggml.tokens", MetaType::array, arrays.strings(texts)},
        {"tokenizer.ggml.scores", MetaType::array, arrays.numbers(MetaType::f32, scores)},
        {"tokenizer.ggml.token_type", MetaType::array, arrays.numbers(MetaType::i32, types)},
        {"tokenizer.ggml.precompiled_charsmap", MetaType::array, arrays.array(MetaType::u8, charsmap.size(), charsmap)},
        {"tokenizer.ggml.remove_extra_whitespaces", MetaType::boolean, merges_spaces},
        {"tokenizer.ggml.unknown_token_id", MetaType::u32, uint64_t{2}},
    };
    auto tokenizer = Tokenizer::from_metadata(Metadata(entries));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const Json& item : file.at("gguf_cases").as_array()) {
      EXPECT_EQ(tokenizer->encode(str(item.at(0))).value(), ids(item.at(merges_spaces ? 2 : 1))) << str(item.at(0));
    }
    EXPECT_EQ(tokenizer->special().end, 1);
    EXPECT_TRUE(tokenizer->special().add_end);
  }
}

TEST(Unigram, TrieFindsWhatWasAdded) {
  Trie trie;
  trie.add("a", 1);
  trie.add("abc", 2);
  trie.add("b\xFF", 3);
  auto walk = [&](std::string_view text) {
    uint32_t node = Trie::kRoot;
    for (char byte : text) {
      if (node != Trie::kNone) node = trie.child(node, byte);
    }
    return node == Trie::kNone ? -2 : trie.token(node);
  };
  EXPECT_EQ(walk("a"), 1);
  EXPECT_EQ(walk("ab"), kNoToken);
  EXPECT_EQ(walk("abc"), 2);
  EXPECT_EQ(walk("abcd"), -2);
  EXPECT_EQ(walk("b\xFF"), 3);
}

TEST(Charsmap, BrokenOnesAreRefusedOrHarmless) {
  EXPECT_FALSE(Charsmap::from_bytes("abc").ok());
  EXPECT_FALSE(Charsmap::from_bytes(std::string("\xFF\xFF\xFF\x7F", 4) + "abc").ok());
  EXPECT_FALSE(Charsmap::from_bytes(std::string("\x00\x00\x00\x00\xFF", 5)).ok());
  EXPECT_FALSE(Charsmap::from_base64("not base64!").ok());
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes("\x40\x00\x00\x00", 4);
    for (int n = 0; n < 0x40; ++n) bytes.push_back(static_cast<char>(random() % 4 == 0 ? random() : random() % 4));
    bytes += "abc";
    bytes.push_back('\0');
    auto map = Charsmap::from_bytes(bytes);
    if (!map.ok()) continue;
    size_t covered = 0;
    (void)map->by_grapheme(
        "\x01\x02"
        "ab\u00e9");
    (void)map->longest("\x01\x02\x03", &covered);
  }
}

}  // namespace
}  // namespace millrace
