// What a tokenizer.json and a text may come to together: longer by so much, searched for so long, and no more.
#include "text/growth.h"

#include <gtest/gtest.h>

#include <cstring>

#include "text/charsmap.h"
#include "text/pattern.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace millrace {
namespace {

// Letters, and one token for everything else in a row.
Result<Tokenizer> growing(const std::string& rest) {
  return Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "merges": [],
    "unk_token": "<unk>", "fuse_unk": true}, )" +
                              rest + "}");
}

Result<Tokenizer> normalizing(const std::string& steps) {
  return growing(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}");
}

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  while (times-- > 0) out += text;
  return out;
}

std::string rounds(const std::string& steps, size_t times) {
  std::string out = steps;
  while (--times > 0) out += ", " + steps;
  return out;
}

// How encoding fails; empty if it does not.
std::string failure_of(const Result<Tokenizer>& tokenizer, const std::string& text) {
  if (!tokenizer.ok()) return "not loaded: " + tokenizer.error().message;
  const auto tokens = tokenizer->encode(text);
  return tokens.ok() ? "" : tokens.error().message;
}

// The one rule of it: "a" becomes this.
std::string charsmap_of(const std::string& replacement) {
  std::vector<uint32_t> units(0x63);
  units[0] = 1 << 10;                       // children at 1 ^ byte
  units[1 ^ 'a'] = 'a' | 1 << 8 | 2 << 10;  // has a value, at 2 further
  units[1 ^ 'a' ^ 2] = 0x80000000;          // its replacement is the first
  const auto bytes = static_cast<uint32_t>(units.size() * 4);
  std::string out(4 + bytes, '\0');
  std::memcpy(out.data(), &bytes, 4);
  std::memcpy(out.data() + 4, units.data(), bytes);
  return out + replacement + std::string(1, '\0');
}

constexpr const char* kTooLong = "longer by more than";

TEST(Growth, CharsmapsCountByTheRuleThatGrowsMost) {
  const auto three = Charsmap::from_bytes(charsmap_of("aaa"));
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(three->by_grapheme("ab"), "aaab");
  EXPECT_EQ(three->growth(), 3);
  EXPECT_LE(three->by_grapheme(std::string(1000, 'a'), 10).size(), 13u);
  EXPECT_TRUE(Charsmap::from_bytes(charsmap_of(std::string(64, 'a'))).ok());
  const auto more = Charsmap::from_bytes(charsmap_of(std::string(65, 'a')));
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("65 times"), std::string::npos) << more.error().message;
}

TEST(Growth, StepsThatDoubleATextRoundAfterRoundStop) {
  // The ligature is written out as a text that has the two letters twice.
  const std::string doubles =
      R"({"type": "Replace", "pattern": {"String": "جل"}, "content": "\uFDFB"}, {"type": "NFKD"})";
  EXPECT_EQ(failure_of(normalizing(rounds(doubles, 3)), "جل"), "");
  const std::string failure = failure_of(normalizing(rounds(doubles, 30)), "جل");
  EXPECT_NE(failure.find("a text of 4 bytes longer by more than 4194320 bytes"), std::string::npos) << failure;
}

