// Front ends, what is refused and how, and hostile input.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "grammar/small.h"

namespace millrace {
namespace {

using namespace testing_grammar;

void refuses(GrammarKind kind, std::string_view text, std::string_view why) {
  auto grammar = compile(kind, text);
  ASSERT_FALSE(grammar.ok()) << text.substr(0, 200);
  EXPECT_NE(grammar.error().message.find(why), std::string::npos) << grammar.error().message;
}

TEST(Grammar, RegexIsTheWholeAnswer) {
  auto grammar = compile(GrammarKind::regex, "(yes|no)[.!]?");
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(**grammar, "yes"));
  EXPECT_TRUE(accepts(**grammar, "no!"));
  EXPECT_FALSE(begins(**grammar, "no!!"));
  EXPECT_FALSE(accepts(**grammar, "ye"));
  auto anchored = compile(GrammarKind::regex, "^\\d{3}$");
  ASSERT_TRUE(anchored.ok());
  EXPECT_TRUE(accepts(**anchored, "123"));
  EXPECT_FALSE(begins(**anchored, "1234"));
}

TEST(Grammar, ChoiceIsOneOfItsTexts) {
  auto grammar = compile(GrammarKind::choice, R"(["red","green","greenish"])");
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(**grammar, "green"));
  EXPECT_TRUE(accepts(**grammar, "greenish"));
  EXPECT_FALSE(accepts(**grammar, "greeni"));
  EXPECT_TRUE((*grammar)->finished((*grammar)->next_bytes((*grammar)->start(), "red")));
  refuses(GrammarKind::choice, "[]", "1 to");
}

constexpr const char* kGbnfJson = R"(
# values within values
root   ::= object
value  ::= object | array | string | number | "true"
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}"
array  ::= "[" ws ( value ("," ws value)* )? "]"
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15})
ws     ::= | " " | "\n" [ \t]{0,20}
)";

TEST(Grammar, GbnfNests) {
  auto grammar = compile(GrammarKind::gbnf, kGbnfJson);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(accepts(**grammar, R"({"a": [1, {"b": "x\"y"}, []], "c": true})"));
  EXPECT_FALSE(accepts(**grammar, R"({"a": [1})"));
  EXPECT_FALSE(begins(**grammar, "{\"a\": 01"));
  EXPECT_TRUE(begins(**grammar, "{\"a\": " + std::string(100, '[')));
}

TEST(Grammar, LarkReadsArithmeticWithLeftRecursion) {
  auto grammar = compile(GrammarKind::lark, R"~(
start: sum
sum: sum ("+"|"-") product | product
product: product "*" atom | atom
?atom: NUMBER -> number
     | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)~");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(accepts(**grammar, "1 + 2*(3 - 4.5)"));
  EXPECT_TRUE(accepts(**grammar, "1+2+3*4*5"));
  EXPECT_FALSE(accepts(**grammar, "1 + "));
  EXPECT_FALSE(begins(**grammar, "1 + )"));
}

TEST(Grammar, RulesThatCannotWorkAreRefused) {
  refuses(GrammarKind::gbnf, "root ::= a\na ::= b \"x\"\nb ::= a \"y\" | \"z\"", "begins with itself");
  refuses(GrammarKind::gbnf, "root ::= \"a\" root", "cannot end");
  refuses(GrammarKind::gbnf, "root ::= missing", "not defined");
  refuses(GrammarKind::gbnf, "start ::= \"a\"", "no rule 'root'");
  refuses(GrammarKind::gbnf, "root ::= " + std::string(300, '(') + "\"a\"", "deeper");
  refuses(GrammarKind::gbnf, "root ::= [a]{1,1000000}", "over the limit");
  refuses(GrammarKind::lark, "start: a{b}", "templates");
  refuses(GrammarKind::lark, "%declare X\nstart: X", "%declare");
}

