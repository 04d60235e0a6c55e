#include "text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <string>

#include "text/test_data.h"

namespace millrace {
namespace {

std::string utf8(uint32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

std::string lossy(std::string_view text) {
  std::string out;
  append_valid_utf8(out, text);
  return out;
}

bool is_surrogate(uint32_t code) { return code >= 0xD800 && code < 0xE000; }

// utf8proc may know an older Unicode; what it calls assigned has the same category there and here, but for one
// character.
TEST(Unicode, CategoriesAgreeWithUtf8proc) {
  const CategoryTable& table = CategoryTable::get();
  int assigned = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const auto theirs = static_cast<utf8proc_category_t>(utf8proc_category(static_cast<utf8proc_int32_t>(code)));
    if (theirs == UTF8PROC_CATEGORY_CN || code == 0x1171E) continue;
    ++assigned;
    const char* name = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
    Category ours = table.of(code);
    if (ours == Category::space_control) ours = Category::Cc;
    constexpr const char* kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                      "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                      "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
    ASSERT_STREQ(kNames[static_cast<int>(ours)], name) << std::hex << code;
  }
  EXPECT_GT(assigned, 280000);
  // From Unicode 15, 15.1 and 16.
  EXPECT_EQ(table.of(0x31350), Category::Lo);
  EXPECT_EQ(table.of(0x2EBF0), Category::Lo);
  EXPECT_EQ(table.of(0x1C89), Category::Lu);
}

TEST(Unicode, SpacesAreWhiteSpace) {
  std::string all;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (CategoryTable::get().in(code, kSpace)) all += fmt::format("{:X} ", code);
  }
  EXPECT_EQ(all,
            "9 A B C D 20 85 A0 1680 2000 2001 2002 2003 2004 2005 2006 2007 2008 2009 200A 2028 2029 202F 205F 3000 ");
}

TEST(Unicode, CodePointsSurviveUtf8) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (is_surrogate(code)) continue;
    std::string text = utf8(code);
    size_t bytes = 0;
    ASSERT_EQ(code_at(text.data(), &bytes), code);
    ASSERT_EQ(bytes, text.size());
    ASSERT_EQ(char_bytes(text[0]), text.size());
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

// The examples of the Unicode standard (table 3-8 and around), as Rust and Python decode them.
TEST(Unicode, InvalidUtf8BecomesReplacementCharacters) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(lossy("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(lossy("\xE4\xBD"), r);
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));
  EXPECT_FALSE(is_valid_utf8("12345678\x80"));
  EXPECT_TRUE(is_valid_utf8("12345678\xF4\x8F\xBF\xBF"));
}

TEST(Unicode, UnfinishedCharacterWaits) {
  std::string out;
  EXPECT_EQ(append_valid_utf8(out, "a\xE4\xBD", true), 1u);
  EXPECT_EQ(out, "a");
  out.clear();
  EXPECT_EQ(append_valid_utf8(out, "\xE4\xBD\xA0\xF0\x9F", true), 3u);
  out.clear();
  EXPECT_EQ(append_valid_utf8(out, "\xE4\x41", true), 2u);
  EXPECT_EQ(out, "\uFFFD\x41");
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0301 A\u030A \u212B \u1100\u1161\u11A8", NormalForm::nfc), "\u00E9 \u00C5 \u00C5 \uAC01");
  EXPECT_EQ(normalize("\u00E9\uAC01", NormalForm::nfd), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(normalize("\uFB01 \u00BD \uFF21", NormalForm::nfkc), "fi 1\u20442 A");
  EXPECT_EQ(normalize("\uFB01\u00E9", NormalForm::nfkd), "fie\u0301");
  EXPECT_EQ(normalize("a\u0301\u0323\u0301", NormalForm::nfd), "a\u0323\u0301\u0301");  // reordered, stably
  EXPECT_EQ(normalize("\u0958", NormalForm::nfc), "\u0915\u093C");                      // excluded from composition
  EXPECT_EQ(normalize("", NormalForm::nfc), "");
  // Characters newer than Unicode 9 neither decompose nor reorder.
  EXPECT_EQ(normalize("\U0001E030", NormalForm::nfkc), "\U0001E030");
  EXPECT_EQ(normalize("\u0301\u0897", NormalForm::nfd), "\u0301\u0897");
}

// Every character, alone and beside others: what is copied without a look must be what normalisation would give.
TEST(Unicode, NfcAgreesWithUtf8proc) {
  for (uint32_t code = 1; code < 0x30000; ++code) {
    if (is_surrogate(code)) continue;
    for (const std::string& text : {utf8(code), "e" + utf8(code), utf8(code) + "\u0301", "\u0345" + utf8(code)}) {
      auto* theirs = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
      const std::string expected = reinterpret_cast<const char*>(theirs);
      std::free(theirs);
      const std::string ours = normalize(text, NormalForm::nfc);
      // Differences are only those of characters that came after Unicode 9.
      if (ours != expected) {
        ASSERT_EQ(normalize(utf8(code), NormalForm::nfkd), utf8(code)) << std::hex << code;
        ASSERT_FALSE(is_combining_mark(code)) << std::hex << code;
      }
    }
  }
}

TEST(Unicode, LongRunsOfMarksTakeLinearTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  std::string normal = normalize(text, NormalForm::nfc);
  EXPECT_EQ(normal.substr(0, 3), "\u1EA1");
  EXPECT_EQ(normal.size(), text.size());
}

TEST(Unicode, LowerCase) { EXPECT_EQ(lowercase("ÀB\u0130\u1E9E\u1C89Σ"), "àbi\u0307ß\u1C8Aσ"); }

TEST(Unicode, Marks) {
  EXPECT_TRUE(is_combining_mark(0x301));
  EXPECT_TRUE(is_combining_mark(0x1CF2));
  EXPECT_FALSE(is_combining_mark(0x897));
  EXPECT_FALSE(is_combining_mark('a'));
}

TEST(Unicode, Graphemes) {
  EXPECT_EQ(grapheme_bytes("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_bytes("\r\nx"), 2u);
  EXPECT_EQ(grapheme_bytes("👨‍👩‍👧!"), 18u);
  EXPECT_EQ(grapheme_bytes("a"), 1u);
}

TEST(Unicode, Words) {
  EXPECT_TRUE(is_word('_', false));
  EXPECT_TRUE(is_word(0x24B6, false));
  EXPECT_TRUE(is_word(0x200D, true));
  EXPECT_FALSE(is_word(0x200D, false));
  EXPECT_FALSE(is_word(0xBD, true));
  EXPECT_TRUE(is_split_punctuation('$'));
  EXPECT_TRUE(is_split_punctuation(0x2014));
  EXPECT_FALSE(is_split_punctuation(0x2E52));  // newer than the table those pre-tokenizers use
  EXPECT_FALSE(is_split_punctuation('a'));
}

}  // namespace
}  // namespace millrace
