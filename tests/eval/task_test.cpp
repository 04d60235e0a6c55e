#include "eval/task.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

Json line(std::string_view text) { return parse_json(text).value(); }

TEST(Task, HellaSwagLosesItsMarks) {
  const ChoiceItem item =
      hellaswag_item(line(R"({"activity_label":"Baking","ctx_a":"A man [header] stirs [title] the dough.",
      "ctx_b":"he","endings":["bakes it. [step]","[x] flies  away."],"label":"1"})"))
          .value();
  EXPECT_EQ(item.context, "Baking: A man stirs. the dough. He");
  EXPECT_EQ(item.choices, (std::vector<std::string>{" bakes it.", " flies away."}));
  EXPECT_EQ(item.answer, 1u);
}

TEST(Task, ChoicesNameTheirAnswerInManyWays) {
  for (std::string_view answer : {"1", "\"B\"", "\"1\"", "\"blue\""}) {
    const auto item =
        choice_item(line(fmt::format(R"({{"question":"The sky is","choices":["red","blue"],"answer":{}}})", answer)));
    ASSERT_TRUE(item.ok()) << answer;
    EXPECT_EQ(item->answer, 1u) << answer;
    EXPECT_EQ(item->choices[1], " blue");
  }
  for (std::string_view bad :
       {R"({"question":"q","choices":["a"],"answer":0})", R"({"choices":["a","b"],"answer":0})",
        R"({"question":"q","choices":["a","b"],"answer":2})", R"({"question":"q","choices":["a","b"]})",
        R"({"question":"q","choices":[1,2],"answer":0})"}) {
    EXPECT_FALSE(choice_item(line(bad)).ok()) << bad;
  }
}

TEST(Task, NumbersAtTheEndOfAnAnswer) {
  EXPECT_EQ(final_number("He has 3 + 4 = 7 apples.\n#### 1,007"), "1007");
  EXPECT_EQ(final_number("so the answer is $42.00."), "42");
  EXPECT_EQ(final_number("it is -5, not 6"), "6");
  EXPECT_EQ(final_number("#### -12.50 dollars 3"), "-12.5");
  EXPECT_EQ(final_number("none at all"), std::nullopt);
  const auto problem = word_problem(line(R"({"question":"How many?","answer":"2+2=4\n#### 4"})"));
  EXPECT_EQ(problem->answer, "4");
  EXPECT_FALSE(word_problem(line(R"({"question":"How many?","answer":"four"})")).ok());
}

TEST(Task, TextsScoreOnlyTheChoice) {
  const Encode bytes = [](std::string_view text) { return std::vector<Token>(text.begin(), text.end()); };
  const ChoiceItem item = {.context = "abcd", .choices = {" x", " yz"}, .answer = 0};
  const auto texts = choice_texts(item, bytes, Token{1}, 100);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].tokens.size(), 8u);
  EXPECT_EQ(texts[1].first, 5);
  const auto cut = choice_texts(item, bytes, Token{1}, 4);
  EXPECT_EQ(cut[1].tokens.size(), 5u);  // the last five
  EXPECT_EQ(cut[1].tokens.back(), 'z');
  EXPECT_EQ(cut[1].first, 2);
}

TEST(Task, LongChoicesAreNotPunished) {
  const ChoiceItem item = {.context = "", .choices = {" no", " certainly"}, .answer = 0};
  const std::vector<TextScore> scores = {{.tokens = 1, .surprise = 2}, {.tokens = 3, .surprise = 3}};
  EXPECT_EQ(pick(item, scores).plain, 0u);
  EXPECT_EQ(pick(item, scores).normalised, 1u);
}

TEST(Task, AJournalGoesOnWhereItWas) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("millrace-journal-{}", getpid());
  std::filesystem::remove(path);
  const JsonObject identity = {{"task", "choice"}, {"model", "m"}};
  {
    TaskJournal journal = TaskJournal::open(path, identity).value();
    ASSERT_TRUE(journal.add(0, {{"hit", true}}).ok());
    ASSERT_TRUE(journal.add(2, {{"hit", false}}).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"index\":3,\"hi";  // cut short
  {
    TaskJournal journal = TaskJournal::open(path, identity).value();
    EXPECT_EQ(journal.done().size(), 2u);
    EXPECT_TRUE(journal.done().contains(2));
    ASSERT_TRUE(journal.add(3, {{"hit", true}}).ok());
  }
  EXPECT_EQ(TaskJournal::open(path, identity)->done().size(), 3u);
  EXPECT_FALSE(TaskJournal::open(path, {{"task", "other"}}).ok());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace millrace
