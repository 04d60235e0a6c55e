#include "eval/task.h"

#include <algorithm>

#include "base/file.h"
#include "eval/words.h"

namespace millrace {
namespace {

// HellaSwag's texts carry marks of the pages they came from: [title], [header], [step].
std::string cleaned(std::string text) {
  for (size_t at = text.find(" [title]"); at != std::string::npos; at = text.find(" [title]", at))
    text.replace(at, 8, ". ");
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' && text.find(']', i) != std::string::npos) inside = true;
    if (!inside) out += text[i];
    if (text[i] == ']') inside = false;
  }
  for (size_t at = out.find("  "); at != std::string::npos; at = out.find("  ", at)) out.replace(at, 2, " ");
  const size_t first = out.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return out.substr(first, out.find_last_not_of(" \t\r\n") - first + 1);
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

Result<std::vector<std::string>> texts_of(const Json& line, std::string_view key) {
  const Json* list = find(line, key);
  if (list == nullptr || !list->is_array()) return error(Code::invalid, "'{}' must be a list of texts", key);
  std::vector<std::string> texts;
  for (const Json& each : list->get_array()) {
    if (!each.is_string()) return error(Code::invalid, "'{}' must be a list of texts", key);
    texts.emplace_back(each.get_string());
  }
  if (texts.size() < 2) return error(Code::invalid, "'{}' has {} entries; there must be at least 2", key, texts.size());
  return texts;
}

// An index, a letter, or the text of a choice.
Result<size_t> answer_of(const Json& line, std::string_view key, const std::vector<std::string>& choices) {
  const Json* value = find(line, key);
  int64_t index = -1;
  if (value != nullptr && value->is_int64()) index = value->get_int64();
  if (value != nullptr && value->is_string()) {
    const std::string_view text = value->get_string();
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == text) index = static_cast<int64_t>(i);
    }
    if (index < 0 && text.size() == 1 && text[0] >= '0' && text[0] <= '9') index = text[0] - '0';
    if (index < 0 && text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') index = text[0] - 'A';
  }
  if (index < 0 || index >= static_cast<int64_t>(choices.size())) {
    return error(Code::invalid, "'{}' must be the number (from 0), letter or text of one of the {} choices", key,
                 choices.size());
  }
  return static_cast<size_t>(index);
}

}  // namespace

Result<ChoiceItem> hellaswag_item(const Json& line) {
  ChoiceItem item;
  TRY(const std::string activity, get_string(line, "activity_label", ""));
  TRY(const std::string first, get_string(line, "ctx_a", ""));
  TRY(const std::string second, get_string(line, "ctx_b", ""));
  if (first.empty() && second.empty()) return error(Code::invalid, "'ctx_a' is missing; this is no line of HellaSwag");
  item.context = cleaned(activity + ": " + first + " " + capitalised(second));
  TRY(item.choices, texts_of(line, "endings"));
  TRY(item.answer, answer_of(line, "label", item.choices));
  for (std::string& choice : item.choices) choice = " " + cleaned(choice);
  return item;
}

Result<ChoiceItem> choice_item(const Json& line) {
  ChoiceItem item;
  for (std::string_view key : {"question", "context", "query"}) {
    if (!item.context.empty()) break;
    TRY(item.context, get_string(line, key, ""));
  }
  if (item.context.empty()) return error(Code::invalid, "'question' is missing; give it as a text");
  TRY(item.choices, texts_of(line, "choices"));
  TRY(item.answer, answer_of(line, "answer", item.choices));
  for (std::string& choice : item.choices) {
    if (!choice.starts_with(' ') && !item.context.ends_with(' ')) choice = " " + choice;
  }
  return item;
}

Result<WordProblem> word_problem(const Json& line) {
  WordProblem problem;
  TRY(problem.question, get_string(line, "question", ""));
  TRY(problem.solution, get_string(line, "answer", ""));
  const auto number = final_number(problem.solution);
  if (problem.question.empty() || !number)
    return error(Code::invalid, "a line needs 'question' and an 'answer' that ends in a number");
  problem.answer = *number;
  return problem;
}

