#include "text/regex.h"

#include <gtest/gtest.h>

#include "text/pattern.h"
#include "text/scanner.h"
#include "text/test_data.h"
#include "text/unicode.h"

namespace millrace {
namespace {

// All matches as "begin-end", the way tokenizers iterate over them.
std::string matches(const std::string& expression, const std::string& text) {
  auto pattern = Regex::compile(expression);
  if (!pattern.ok()) return pattern.error().message;
  RegexScratch scratch;
  std::string out;
  for (size_t from = 0; from <= text.size();) {
    Span match = pattern->find(text, from, scratch);
    if (!match) break;
    out += fmt::format("{}-{} ", match.begin, match.end);
    from = match.end > match.begin ? match.end : match.end + 1;
    while (from < text.size() && !is_char_start(text[from])) ++from;
  }
  return out;
}

TEST(Regex, SpacesAreUnicodeWhiteSpace) {
  EXPECT_EQ(matches("\\s", "\u0085\u3000\u180E\u200B"), "0-2 2-5 ");
  EXPECT_EQ(matches("[^\\s]+", "a\u00a0b\u180ec"), "0-1 3-8 ");
  EXPECT_EQ(matches("[\\S]", " a"), "1-2 ");
}

TEST(Regex, WordsAreOnigurumas) {
  EXPECT_EQ(matches("\\w+", "a\u0301_9\u2167\u00bd\u200d"), "0-10 ");
  EXPECT_EQ(matches("[\\w]+", "a\u00bd"), "0-1 ");
  EXPECT_EQ(matches("\\bthe\\b", "the then the\u0301 a the"), "0-3 17-20 ");
  EXPECT_EQ(matches("\\h+", "xBEEFg"), "1-5 ");
}

TEST(Regex, PropertiesKnowUnicode16) {
  EXPECT_EQ(matches("\\p{L}+", "\u1C89\U00031350!"), "0-7 ");
  EXPECT_EQ(matches("[^\\p{L}]", "\u1C89!"), "3-4 ");
  EXPECT_EQ(matches("\\P{L}", "\u1C89!"), "3-4 ");
  EXPECT_EQ(matches("[\\P{L}x]+", "a!x"), "1-3 ");
  EXPECT_EQ(matches("\\p{^L}", "a!"), "1-2 ");
  EXPECT_EQ(matches("\\p{Letter}|\\p{Nd}", "a1"), "0-1 1-2 ");
  EXPECT_EQ(matches("\\p{Han}+", "\u4e2d\u3001\u30fb\U0002EBF0"), "0-3 9-13 ");  // scripts, not script extensions
}

TEST(Regex, NestedClassesAndIntersections) {
  EXPECT_EQ(matches("[a-c[x-z]]+", "abmxy"), "0-2 3-5 ");
  EXPECT_EQ(matches("[^a-c[x-z]]+", "abmxy"), "2-3 ");
  EXPECT_EQ(matches("[\\w&&[^aeiou]]+", "abc eid"), "1-3 6-7 ");
  EXPECT_EQ(matches("[^\\p{L}&&\\p{Ll}]", "aA"), "1-2 ");
  EXPECT_EQ(matches(" ?[^(\\s|[.,!?])]+", "a b, (c|d)"), "0-1 1-3 6-7 8-9 ");
  EXPECT_EQ(matches("[[:punct:]]+", "a$.b"), "1-3 ");
  EXPECT_EQ(matches("[]a]+", "]a["), "0-2 ");
}

TEST(Regex, QuantifiersAreOnigurumas) {
  EXPECT_EQ(matches("a{,2}b", "aab"), "0-3 ");
  EXPECT_EQ(matches("(?:ab){1,2}+c", "ababababc"), "0-9 ");  // repeats, is not possessive
  EXPECT_EQ(matches("a{2}?b", "aab"), "0-3 ");
  EXPECT_EQ(matches("a++a", "aaa"), "");
  EXPECT_EQ(matches("x{", "x{"), "0-2 ");
}

TEST(Regex, LinesAndOptions) {
  EXPECT_EQ(matches("\\s+$", "a \nb "), "1-2 4-5 ");
  EXPECT_EQ(matches("^b", "a\nb"), "2-3 ");
  EXPECT_EQ(matches("a.b", "a\nb"), "");
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), "0-3 ");
  EXPECT_EQ(matches("(?i:'s)", "'S'\u017F"), "0-2 2-5 ");
  EXPECT_EQ(matches("\\v", "\x0b\n"), "0-1 ");
}

