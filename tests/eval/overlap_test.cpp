// Expected values were computed with sacreBLEU 2 and torchmetrics on the same input.
#include "eval/overlap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "eval/interval.h"
#include "eval/words.h"

namespace millrace {
namespace {

using Texts = std::vector<std::string>;

const Texts kHypotheses = {"The dog bit the man.",          "It wasn't surprising.",
                           "The man had just bitten him.",  "On a cold morning, 3.5 million people woke up.",
                           "Grüße aus München: 20 % mehr!", ""};
const Texts kFirst = {"The dog bit the man.",           "It was not unexpected.",
                      "The man bit him first.",         "One cold morning 3.5 million people awoke.",
                      "Grüße aus München – 20 % mehr!", "Nothing here."};
const Texts kSecond = {"The dog had bit the man.",
                       "No one was surprised.",
                       "The man had bitten the dog.",
                       "On a cold morning, 3.5m people were waking up.",
                       "Schöne Grüße aus München: 20% mehr!",
                       "Empty."};

TEST(Overlap, WordsOf13a) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"Hello, world! It's 3.14 (about 22/7) -- costs $1,000.50...",
       "Hello , world ! It's 3.14 ( about 22 / 7 ) -- costs $ 1,000.50 . . ."},
      {"a..b,,c 1,2,3-4 5-6. 7.", "a . . b , , c 1,2,3 - 4 5 - 6 . 7 ."},
      {"&quot;Quoted&quot; &amp; &lt;tag&gt; it&apos;s", "\" Quoted \" & < tag > it & apos ; s"},
      {"naïve café — “quoted” text… 100%", "naïve café — “quoted” text… 100 %"},
      {"x.y 1.y x.1 ,start end.", "x . y 1 . y x . 1 , start end ."},
      {"日本語、テスト。 A．B", "日本語、テスト。 A．B"},
      {"don't e-mail me@host.com [1] {2} ~tilde^ <skipped>gone",
       "don't e-mail me @ host . com [ 1 ] { 2 } ~ tilde ^ gone"},
      {"1,000-2,000 . , -", "1,000 - 2,000 . , -"},
      {"", ""}};
  for (const auto& [line, words] : cases) EXPECT_EQ(tokenize_13a(line), words);
}

BleuStatistics corpus(const std::vector<Texts>& references) {
  BleuStatistics all;
  for (size_t i = 0; i < kHypotheses.size(); ++i) {
    Texts here;
    for (const Texts& each : references) here.push_back(each[i]);
    all += bleu_statistics(kHypotheses[i], here);
  }
  return all;
}

TEST(Overlap, BleuOfACorpus) {
  const BleuStatistics two = corpus({kFirst, kSecond}), one = corpus({kFirst});
  EXPECT_EQ(two.correct, (std::array<int64_t, 4>{32, 21, 15, 10}));
  EXPECT_EQ(two.total, (std::array<int64_t, 4>{36, 31, 26, 21}));
  EXPECT_EQ(two.length, 36);
  EXPECT_EQ(two.reference_length, 39);
  EXPECT_NEAR(bleu_score(two).score, 58.67589420800395, 1e-9);
  EXPECT_NEAR(bleu_score(two).brevity, 0.9200444146293233, 1e-12);
  EXPECT_NEAR(bleu_score(one).score, 36.82055211386896, 1e-9);
  EXPECT_NEAR(bleu_score(one).precisions[3], 19.047619047619047, 1e-9);
}

TEST(Overlap, BleuOfSentences) {
  const double expected[] = {100, 14.794015674776452, 29.071536848410968, 51.56626918239823, 100, 0};
  for (size_t i = 0; i < kHypotheses.size(); ++i) {
    const Texts references = {kFirst[i], kSecond[i]};
    EXPECT_NEAR(bleu_score(bleu_statistics(kHypotheses[i], references), true).score, expected[i], 1e-9) << i;
  }
  const Texts reference = {"producţia de zahăr brut se exprimă în zahăr alb;"};
  const auto statistics =
      bleu_statistics("Producția de zahăr primă va fi exprimată în ceea ce privește zahărul alb;", reference);
  EXPECT_NEAR(bleu_score(statistics, true).score, 8.493098745313148, 1e-9);
  const Texts other = {"okay thanks"};
  EXPECT_EQ(bleu_score(bleu_statistics("this is a cat", other), true).score, 0);
}

TEST(Overlap, ChrfOfACorpus) {
  auto score = [&](const std::vector<Texts>& references, const ChrfOptions& options) {
    ChrfStatistics all(static_cast<size_t>(options.order + options.word_order));
    for (size_t i = 0; i < kHypotheses.size(); ++i) {
      Texts here;
      for (const Texts& each : references) here.push_back(each[i]);
      const ChrfStatistics one = chrf_statistics(kHypotheses[i], here, options);
      for (size_t n = 0; n < all.size(); ++n) {
        for (size_t k = 0; k < 3; ++k) all[n][k] += one[n][k];
      }
    }
    return chrf_score(all, options);
  };
  EXPECT_NEAR(score({kFirst, kSecond}, {}), 63.684167700967144, 1e-9);
  EXPECT_NEAR(score({kFirst, kSecond}, {.word_order = 2}), 63.50436351894969, 1e-9);
  EXPECT_NEAR(score({kFirst, kSecond}, {.beta = 3}), 63.36664443579587, 1e-9);
  EXPECT_NEAR(score({kFirst}, {}), 59.68521177181846, 1e-9);
  EXPECT_NEAR(score({kFirst}, {.word_order = 2}), 59.24221443199389, 1e-9);
}

