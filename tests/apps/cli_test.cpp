#include "apps/cli/cli.h"

#include <gtest/gtest.h>

#include <map>

namespace millrace::apps {
namespace {

const Verb& brew() {
  static const Verb verb = {
      .name = "brew",
      .summary = "make something to drink",
      .group = "Test",
      .operands = {{.name = "WHAT", .help = "what to brew"}, {.name = "REST", .required = false, .many = true}},
      .flags = {{.name = "cups", .alias = "-c --mugs", .kind = Kind::integer, .otherwise = "2", .least = 1, .most = 10},
                {.name = "heat", .kind = Kind::number, .otherwise = "0.5", .least = 0},
                {.name = "water", .kind = Kind::bytes, .otherwise = "1K"},
                {.name = "style", .kind = Kind::text, .choices = "weak|strong"},
                {.name = "ids", .kind = Kind::integer, .many = Many::commas},
                {.name = "stop", .kind = Kind::text, .many = Many::repeated},
                {.name = "milk"},
                {.name = "sugar-free"}}};
  return verb;
}

std::map<std::string, std::string> fake_environment;

const char* from_fake(const char* name) {
  auto found = fake_environment.find(name);
  return found == fake_environment.end() ? nullptr : found->second.c_str();
}

Result<Arguments> parse(std::vector<std::string> words) { return Arguments::parse(brew(), words, from_fake); }

std::string failure(std::vector<std::string> words) {
  auto parsed = parse(std::move(words));
  return parsed.ok() ? "(parsed)" : parsed.error().message;
}

class Cli : public testing::Test {
 protected:
  void SetUp() override { fake_environment.clear(); }
};

TEST_F(Cli, DefaultsComeFromTheTable) {
  auto parsed = parse({"tea"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->operand("WHAT"), "tea");
  EXPECT_TRUE(parsed->operands("REST").empty());
  EXPECT_EQ(parsed->integer("cups"), 2);
  EXPECT_EQ(parsed->number("heat"), 0.5);
  EXPECT_EQ(parsed->integer("water"), 1024);
  EXPECT_FALSE(parsed->toggle("milk"));
  EXPECT_FALSE(parsed->given("cups"));
  EXPECT_EQ(parsed->maybe_text("style"), std::nullopt);
  EXPECT_EQ(parsed->text("color"), "auto");
}

TEST_F(Cli, EverySpellingOfAFlagIsTheSame) {
  for (std::vector<std::string> words : {std::vector<std::string>{"--cups", "4"},
                                         {"--cups=4"},
                                         {"-c", "4"},
                                         {"-c=4"},
                                         {"--mugs", "4"},
                                         {"--cups", "9", "-c", "4"}}) {
    words.push_back("tea");
    auto parsed = parse(words);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->integer("cups"), 4) << words[0];
    EXPECT_TRUE(parsed->given("cups"));
    EXPECT_EQ(parsed->operand("WHAT"), "tea");
  }
}

TEST_F(Cli, TogglesHaveANegativeTwin) {
  EXPECT_TRUE(parse({"tea", "--milk"})->toggle("milk"));
  EXPECT_TRUE(parse({"tea", "--milk=yes"})->toggle("milk"));
  EXPECT_FALSE(parse({"tea", "--milk", "--no-milk"})->toggle("milk"));
  EXPECT_FALSE(parse({"tea", "--milk=off"})->toggle("milk"));
  EXPECT_TRUE(parse({"tea", "--sugar-free"})->toggle("sugar-free"));
  EXPECT_EQ(failure({"tea", "--milk=perhaps"}), "--milk needs 1 or 0 (true, false, yes, no, on, off), not 'perhaps'");
}

TEST_F(Cli, OperandsMayStandAnywhereAndAfterTwoDashes) {
  auto parsed = parse({"tea", "--milk", "a", "--", "--b", "-"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->operands("REST"), (std::vector<std::string>{"a", "--b", "-"}));
  EXPECT_EQ(failure({}), "`millrace brew` needs WHAT: what to brew");
}

TEST_F(Cli, AValueMayBeginWithADash) {
  EXPECT_EQ(parse({"tea", "--stop", "--milk"})->texts("stop"), (std::vector<std::string>{"--milk"}));
  EXPECT_EQ(failure({"tea", "--heat", "-1"}), "--heat must be at least 0, not -1");
}

TEST_F(Cli, ListsCollect) {
  EXPECT_EQ(parse({"tea", "--ids", "1,2,,3", "--ids=-4"})->integers("ids"), (std::vector<int64_t>{1, 2, 3, -4}));
  EXPECT_EQ(parse({"tea", "--stop", "a,b", "--stop", ""})->texts("stop"), (std::vector<std::string>{"a,b", ""}));
  EXPECT_EQ(failure({"tea", "--ids", "1,x"}), "--ids needs a whole number, not 'x'");
}

TEST_F(Cli, SizesHaveSuffixes) {
  EXPECT_EQ(parse({"tea", "--water", "512"})->integer("water"), 512);
  EXPECT_EQ(parse({"tea", "--water", "3b"})->integer("water"), 3);
  EXPECT_EQ(parse({"tea", "--water", "1.5GiB"})->integer("water"), int64_t{3} << 29);
  EXPECT_EQ(parse({"tea", "--water", "2m"})->integer("water"), 2 << 20);
  for (const char* bad : {"", "x", "1.5GB2", "-1", "12e", "99999999T"}) {
    EXPECT_NE(failure({"tea", "--water", bad}), "(parsed)") << bad;
  }
}

TEST_F(Cli, WrongValuesAreNamed) {
  EXPECT_EQ(failure({"tea", "--cups", "many"}), "--cups needs a whole number, not 'many'");
  EXPECT_EQ(failure({"tea", "--cups", "1.5"}), "--cups needs a whole number, not '1.5'");
  EXPECT_EQ(failure({"tea", "--cups", "99999999999999999999"}),
            "--cups needs a whole number, not '99999999999999999999'");
  EXPECT_EQ(failure({"tea", "-c", "11"}), "-c must be between 1 and 10, not 11");
  EXPECT_EQ(failure({"tea", "--heat", "nan"}), "--heat needs a number, not 'nan'");
  EXPECT_EQ(failure({"tea", "--style", "stong"}), "--style cannot be 'stong'; did you mean strong?");
  EXPECT_EQ(failure({"tea", "--style", "with lemon"}), "--style cannot be 'with lemon'; it is one of weak, strong");
  EXPECT_EQ(failure({"tea", "--cups"}), "--cups needs a value: ");
}

TEST_F(Cli, UnknownFlagsSuggestTheNearest) {
  EXPECT_EQ(failure({"tea", "--cusp", "1"}), "unknown flag --cusp; did you mean --cups?");
  EXPECT_EQ(failure({"tea", "--no-mlik"}), "unknown flag --no-mlik; did you mean --no-milk?");
  EXPECT_EQ(failure({"tea", "--no-cups"}), "unknown flag --no-cups; did you mean --cups?");
  EXPECT_EQ(failure({"tea", "--colour=never"}), "unknown flag --colour; did you mean --color?");
  EXPECT_EQ(failure({"tea", "--blockchain"}), "unknown flag --blockchain; `millrace brew --help` lists the flags");
  EXPECT_EQ(failure({"tea", "-mugss"}), "unknown flag -mugss; did you mean --mugs?");
}

// Every spelling of a few letters is near to another: only the same letters are a slip.
TEST_F(Cli, ShortSpellingsSuggestOnlySwappedLetters) {
  for (const char* other : {"-x", "-z", "-cd", "-mug", "-muga", "-cupz", "-hat"})
    EXPECT_EQ(failure({"tea", other}), fmt::format("unknown flag {}; `millrace brew --help` lists the flags", other));
  EXPECT_EQ(failure({"tea", "-cpus", "3"}), "unknown flag -cpus; did you mean --cups?");
  EXPECT_EQ(failure({"tea", "-cups", "3"}), "unknown flag -cups; did you mean --cups?");
  for (const char* known : {"-ngl", "-sm", "-ts", "-mg", "-dev", "-nkvo", "-cb"})
    EXPECT_EQ(failure({"tea", known}).find("there is no -"), 0u) << known;
}

TEST_F(Cli, TheEnvironmentStandsBetweenFlagAndDefault) {
  fake_environment = {{"MILLRACE_CUPS", "7"}, {"MILLRACE_SUGAR_FREE", "1"}, {"MILLRACE_STYLE", ""}};
  EXPECT_EQ(parse({"tea"})->integer("cups"), 7);
  EXPECT_TRUE(parse({"tea"})->given("cups"));
  EXPECT_TRUE(parse({"tea"})->toggle("sugar-free"));
  EXPECT_FALSE(parse({"tea", "--no-sugar-free"})->toggle("sugar-free"));
  EXPECT_EQ(parse({"tea", "--cups", "3"})->integer("cups"), 3);
  EXPECT_FALSE(parse({"tea"})->given("style"));
  fake_environment["MILLRACE_CUPS"] = "seven";
  EXPECT_EQ(failure({"tea"}), "MILLRACE_CUPS needs a whole number, not 'seven'");
}

TEST_F(Cli, HelpIsAskedForBeforeTwoDashesOnly) {
  EXPECT_TRUE(asks_for_help(std::vector<std::string>{"x", "--help"}));
  EXPECT_TRUE(asks_for_help(std::vector<std::string>{"-h"}));
  EXPECT_FALSE(asks_for_help(std::vector<std::string>{"--", "--help"}));
}

TEST(Nearest, CountsSlipsNotWords) {
  std::vector<std::string> known = {"tokenize", "detokenize", "template", "inspect", "run"};
  EXPECT_EQ(nearest("tokenise", known), "tokenize");
  EXPECT_EQ(nearest("insepct", known), "inspect");
  EXPECT_EQ(nearest("temp", known), "template");
  EXPECT_EQ(nearest("rnu", known), "run");
  EXPECT_EQ(nearest("frobnicate", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
}

}  // namespace
}  // namespace millrace::apps