TEST(Regex, WhatIsNotSupportedIsSaid) {
  for (const char* bad : {"(", "[", "a**b(", "\\p{Nonsense}", "(?<name", "\\q", "[z-a]", "(?~a)", "\\"}) {
    EXPECT_FALSE(Regex::compile(bad).ok()) << bad;
  }
  EXPECT_FALSE(Regex::compile(std::string(100000, 'a')).ok());
  EXPECT_FALSE(Regex::compile(std::string(500, '[')).ok());
  EXPECT_FALSE(Regex::compile(std::string(500, '(')).ok());
}

TEST(Regex, NoPatternHangs) {
  auto pattern = Regex::compile("(a+)+$b|(a|aa)+c");
  ASSERT_TRUE(pattern.ok());
  RegexScratch scratch;
  const std::string text(5000, 'a');
  for (size_t from = 0; from < text.size(); ++from) EXPECT_FALSE(pattern->find(text, from, scratch));
}

TEST(Scanner, SameAsTheExpression) {
  size_t count = 0;
  const KnownPattern* known = known_patterns(&count);
  ASSERT_GT(count, 10u);
  for (size_t i = 0; i < count; ++i) {
    auto regex = Regex::compile(known[i].pattern);
    ASSERT_TRUE(regex.ok()) << known[i].name << ": " << regex.error().message;
    RegexScratch scratch;
    std::mt19937 random(static_cast<unsigned>(i));
    for (int round = 0; round < 3000; ++round) {
      const std::string text = test::random_text(random);
      for (size_t from = 0; from < text.size();) {
        const Span expected = regex->find(text, from, scratch), found = known[i].scanner(text, from);
        ASSERT_EQ(expected.begin, found.begin) << known[i].name << " from " << from << " in '" << text << "'";
        if (!expected) break;
        ASSERT_EQ(expected.end, found.end) << known[i].name << " from " << from << " in '" << text << "'";
        from = found.end;
      }
    }
  }
}

// Every code point between others: the categories behind the scanners and behind the expressions are the same.
TEST(Scanner, SameForEveryCharacter) {
  for (const char* name : {"gpt-2", "cl100k", "o200k", "deepseek-3"}) {
    const std::string_view expression = known_pattern(name);
    auto regex = Regex::compile(expression);
    ASSERT_TRUE(regex.ok());
    Scanner scanner = find_scanner(expression);
    RegexScratch scratch;
    for (uint32_t code = 1; code < 0x110000; code += code < 0x3000 || (code > 0x1E000 && code < 0x1FC00) ? 1 : 37) {
      if (code >= 0xD800 && code < 0xE000) continue;
      if (code == 0x1171E) continue;  // changed its category after Unicode 14
      std::string text = "aB";
      append_utf8(text, code);
      text += "c 1";
      append_utf8(text, code);
      for (size_t from = 0; from < text.size();) {
        const Span expected = regex->find(text, from, scratch), found = scanner(text, from);
        ASSERT_EQ(expected.begin, found.begin) << name << std::hex << " " << code;
        if (!expected) break;
        ASSERT_EQ(expected.end, found.end) << name << std::hex << " " << code;
        from = found.end;
      }
    }
  }
}

std::vector<std::string> pieces(const std::string& text, const std::string& expression, Split how,
                                bool invert = false) {
  auto pattern = Pattern::regex(expression);
  EXPECT_TRUE(pattern.ok());
  RegexScratch scratch;
  std::vector<std::string> out;
  split(text, *pattern, how, invert, scratch,
        [&](size_t begin, size_t end) { out.push_back(text.substr(begin, end - begin)); });
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Pattern, Splits) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(pieces(text, "-", Split::removed), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(pieces(text, "-", Split::isolated), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(pieces(text, "-", Split::merged_with_previous), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(pieces(text, "-", Split::merged_with_next), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(pieces(text, "-", Split::contiguous), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(pieces(text, "\\w+", Split::removed, true), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(pieces("12345", "(?=(\\d{3})+(?!\\d))", Split::isolated), (Pieces{"12", "345"}));
  EXPECT_EQ(pieces("", "x*", Split::isolated), Pieces{});
  EXPECT_EQ(pieces("\u4e2da", "x*", Split::isolated), (Pieces{"\u4e2d", "a"}));
}

}  // namespace
}  // namespace millrace
