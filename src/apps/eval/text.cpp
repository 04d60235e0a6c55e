// Verbs that compare a file of texts with files of what they should have been, line by line: bleu, chrf, rouge, f1, em.
#include <algorithm>

#include "apps/cli/input.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "base/json.h"
#include "eval/interval.h"
#include "eval/overlap.h"
#include "eval/words.h"

namespace millrace::apps {
namespace {

struct Lines {
  std::vector<std::string> hypotheses;
  std::vector<std::vector<std::string>> references;  // of each line
};

Result<Lines> read_lines(const Arguments& arguments) {
  Lines lines;
  TRY(const std::string text, read_input(arguments.operand("HYPOTHESES")));
  lines.hypotheses = split_lines(text);
  if (lines.hypotheses.empty())
    return error(Code::invalid, "{} has no lines; it needs one text a line", arguments.operand("HYPOTHESES"));
  lines.references.resize(lines.hypotheses.size());
  for (const std::string& file : arguments.operands("REFERENCES")) {
    TRY(const std::string other, read_input(file));
    std::vector<std::string> all = split_lines(other);
    if (all.size() != lines.hypotheses.size()) {
      return error(Code::invalid, "{} has {}, but {} has {}; line n of one belongs to line n of the other", file,
                   counted(static_cast<int64_t>(all.size()), "line"), arguments.operand("HYPOTHESES"),
                   lines.hypotheses.size());
    }
    for (size_t i = 0; i < all.size(); ++i) lines.references[i].push_back(std::move(all[i]));
  }
  return lines;
}

JsonObject interval_json(const Interval& interval) {
  return {{"score", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

void show(const Arguments& arguments, std::string_view name, const Interval& interval, JsonObject details, int places,
          const std::string& remark) {
  const Terminal& terminal = arguments.terminal();
  if (arguments.toggle("json")) {
    JsonObject out = {{"metric", name}};
    for (auto& member : interval_json(interval)) out[member.key()] = member.value();
    for (auto& member : details) out[member.key()] = member.value();
    terminal.print("{}\n", to_text(out));
  } else {
    terminal.print("{} {:.{}f}  (95 %: {:.{}f} to {:.{}f}){}\n", name, interval.value, places, interval.low, places,
                   interval.high, places, remark.empty() ? "" : "  " + remark);
  }
}

Result<int> run_bleu(const Arguments& arguments) {
  TRY(const Lines lines, read_lines(arguments));
  std::vector<BleuStatistics> segments;
  for (size_t i = 0; i < lines.hypotheses.size(); ++i)
    segments.push_back(bleu_statistics(lines.hypotheses[i], lines.references[i]));
  auto sum = [&](std::span<const uint32_t> times) {
    BleuStatistics all;
    for (size_t i = 0; i < segments.size(); ++i) all += segments[i].times(times[i]);
    return all;
  };
  const Interval interval = resampled_interval(
      segments.size(), [&](std::span<const uint32_t> times) { return bleu_score(sum(times)).score; });
  const BleuStatistics all = sum(std::vector<uint32_t>(segments.size(), 1));
  const BleuScore score = bleu_score(all);
  JsonArray precisions(score.precisions.begin(), score.precisions.end());
  show(arguments, "BLEU", interval,
       {{"precisions", std::move(precisions)},
        {"brevity_penalty", score.brevity},
        {"length", all.length},
        {"reference_length", all.reference_length},
        {"segments", segments.size()},
        {"signature", "case:mixed|eff:no|tok:13a|smooth:exp"}},
       2,
       fmt::format("{:.1f}/{:.1f}/{:.1f}/{:.1f}, brevity {:.3f}, {}", score.precisions[0], score.precisions[1],
                   score.precisions[2], score.precisions[3], score.brevity,
                   counted(static_cast<int64_t>(segments.size()), "segment")));
  return kExitOk;
}

Result<int> run_chrf(const Arguments& arguments) {
  TRY(const Lines lines, read_lines(arguments));
  ChrfOptions options = {.word_order = static_cast<int>(arguments.integer("word-order")),
                         .beta = arguments.number("beta")};
  std::vector<ChrfStatistics> segments;
  for (size_t i = 0; i < lines.hypotheses.size(); ++i)
    segments.push_back(chrf_statistics(lines.hypotheses[i], lines.references[i], options));
  const Interval interval = resampled_interval(segments.size(), [&](std::span<const uint32_t> times) {
    ChrfStatistics all(segments[0].size());
    for (size_t i = 0; i < segments.size(); ++i) {
      for (size_t n = 0; n < all.size(); ++n) {
        for (size_t k = 0; k < 3; ++k) all[n][k] += times[i] * segments[i][n][k];
      }
    }
    return chrf_score(all, options);
  });
  show(arguments, fmt::format("chrF{}{}", options.beta, std::string(static_cast<size_t>(options.word_order), '+')),
       interval, {{"segments", segments.size()}, {"signature", "case:mixed|eff:yes|nc:6|space:no"}}, 2,
       counted(static_cast<int64_t>(segments.size()), "segment"));
  return kExitOk;
}

Result<int> run_rouge(const Arguments& arguments) {
  TRY(Lines lines, read_lines(arguments));
  constexpr size_t kMostWords = 20000;  // the table of common words grows with the square
  std::vector<double> one, two, longest, summary;
  for (size_t i = 0; i < lines.hypotheses.size(); ++i) {
    // A line of a file cannot hold a line break, so a summary's sentences are parted by the two characters \n.
    auto sentences = [&](std::string& text) -> Result<void> {
      for (size_t at = text.find("\\n"); at != std::string::npos; at = text.find("\\n", at)) text.replace(at, 2, "\n");
      if (rouge_words(text).size() <= kMostWords) return {};
      return error(Code::invalid, "line {} has more than {} words; ROUGE is for shorter texts", i + 1, kMostWords);
    };
    TRY_VOID(sentences(lines.hypotheses[i]));
    for (std::string& reference : lines.references[i]) TRY_VOID(sentences(reference));
    const Rouge scores = best_rouge(lines.hypotheses[i], lines.references[i]);
    one.push_back(scores.one.f), two.push_back(scores.two.f);
    longest.push_back(scores.longest.f), summary.push_back(scores.summary.f);
  }
  const std::pair<std::string_view, const std::vector<double>*> kinds[] = {
      {"rouge1", &one}, {"rouge2", &two}, {"rougeL", &longest}, {"rougeLsum", &summary}};
  JsonObject out = {{"metric", "ROUGE"}, {"segments", lines.hypotheses.size()}};
  for (const auto& [name, values] : kinds) {
    const Interval interval = mean_interval(*values);
    out[name] = interval_json(interval);
    if (arguments.toggle("json")) continue;
    arguments.terminal().print("{:<10} {:.4f}  (95 %: {:.4f} to {:.4f})\n", name, interval.value, interval.low,
                               interval.high);
  }
  if (arguments.toggle("json")) arguments.terminal().print("{}\n", to_text(out));
  return kExitOk;
}

Result<int> run_f1(const Arguments& arguments) {
  TRY(const Lines lines, read_lines(arguments));
  std::vector<double> values;
  for (size_t i = 0; i < lines.hypotheses.size(); ++i)
    values.push_back(answer_f1(lines.hypotheses[i], lines.references[i]));
  show(arguments, "F1", mean_interval(values), {{"segments", values.size()}}, 4,
       counted(static_cast<int64_t>(values.size()), "answer"));
  return kExitOk;
}

Result<int> run_em(const Arguments& arguments) {
  TRY(const Lines lines, read_lines(arguments));
  int64_t hits = 0;
  for (size_t i = 0; i < lines.hypotheses.size(); ++i) hits += answer_matches(lines.hypotheses[i], lines.references[i]);
  const auto all = static_cast<int64_t>(lines.hypotheses.size());
  show(arguments, "EM", share_interval(hits, all), {{"hits", hits}, {"segments", all}}, 4,
       fmt::format("{} of {}", hits, counted(all, "answer")));
  return kExitOk;
}

Verb text_verb(std::string_view name, std::string_view summary, Result<int> (*run)(const Arguments&)) {
  return {.name = name,
          .summary = summary,
          .group = "Measure and check",
          .operands = {{.name = "HYPOTHESES", .help = "the texts to judge, one a line; - reads standard input"},
                       {.name = "REFERENCES",
                        .many = true,
                        .help = "what they should be, one a line, in one or more files"}},
          .flags = {{.name = "json", .help = "as a JSON object"}},
          .run = run};
}

}  // namespace

Verb eval_bleu_verb() {
  Verb verb = text_verb("eval bleu", "score translations by BLEU, as sacreBLEU does", run_bleu);
  verb.examples = {{"eval bleu output.txt reference.txt", "a corpus against one reference"}};
  verb.notes =
      "Words as mteval-v13a cuts them, mixed case, exponential smoothing: sacreBLEU's defaults and its numbers. The "
      "interval comes from drawing the segments 1000 times again.";
  return verb;
}

Verb eval_chrf_verb() {
  Verb verb = text_verb("eval chrf", "score translations by chrF, as sacreBLEU does", run_chrf);
  verb.flags.push_back({.name = "word-order",
                        .kind = Kind::integer,
                        .value = "N",
                        .otherwise = "0",
                        .least = 0,
                        .most = 4,
                        .help = "word n-grams too; 2 is chrF++"});
  verb.flags.push_back({.name = "beta",
                        .kind = Kind::number,
                        .value = "X",
                        .otherwise = "2",
                        .least = 0.01,
                        .most = 100,
                        .help = "how many times as much recall counts"});
  verb.examples = {{"eval chrf output.txt reference.txt --word-order 2", "chrF++"}};
  return verb;
}

Verb eval_rouge_verb() {
  Verb verb = text_verb("eval rouge", "score summaries by ROUGE-1, -2, -L and -Lsum", run_rouge);
  verb.examples = {{"eval rouge summaries.txt references.txt", "mean F of each kind"}};
  verb.notes =
      "Lower-cased words of letters and digits, no stemming, as rouge-score and torchmetrics do. For Lsum write \\n "
      "between the sentences of a line. Of several references the best counts, for each kind by itself.";
  return verb;
}

Verb eval_f1_verb() {
  Verb verb = text_verb("eval f1", "score answers by the words they share with the right one", run_f1);
  verb.examples = {{"eval f1 answers.txt right.txt", "mean F1 as SQuAD computes it"}};
  return verb;
}

Verb eval_em_verb() {
  Verb verb = text_verb("eval em", "count answers that match the right one exactly", run_em);
  verb.examples = {{"eval em answers.txt right.txt", "case, punctuation and articles do not count"}};
  return verb;
}

}  // namespace millrace::apps
