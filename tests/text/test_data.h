// What the tests of text/ share: where their data lies, and reading it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace millrace::test {

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/text/data" / name;
}

inline std::string read(const std::filesystem::path& path) {
  auto text = read_file(path);
  EXPECT_TRUE(text.ok()) << path;
  return text.ok() ? *text : std::string();
}

inline Json read_json(const std::filesystem::path& path) {
  auto json = parse_json(read(path));
  EXPECT_TRUE(json.ok()) << path;
  return json.ok() ? *json : Json();
}

inline std::string str(const Json& json) { return std::string(json.as_string()); }

inline std::vector<Token> ids(const Json& json) {
  std::vector<Token> out;
  for (const Json& id : json.as_array()) out.push_back(static_cast<Token>(id.as_int64()));
  return out;
}

inline Tokenizer stories() {
  auto tokenizer =
      Tokenizer::from_json(read(data("stories/tokenizer.json")), read_json(data("stories/tokenizer_config.json")));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return *tokenizer;
}

// A tokenizer cut down to what its cases need.
inline Tokenizer golden(const std::string& name) {
  Json file = read_json(data("golden/" + name + ".json"));
  auto tokenizer = Tokenizer::from_json(to_text(file.at("tokenizer")));
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.error().message;
  return *tokenizer;
}

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {"deepseek_v3", "gemma3", "gpt2",         "gptoss",
                                                 "llama2",      "llama3", "mistral_nemo", "qwen3"};
  return names;
}

// Texts that hit the corners of what patterns tell apart.
inline std::string random_text(std::mt19937& random, int longest = 24) {
  static const std::vector<std::string> parts = {"a",          "B",          "word",
                                                 " word",      "Word",       "WORD",
                                                 " ",          "  ",         "\n",
                                                 "\r\n",       "\t",         "1",
                                                 "42",         "1234567",    "'s",
                                                 "'S",         "'re",        "'LL",
                                                 "'",          ".",          ",",
                                                 "!?",         "-",          "_",
                                                 "/",          "//",         "(",
                                                 "=",          "$",          "+",
                                                 "é",          "e\u0301",    "ß",
                                                 "ſ",          "'ſ",         "İ",
                                                 "ǅ",          "中文",       "かな",
                                                 "カナ",       "한국어",     "Привет",
                                                 "ΑΒΓ",        "שלום",       "مرحبا",
                                                 "क्षि",        "ท้า",         "\u0300",
                                                 "\u0345",     "\u200d",     "\u200b",
                                                 "\u00a0",     "\u3000",     "\u2028",
                                                 "\u0085",     "\u180e",     "\ufeff",
                                                 "²",          "½",          "Ⅷ",
                                                 "٣",          "１",         "😀",
                                                 "👍🏽",   "🇩🇪",         "\u1c89",
                                                 "\U00031350", "\U0010fffd", std::string(1, '\0'),
                                                 "\x7f",       "▁",          "▁▁",
                                                 "Ġ",          "<|",         "|>",
                                                 "<s>",        "ʰ",          "ª"};
  std::string out;
  const int count = static_cast<int>(random() % static_cast<unsigned>(longest));
  for (int i = 0; i < count; ++i) {
    const std::string& part = parts[random() % parts.size()];
    for (size_t times = random() % 16 == 0 ? random() % 50 : 1; times > 0; --times) out += part;
  }
  return out;
}

}  // namespace millrace::test
