// Tasks: questions from JSON lines with answers that can be checked. Multiple choice by log-likelihood (also divided by
// the length of each choice, as HellaSwag is reported), and numbers worked out in words (GSM8K) by exact match. What
// was answered is written down as it comes, so that a run that was stopped goes on where it was. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/perplexity.h"

namespace millrace {

// Which of several endings follows a context.
struct ChoiceItem {
  std::string context;
  std::vector<std::string> choices;  // with the space before them, if any
  size_t answer = 0;
};

// A line of HellaSwag's file (activity_label, ctx_a, ctx_b, endings, label), its markup removed.
Result<ChoiceItem> hellaswag_item(const Json& line);
// A line with question (or context, query), choices and answer: an index, a letter, or a choice's text.
Result<ChoiceItem> choice_item(const Json& line);

struct WordProblem {
  std::string question, solution;
  std::string answer;  // the number after ####
};
Result<WordProblem> word_problem(const Json& line);  // question, answer with "#### 42" at its end
// The number an answer ends in: after #### if it says so, else the last one. Without signs of money and thousands.
std::optional<std::string> final_number(std::string_view text);

using Encode = std::function<std::vector<Token>(std::string_view text)>;

// One text per choice: context and choice, of which the choice's tokens are scored. What does not fit `context` tokens
// loses its beginning.
std::vector<ScoredText> choice_texts(const ChoiceItem& item, const Encode& encode, std::optional<Token> begin,
                                     int32_t context);

struct Picked {
  size_t plain = 0;       // the likeliest
  size_t normalised = 0;  // the likeliest a character
};
Picked pick(const ChoiceItem& item, std::span<const TextScore> scores);

// What was answered so far. The first line says what was asked of whom; a file that says something else is refused.
class TaskJournal {
 public:
  // An empty path keeps nothing.
  static Result<TaskJournal> open(const std::filesystem::path& path, const JsonObject& identity);

  const std::map<int64_t, Json>& done() const { return done_; }
  Result<void> add(int64_t index, JsonObject entry);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  std::map<int64_t, Json> done_;
};

}  // namespace millrace
