#include "session/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

struct Outcome {
  std::string text;
  std::string found;
  bool operator==(const Outcome&) const = default;
};

Outcome run(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopStrings matcher = StopStrings::create(stops).value();
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (matcher.push(piece, outcome.text)) break;
  }
  matcher.finish(outcome.text);
  outcome.found = matcher.found();
  return outcome;
}

// By definition: the shortest beginning of the text that ends in a stop string, less the longest such string.
Outcome definition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string_view longest;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > longest.size()) longest = stop;
    }
    if (!longest.empty()) return {text.substr(0, end - longest.size()), std::string(longest)};
  }
  return {text, ""};
}

TEST(StopStrings, FindsThemAcrossPieces) {
  EXPECT_EQ(run({"END"}, {"one E", "N", "D two"}), (Outcome{"one ", "END"}));
  EXPECT_EQ(run({"\n\n"}, {"a\n", "b\n", "\n", "c"}), (Outcome{"a\nb", "\n\n"}));
  EXPECT_EQ(run({"aab"}, {"aa", "ab"}), (Outcome{"a", "aab"}));
  EXPECT_EQ(run({}, {"a", "b"}), (Outcome{"ab", ""}));
  EXPECT_EQ(run({"###"}, {"ends with ##"}), (Outcome{"ends with ##", ""}));
}

TEST(StopStrings, HoldsBackOnlyWhatMayBeABeginning) {
  StopStrings matcher = StopStrings::create(std::vector<std::string>{"<stop>"}).value();
  std::string out;
  EXPECT_FALSE(matcher.push("a <", out));
  EXPECT_EQ(out, "a ");
  EXPECT_FALSE(matcher.push("st", out));
  EXPECT_EQ(out, "a ");
  EXPECT_FALSE(matcher.push("r", out));
  EXPECT_EQ(out, "a <str");
  EXPECT_EQ(matcher.held_back(), 0u);
}

TEST(StopStrings, TheCutOfTheTextDoesNotMatter) {
  std::mt19937 generator(1);
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](size_t most) {
      std::string text(1 + generator() % most, 'a');
      for (char& c : text) c = static_cast<char>('a' + generator() % 2);
      return text;
    };
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + generator() % 3; ++i) stops.push_back(word(6));
    std::string text = word(40);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      size_t length = 1 + generator() % 5;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(run(stops, pieces), definition(stops, text)) << text;
  }
}

TEST(StopStrings, RefusesNonsense) {
  EXPECT_FALSE(StopStrings::create(std::vector<std::string>{""}).ok());
  EXPECT_FALSE(StopStrings::create(std::vector<std::string>(65, "x")).ok());
  EXPECT_FALSE(StopStrings::create(std::vector<std::string>{std::string(70'000, 'x')}).ok());
}

}  // namespace
}  // namespace millrace