TEST(Grammar, SchemasThatCannotWorkAreRefusedWithAPointer) {
  refuses(GrammarKind::json_schema, R"({"$ref":"#"})", "no value satisfies");
  refuses(GrammarKind::json_schema, R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})",
          "no value satisfies");
  refuses(GrammarKind::json_schema, R"({"type":"string","minLength":3,"maxLength":2})", "no value satisfies");
  refuses(GrammarKind::json_schema, R"({"properties":{"a":{"$ref":"http://example.com/x"}}})", "/properties/a");
  refuses(GrammarKind::json_schema, R"({"unevaluatedProperties":false})", "/unevaluatedProperties");
  refuses(GrammarKind::json_schema, R"({"items":{"pattern":"(a)\\1"}})", "/items/pattern");
  refuses(GrammarKind::json_schema, R"({"type":"float"})", "/type");
  refuses(GrammarKind::json_schema, R"({"minLength":-1})", "/minLength");
  refuses(GrammarKind::json_schema, "{", "schema");
  refuses(GrammarKind::json_schema, std::string(2'000'000, ' ') + "{}", "limit");
  refuses(GrammarKind::json_schema, std::string(5000, '['), "schema");
}

TEST(Grammar, HostileInputEndsWithinItsLimits) {
  // Sixteen thousand states of a DFA, if all were made: only those that are met are.
  auto wide = compile(GrammarKind::regex, "[ab]*a[ab]{13}");
  ASSERT_TRUE(wide.ok());
  EXPECT_LT((*wide)->bytes(), 4 << 20);
  EXPECT_TRUE(accepts(**wide, "a" + std::string(13, 'b')));
  auto nested = compile(GrammarKind::regex, "(a{1,99}){1,99}");
  ASSERT_TRUE(nested.ok());
  EXPECT_TRUE(accepts(**nested, std::string(9801, 'a')));
  EXPECT_FALSE(begins(**nested, std::string(9802, 'a')));
  std::string many = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i * 7919) + "\"";
  many += "]}";
  auto large = compile(GrammarKind::json_schema, many);
  if (large.ok()) {
    EXPECT_TRUE(accepts(**large, "\"7919\""));
    EXPECT_FALSE(accepts(**large, "\"7920\""));
  }
  std::string deep = "{}";
  for (int i = 0; i < 30; ++i) deep = R"({"oneOf":[)" + deep + "," + deep.substr(0, 2) + "]}";
  static_cast<void>(compile(GrammarKind::json_schema, deep));
  auto long_text = compile(GrammarKind::json_schema, R"({"type":"string","maxLength":1000000})");
  ASSERT_TRUE(long_text.ok());
  EXPECT_LT((*long_text)->bytes(), 4 << 20);
}

// What takes too much is refused by counted work, and a refusal keeps no memory.
TEST(Grammar, TooMuchWorkIsRefusedInWords) {
  std::string choices = "[";
  for (int i = 0; i < 400'000; ++i)
    choices += (i > 0 ? ",\"" : "\"") + std::to_string(uint64_t(i) * 7919 * 7907) + "\"";
  refuses(GrammarKind::choice, choices + "]", "work");
  refuses(GrammarKind::json_schema,
          R"({"type":"number","allOf":[{"oneOf":[{"multipleOf":33},{"multipleOf":12},{"multipleOf":77}]},)"
          R"({"oneOf":[{"allOf":[{"not":{"multipleOf":6}},{"not":{"multipleOf":7}}]},{"multipleOf":44}]},)"
          R"({"oneOf":[{"not":{"multipleOf":11}},{"multipleOf":13}]},{"not":{"multipleOf":8}}]})",
          "work");
  refuses(GrammarKind::gbnf, "root ::= root", "");
  refuses(GrammarKind::gbnf, "root ::= a\na ::= b\nb ::= a", "");
  refuses(GrammarKind::json_schema, R"({"anyOf":[{"$ref":"#"},{"$ref":"#"}]})", "no value satisfies");
  refuses(GrammarKind::json_schema, R"({"type":"string","pattern":"^(a{1,100000}){1,100000}$"})", "/pattern");
}

TEST(Grammar, VocabularyThatCannotBeginIsSaid) {
  auto vocabulary = std::make_shared<GrammarVocabulary>(std::vector<std::string>{"a", "b", ""}, std::vector<Token>{2});
  auto grammar = Grammar::compile({.kind = GrammarKind::json_object}, vocabulary);
  ASSERT_FALSE(grammar.ok());
  EXPECT_NE(grammar.error().message.find("vocabulary"), std::string::npos);
}

Result<std::shared_ptr<Grammar>> compile_without(std::string_view lacks, GrammarKind kind, std::string text) {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) {
    const bool there = b >= 128 || lacks.find(static_cast<char>(b)) == std::string_view::npos;
    bytes.push_back(there ? std::string(1, static_cast<char>(b)) : "");
  }
  bytes.push_back("");
  auto vocabulary = std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<Token>{256});
  return Grammar::compile({.kind = kind, .text = std::move(text)}, std::move(vocabulary));
}

