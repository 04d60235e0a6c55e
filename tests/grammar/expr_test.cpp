#include "grammar/expr.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "grammar/numbers.h"
#include "grammar/regex.h"

namespace millrace {
namespace {

using namespace grammar;

bool matches(Exprs& exprs, std::string_view pattern, std::string text) {
  auto expr = regex_expr(exprs, pattern, RegexUse::search);
  EXPECT_TRUE(expr.ok()) << pattern;
  return expr.ok() && exprs.accepts(*expr, text + static_cast<char>(kTextEnd));
}

// Every text of up to four letters a, b and c: the standard library is the oracle.
TEST(Expr, FindsWhatTheStandardLibraryFinds) {
  for (const char* pattern : {"a", "^a", "b$", "^(a|bc)*$", "^a{2,3}b?$", "(ab|^c)+c$", "[^b]{3}", "^(?:a*b){2}$", "^$",
                              "a|^$", "^(a{1,2}){2}$", "^[ab]*a[ab]{2}$", "(?=ab)a", "^(?!ab)a", "b(?!c)", "a.c"}) {
    const std::regex oracle(pattern, std::regex::ECMAScript);
    Exprs exprs;
    std::vector<std::string> texts{""};
    for (size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
      for (char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
    }
    for (const std::string& text : texts) {
      EXPECT_EQ(matches(exprs, pattern, text), std::regex_search(text, oracle)) << pattern << " on " << text;
    }
  }
}

TEST(Expr, LivesExactlyIfSomethingCanFollow) {
  Exprs exprs;
  const ExprId both = exprs.both({*regex_expr(exprs, "^[ab]{3}$", RegexUse::search),
                                  exprs.negate(*regex_expr(exprs, "b", RegexUse::search)), any_text(exprs)});
  EXPECT_TRUE(exprs.live(both));
  EXPECT_FALSE(exprs.live(exprs.derive(both, 'b')));
  EXPECT_TRUE(exprs.accepts(both, "aaa\xFF"));
  const ExprId none = exprs.both({exprs.literal("ab"), exprs.literal("ac")});
  EXPECT_FALSE(exprs.live(none));
}

TEST(Expr, CountsWithoutUnrolling) {
  Exprs exprs;
  const ExprId nested = *regex_expr(exprs, "^(a{1,99}){1,99}$", RegexUse::whole);
  EXPECT_TRUE(exprs.accepts(nested, std::string(9801, 'a') + "\xFF"));
  EXPECT_FALSE(exprs.accepts(nested, std::string(9802, 'a') + "\xFF"));
  EXPECT_LT(exprs.size(), 40'000u);
  const ExprId small = text_of_length(exprs, 0, 100'000);
  const size_t before = exprs.size();
  EXPECT_TRUE(exprs.live(exprs.derive(small, 'x')));
  EXPECT_LT(exprs.size() - before, 16u);
}

TEST(Expr, StopsAtItsLimitOfWork) {
  Exprs exprs;
  exprs.limit(20'000);
  ExprId expr = *regex_expr(exprs, "[ab]*a[ab]{40}", RegexUse::terminal);
  uint64_t bits = 0x9E3779B97F4A7C15;
  for (int i = 0; i < 100'000 && !exprs.over(); ++i) {
    bits = bits * 6364136223846793005u + 1;
    expr = exprs.derive(expr, bits >> 63 != 0 ? 'a' : 'b');
  }
  EXPECT_TRUE(exprs.over());
}

TEST(Expr, RefusesWhatIsNotRegularByName) {
  Exprs exprs;
  for (const auto& [pattern, word] : {std::pair{"(a)\\1", "reference back"},
                                      {"\\bword", "word boundary"},
                                      {"(?<=a)b", "looking behind"},
                                      {"\\p{L}", "Unicode property"}}) {
    auto expr = regex_expr(exprs, pattern, RegexUse::search);
    ASSERT_FALSE(expr.ok()) << pattern;
    EXPECT_NE(expr.error().message.find(word), std::string::npos) << expr.error().message;
  }
  EXPECT_FALSE(regex_expr(exprs, "a{1,200000}", RegexUse::search).ok());
  EXPECT_FALSE(regex_expr(exprs, "((a{1,9999}b){1,9999})", RegexUse::search).ok());
}

// Every number from -30.00 to 30.00 in steps of a quarter, against arithmetic.
TEST(Numbers, RangesAndMultiplesAreExact) {
  struct Case {
    double least, most, step;
    bool above, below, whole;
  };
  for (const Case& c : {Case{-7.5, 12, 0, false, false, false},
                        {-7.5, 12, 0, true, true, false},
                        {0, 9, 3, false, true, true},
                        {-20, -3.25, 0.75, true, false, false},
                        {10, 10, 0, false, false, true},
                        {-30, 30, 1.25, false, false, false}}) {
    Exprs exprs;
    NumberRange range;
    range.whole = c.whole;
    range.at_least(*to_decimal(Json(c.least)), c.above);
    range.at_most(*to_decimal(Json(c.most)), c.below);
    if (c.step > 0) range.steps.push_back(*to_decimal(Json(c.step)));
    const ExprId expr = *number_expr(exprs, range);
    for (int quarter = -120; quarter <= 120; ++quarter) {
      const double value = quarter / 4.0;
      bool good = c.above ? value > c.least : value >= c.least;
      good = good && (c.below ? value < c.most : value <= c.most);
      good = good && (!c.whole || quarter % 4 == 0);
      if (c.step > 0) good = good && quarter % static_cast<int>(c.step * 4) == 0;
      EXPECT_EQ(exprs.accepts(expr, to_text(*to_decimal(Json(value)))), good)
          << value << " in " << c.least << ".." << c.most;
    }
  }
}

}  // namespace
}  // namespace millrace