// What sacreBLEU's own tests expect of beta 3 and effective order.
TEST(Overlap, ChrfOfLittleText) {
  const std::tuple<std::string_view, std::string, double> cases[] = {
      {"a", "a", 100}, {"", "reference", 0}, {"a b c", "abc", 100}, {"aa", "ab", 25}, {"abcdefg", "hijklmnop", 0}};
  for (const auto& [hypothesis, reference, expected] : cases) {
    const ChrfOptions options = {.beta = 3};
    EXPECT_NEAR(chrf_score(chrf_statistics(hypothesis, {&reference, 1}, options), options), expected, 1e-4);
  }
}

TEST(Overlap, RougeOfPairs) {
  struct Case {
    std::string_view hypothesis, reference;
    double one, two, longest, summary;  // F
  };
  const Case cases[] = {{"The quick brown dog jumps on the log.", "The quick brown fox jumps over the lazy dog",
                         0.7058823529411765, 0.26666666666666666, 0.5882352941176471, 0.5882352941176471},
                        {"Police killed the gunman; 3 people were hurt.\nThe gunman was shot twice.",
                         "The gunman was killed by police.\nThree people were hurt, police said 3.", 0.6923076923076923,
                         0.3333333333333333, 0.38461538461538464, 0.46153846153846156},
                        {"Ein Café in Zürich öffnet um 8:30 Uhr", "Das Café in Zürich öffnet erst um 8:30", 0.8,
                         0.6666666666666666, 0.8, 0.8},
                        {"testing two", "testing one two", 0.8, 0, 0.8, 0.8},
                        {"/", "w1 w2", 0, 0, 0, 0},
                        {"w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 0.5333333333333333, 0.15384615384615383,
                         0.5333333333333333, 0.5333333333333333}};
  for (const Case& each : cases) {
    const Rouge found = rouge(each.hypothesis, each.reference);
    EXPECT_NEAR(found.one.f, each.one, 1e-12) << each.hypothesis;
    EXPECT_NEAR(found.two.f, each.two, 1e-12) << each.hypothesis;
    EXPECT_NEAR(found.longest.f, each.longest, 1e-12) << each.hypothesis;
    EXPECT_NEAR(found.summary.f, each.summary, 1e-12) << each.hypothesis;
  }
  const Rouge first = rouge(cases[0].hypothesis, cases[0].reference);
  EXPECT_NEAR(first.one.precision, 0.75, 1e-12);
  EXPECT_NEAR(first.one.recall, 0.6666666666666666, 1e-12);
}

TEST(Overlap, Answers) {
  EXPECT_EQ(normal_answer(" The  Quick, brown fox! "), "quick brown fox");
  const Texts references = {"the Eiffel Tower", "Tour Eiffel"};
  EXPECT_TRUE(answer_matches("Eiffel tower.", references));
  EXPECT_FALSE(answer_matches("the tower", references));
  EXPECT_NEAR(answer_f1("in the Eiffel tower", references), 0.8, 1e-12);  // 2 of 3 words, 2 of 2
  EXPECT_EQ(answer_f1("", references), 0);
  const Texts silence = {"the"};
  EXPECT_EQ(answer_f1("a", silence), 1);
}

TEST(Overlap, WhiteSpaceIsPythons) {
  EXPECT_EQ(split_words("a\u00a0b\u3000c \x1c d\u200be"), (Texts{"a", "b", "c", "d\u200be"}));
  EXPECT_EQ(without_trailing_space("a \u00a0"), "a");
  EXPECT_EQ(lower_case("ÀÉÎŸ ŁÓDŹ ΑΒΓ ЖЩЁ"), "àéîÿ łódź αβγ жщё");
  EXPECT_EQ(split_lines("a\r\nb\n\nc\n"), (Texts{"a", "b", "", "c"}));
  EXPECT_EQ(code_points("\xff\xe4").size(), 2u);
}

TEST(Interval, OfMeansAndShares) {
  const double values[] = {1, 2, 3, 4};
  const Interval mean = mean_interval(values);
  EXPECT_DOUBLE_EQ(mean.value, 2.5);
  EXPECT_NEAR(mean.high - mean.value, 1.96 * std::sqrt(5.0 / 3 / 4), 1e-3);
  const Interval share = share_interval(8, 10);  // Wilson: 0.490 to 0.943
  EXPECT_NEAR(share.low, 0.4902, 1e-4);
  EXPECT_NEAR(share.high, 0.9433, 1e-4);
  EXPECT_EQ(share_interval(0, 5).low, 0);
  const Interval same = resampled_interval(5, [](std::span<const uint32_t>) { return 7.0; });
  EXPECT_EQ(same.low, 7);
  EXPECT_EQ(same.high, 7);
}

}  // namespace
}  // namespace millrace