std::optional<std::string> final_number(std::string_view text) {
  const size_t mark = text.rfind("####");
  if (mark != std::string_view::npos) text.remove_prefix(mark + 4);
  std::string found, current;
  auto close = [&] {
    while (!current.empty() && (current.back() == '.' || current.back() == ',')) current.pop_back();
    if (std::any_of(current.begin(), current.end(), [](char c) { return c >= '0' && c <= '9'; })) found = current;
    current.clear();
  };
  for (char c : std::string(text) + " ") {
    const bool digit = c >= '0' && c <= '9';
    if (digit || (!current.empty() && (c == '.' || c == ','))) {
      current += c;
    } else {
      close();
      if (c == '-') current = "-";
    }
    if (mark != std::string_view::npos && !found.empty()) break;
  }
  std::erase(found, ',');
  // 42.00 is 42.
  if (found.find('.') != std::string::npos) {
    found.erase(found.find_last_not_of('0') + 1);
    if (found.ends_with('.')) found.pop_back();
  }
  if (found.empty()) return std::nullopt;
  return found;
}

std::vector<ScoredText> choice_texts(const ChoiceItem& item, const Encode& encode, std::optional<Token> begin,
                                     int32_t context) {
  std::vector<ScoredText> texts;
  const std::vector<Token> before = encode(item.context);
  for (const std::string& choice : item.choices) {
    ScoredText text;
    if (begin) text.tokens.push_back(*begin);
    const std::vector<Token> all = encode(item.context + choice);
    text.tokens.insert(text.tokens.end(), all.begin(), all.end());
    text.first = static_cast<int32_t>(std::min(before.size() + (begin ? 1 : 0), text.tokens.size() - 1));
    // Row i predicts token i + 1, so one more token than the context holds can be scored.
    const int64_t extra = static_cast<int64_t>(text.tokens.size()) - 1 - context;
    if (extra > 0) {
      text.tokens.erase(text.tokens.begin(), text.tokens.begin() + static_cast<ptrdiff_t>(extra));
      text.first = static_cast<int32_t>(std::max<int64_t>(1, text.first - extra));
    }
    text.first = std::max(1, text.first);
    texts.push_back(std::move(text));
  }
  return texts;
}

Picked pick(const ChoiceItem& item, std::span<const TextScore> scores) {
  Picked best;
  auto each = [&](size_t i) {
    const double length = static_cast<double>(code_points(item.choices[i]).size());
    return -scores[i].surprise / std::max(1.0, length);
  };
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i].surprise < scores[best.plain].surprise) best.plain = i;
    if (each(i) > each(best.normalised)) best.normalised = i;
  }
  return best;
}

Result<TaskJournal> TaskJournal::open(const std::filesystem::path& path, const JsonObject& identity) {
  TaskJournal journal;
  if (path.empty()) return journal;
  journal.path_ = path;
  size_t whole = 0;  // bytes of the lines that are complete
  if (std::filesystem::exists(path)) {
    TRY(const std::string text, read_file(path));
    whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    bool first = true;
    for (const std::string& line : split_lines(std::string_view(text).substr(0, whole))) {
      auto json = parse_json(line);
      if (!json.ok()) return within(path.string(), std::move(json).error());
      if (std::exchange(first, false)) {
        if (to_text(*json) == to_text(identity)) continue;
        return error(Code::invalid, "{} holds answers of another run ({}); give another --output, or remove it",
                     path.string(), to_text(*json));
      }
      TRY(const int64_t index, get_int(*json, "index", -1));
      journal.done_[index] = *json;
    }
    // A line cut short by the end of the last run goes.
    std::error_code failed;
    std::filesystem::resize_file(path, whole, failed);
    if (failed) return error(Code::io, "{}: {}", path.string(), failed.message());
  }
  journal.file_.open(path, std::ios::app | std::ios::binary);
  if (whole == 0) journal.file_ << to_text(identity) << '\n' << std::flush;
  if (!journal.file_) return error(Code::io, "{} cannot be written", path.string());
  return journal;
}

Result<void> TaskJournal::add(int64_t index, JsonObject entry) {
  entry["index"] = index;
  if (file_.is_open()) {
    file_ << to_text(entry) << '\n' << std::flush;
    if (!file_) return error(Code::io, "{} cannot be written; is the disk full?", path_.string());
  }
  done_[index] = std::move(entry);
  return {};
}

}  // namespace millrace