TEST(Growth, WhatFilesMayDoIsBoundedByTheText) {
  const std::string sixty =
      R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" + std::string(60, 'b') + "\"}";
  EXPECT_EQ(failure_of(normalizing(sixty), std::string(50'000, 'a')), "");
  EXPECT_NE(failure_of(normalizing(sixty), std::string(100'000, 'a')).find(kTooLong), std::string::npos);
  // Also where added tokens cut the text into parts that each stay below it.
  const auto parts = growing(R"("normalizer": )" + sixty + R"(, "added_tokens": [{"id": 9, "content": "<s>",
    "special": true}])");
  EXPECT_EQ(failure_of(parts, repeated("aaaaa<s>", 10'000)), "");
  EXPECT_NE(failure_of(parts, repeated("aaaaa<s>", 20'000)).find(kTooLong), std::string::npos);
  // An added token is looked for in its normalised form.
  EXPECT_NE(failure_of(growing(R"("normalizer": )" + sixty + R"(, "added_tokens": [{"id": 9, "content": ")" +
                               std::string(100, 'a') + R"(", "normalized": true}])"),
                       "a")
                .find(kTooLong),
            std::string::npos);
}

TEST(Growth, LongTextsOfWhatGrowsMostPass) {
  EXPECT_EQ(failure_of(normalizing(R"({"type": "NFD"})"), repeated("한", 500'000)), "");  // three times
  EXPECT_EQ(failure_of(normalizing(R"({"type": "NFKC"})"), repeated("\uFDFA", 100'000)), "");
  EXPECT_EQ(failure_of(growing(R"("pre_tokenizer": {"type": "Metaspace"})"), repeated("a ", 500'000)), "");
  // Written out in stretches, it is the same as at once.
  EXPECT_EQ(normalize(repeated("\uFDFA\u0301\uFF76\uFF9E\u1100\u1161", 3000), NormalForm::nfkc),
            repeated(normalize("\uFDFA\u0301\uFF76\uFF9E\u1100\u1161", NormalForm::nfkc), 3000));
}

TEST(Growth, PreTokenizersDoubleNothingForLong) {
  std::string list;
  for (const char* mark : {"①", "②", "③", "④", "⑤"}) {
    list += list.empty() ? "" : ", ";
    list += fmt::format(R"({{"type": "Metaspace", "replacement": "{}", "split": false}}, {{"type": "Split",
      "pattern": {{"Regex": "."}}, "behavior": "Isolated"}})",
                        mark);
    const auto pre = growing(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" + list + "]}");
    if (mark == std::string_view("⑤")) {
      ASSERT_FALSE(pre.ok());
      EXPECT_NE(pre.error().message.find("Metaspace more than 4 times"), std::string::npos) << pre.error().message;
      continue;
    }
    EXPECT_EQ(failure_of(pre, "abba"), "");
    if (mark == std::string_view("④")) {
      EXPECT_NE(failure_of(pre, std::string(400'000, 'b')).find(kTooLong), std::string::npos);
    }
  }
}

TEST(Growth, TokensBesideATextAreCounted) {
  auto tokenizer = [](size_t ids, size_t times, const std::string& kind) {
    const std::string part = R"({"SpecialToken": {"id": "b", "type_id": 0}})";
    const std::string both = R"({"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}, )" + rounds(part, times);
    const std::string other = R"({"Sequence": {"id": "A"}})";
    return growing(R"("post_processor": {"type": "TemplateProcessing", "single": [)" +
                   (kind == "single" ? both : other) + R"(], "pair": [)" + (kind == "pair" ? both : other) +
                   R"(], "special_tokens": {"b": {"id": "b", "ids": [)" + rounds("2", ids) + "]}}}");
  };
  for (const std::string kind : {"single", "pair"}) {
    EXPECT_TRUE(tokenizer(20, 50, kind).ok());
    const auto refused = tokenizer(1000, 60, kind);
    ASSERT_FALSE(refused.ok()) << kind;
    EXPECT_NE(refused.error().message.find("2000 tokens or more beside a text; 1024 is the most"), std::string::npos)
        << refused.error().message;
  }
  const std::string bert = R"({"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]})";
  EXPECT_FALSE(growing(R"("post_processor": {"type": "Sequence", "processors": [)" + rounds(bert, 1000) + "]}").ok());
}

// Finds nothing where a search would take too long, and says so; the same steps over and over count together.
TEST(Growth, SearchesArePaidForByTheText) {
  const std::string slow = repeated("(?:a|a)", 22) + "c|a";  // four million ways at every letter, and then it matches
  const std::string text(1000, 'a');
  const auto pattern = Pattern::regex(slow);
  ASSERT_TRUE(pattern.ok());
  RegexScratch scratch;
  scratch.reset(text.size(), 100'000'000);
  size_t found = 0;
  for_each_part(text, *pattern, scratch, [&](size_t, size_t, bool match) { found += match; });
  EXPECT_GT(found, 0u);
  EXPECT_LT(found, 20u);
  ASSERT_FALSE(scratch.status().ok());
  EXPECT_NE(scratch.status().error().message.find("steps on a text of 1000 bytes than are allowed: 100100000 at all"),
            std::string::npos)
      << scratch.status().error().message;
  scratch.reset(text.size());
  EXPECT_TRUE(scratch.status().ok());

  const auto tokenizer = growing(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + slow + R"("},
    "behavior": "Isolated"})");
  EXPECT_EQ(failure_of(tokenizer, "aaa"), "");
  EXPECT_NE(failure_of(tokenizer, text).find("steps on a text of 1000 bytes"), std::string::npos);
}

// A place that takes many steps is tried for longer, and then the search goes on behind it.
TEST(Growth, CostlyPlacesChangeNoMatch) {
  const auto pattern = Pattern::regex(repeated("(?:a|a)", 12) + "c|b|é$");
  ASSERT_TRUE(pattern.ok());
  const std::string text = std::string(40, 'a') + "éb" + std::string(20, 'a') + "c" + std::string(40, 'a') + "é";
  RegexScratch scratch;
  scratch.reset(text.size());
  std::string found;
  for_each_part(text, *pattern, scratch, [&](size_t begin, size_t end, bool match) {
    if (match) found += fmt::format("{}-{} ", begin, end);
  });
  EXPECT_EQ(found, "42-43 51-64 104-106 ");
  EXPECT_TRUE(scratch.status().ok());
}

}  // namespace
}  // namespace millrace