// A byte that no token has is never needed later: ways that lead to it are not begun.
TEST(Grammar, VocabularyThatLacksAByteIsNeverStuck) {
  auto two = compile_without("c}", GrammarKind::regex, "(abc|b)x");
  ASSERT_TRUE(two.ok()) << two.error().message;
  const auto mask = (*two)->allowed((*two)->start()).value();
  EXPECT_FALSE(mask->has('a'));
  EXPECT_TRUE(mask->has('b'));
  EXPECT_EQ(mask->count(), 1);
  for (const auto& [kind, text] : {std::pair{GrammarKind::regex, "abc"},
                                   {GrammarKind::json_object, ""},
                                   {GrammarKind::json_schema, R"({"enum":["c",{}]})"},
                                   {GrammarKind::choice, R"(["cc"])"},
                                   {GrammarKind::gbnf, "root ::= \"a\" [c] | \"}\""}}) {
    auto none = compile_without("c}", kind, text);
    ASSERT_FALSE(none.ok()) << text;
    EXPECT_NE(none.error().message.find("vocabulary has any of: c}"), std::string::npos) << none.error().message;
  }
  // Other values than those with the byte are left.
  auto some = compile_without("c", GrammarKind::json_schema, R"({"enum":["ac","ab",{"c":1},7]})");
  ASSERT_TRUE(some.ok()) << some.error().message;
  EXPECT_TRUE(accepts(**some, "\"ab\""));
  EXPECT_TRUE(accepts(**some, "7"));
  EXPECT_FALSE(begins(**some, "\"ac"));
  EXPECT_FALSE(begins(**some, "{\"c"));
}

TEST(Grammar, EndsExactlyWhereTheStateAccepts) {
  auto grammar = compile(GrammarKind::json_schema, R"({"type":"integer"})");
  ASSERT_TRUE(grammar.ok());
  const Token end = (*grammar)->vocabulary().ends()[0];
  EXPECT_FALSE((*(*grammar)->allowed((*grammar)->start()))->has(end));
  const Grammar::State one = (*grammar)->next((*grammar)->start(), '1');
  EXPECT_TRUE((*(*grammar)->allowed(one))->has(end));
  EXPECT_EQ((*grammar)->next((*grammar)->start(), end), Grammar::kRefused);
}

TEST(Grammar, StringsAreTextWhateverTheirSpelling) {
  auto grammar = compile(GrammarKind::json_schema, R"({"type":"string","pattern":"^[A-Z😀]$"})");
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(**grammar, "\"A\""));
  EXPECT_TRUE(accepts(**grammar, "\"\\u0041\""));
  EXPECT_TRUE(accepts(**grammar, "\"\\ud83d\\ude00\""));
  EXPECT_FALSE(begins(**grammar, "\"\\u00e"));
  EXPECT_FALSE(begins(**grammar, "\"\\ud83d\\u0041"));
  EXPECT_FALSE(begins(**grammar, "\"\\n"));
  EXPECT_FALSE(begins(**grammar, "\"\xC3"));
}

}  // namespace
}  // namespace millrace
