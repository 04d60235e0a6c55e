// Quality against passes of a model that fills masks: a row for each number of passes and length of a block.
#include <algorithm>
#include <cmath>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/fill_quality.h"
#include "eval/perplexity.h"
#include "session/answer.h"
#include "session/chat_prompt.h"

namespace millrace::apps {
namespace {

struct Line {
  FillAsk ask;
  FillQuality quality;
  std::optional<Perplexity> judged;

  double tokens_a_pass() const {
    return static_cast<double>(quality.tokens) / static_cast<double>(std::max<int64_t>(1, quality.passes));
  }
};

// The first tokens of each document.
Result<std::vector<std::vector<Token>>> prompts_of(const Arguments& arguments, const LoadedModel& model) {
  TRY(const std::string text, read_input(arguments.text("file")));
  const auto tokens = static_cast<size_t>(arguments.integer("prompt-tokens"));
  const auto limit = static_cast<size_t>(arguments.integer("limit"));
  std::vector<std::vector<Token>> prompts;
  for (const std::string_view document : split_documents(text)) {
    TRY(std::vector<Token> all, raw_prompt(model, std::string(document)));
    if (all.size() < tokens) continue;
    all.resize(tokens);
    prompts.push_back(std::move(all));
    if (prompts.size() == limit) break;
  }
  if (prompts.empty()) return error(Code::invalid, "{}: no document has {} tokens", arguments.text("file"), tokens);
  return prompts;
}

Result<std::unique_ptr<LoadedModel>> load_judge(const Arguments& arguments, const LoadedModel& model) {
  if (!arguments.given("judge")) return std::unique_ptr<LoadedModel>();
  LoadChoice choice{.path = arguments.text("judge"), .device = arguments.text("device")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(auto judge, LoadedModel::load(choice));
  if (judge->vocab() != model.vocab())
    return error(Code::invalid, "{} knows {} tokens and the model {}: a judge has the same tokenizer",
                 choice.path.string(), judge->vocab(), model.vocab());
  return judge;
}

// How surprised the judge is by the answers, given their prompts.
Result<Perplexity> judge_answers(LoadedModel& judge, const std::vector<std::vector<Token>>& prompts,
                                 const FillQuality& quality, std::unique_ptr<Executor>& executor, int32_t longest) {
  std::vector<ScoredText> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ScoredText text = {.tokens = prompts[i], .first = static_cast<int32_t>(prompts[i].size())};
    text.tokens.insert(text.tokens.end(), quality.answers[i].begin(), quality.answers[i].end());
    if (static_cast<int32_t>(text.tokens.size()) > text.first) texts.push_back(std::move(text));
  }
  if (executor == nullptr) {
    ExecutorOptions options = {.context = longest, .rows = std::max(longest, 256), .sequences = 4};
    options.wanted = options.rows;
    options.kv = kv_type("auto", judge.model(), judge.backend());
    TRY(executor, Executor::create(judge.model(), judge.backend(), options));
  }
  return score_texts(*executor, texts, [](int64_t) { return !Interruptible::interrupted(); });
}

void print(const Terminal& terminal, const std::vector<Line>& lines) {
  using Align = Table::Align;
  Table table({{"mode"},
               {"block", Align::right},
               {"passes", Align::right},
               {"tokens a pass", Align::right},
               {"rows a token", Align::right},
               {"perplexity", Align::right},
               {"KL of frozen", Align::right}});
  for (const Line& line : lines) {
    const auto answers = static_cast<double>(line.quality.answers.size());
    const bool blocks = line.ask.block > 0;
    table.row({blocks ? "frozen blocks" : "exact", blocks ? fmt::format("{}", line.ask.block) : "-",
               fmt::format("{:.0f}", static_cast<double>(line.quality.passes) / answers),
               fmt::format("{:.2f}", line.tokens_a_pass()),
               fmt::format("{:.1f}", static_cast<double>(line.quality.rows) / static_cast<double>(line.quality.tokens)),
               line.judged ? fmt::format("{:.3f} +- {:.3f}", line.judged->value(), line.judged->standard_error()) : "-",
               blocks ? fmt::format("{:.5f}", line.quality.frozen.kl_mean()) : "0"});
  }
  table.print(terminal);
}

Json json_of(const std::vector<Line>& lines) {
  JsonArray rows;
  for (const Line& line : lines) {
    JsonObject row = {{"mode", line.ask.block > 0 ? "frozen blocks" : "exact"},
                      {"block_length", line.ask.block},
                      {"diffusion_steps", line.ask.steps},
                      {"answers", line.quality.answers.size()},
                      {"passes", line.quality.passes},
                      {"tokens", line.quality.tokens},
                      {"tokens_a_pass", line.tokens_a_pass()},
                      {"rows", line.quality.rows},
                      {"kl_frozen", line.quality.frozen.kl_mean()}};
    if (line.judged) row["ppl"] = line.judged->value();
    if (line.judged) row["standard_error"] = line.judged->standard_error();
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<int> run_eval_diffusion(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto loaded, load_model(arguments, 0));
  TRY(auto judge, load_judge(arguments, *loaded));
  TRY(const auto prompts, prompts_of(arguments, *loaded));
  const auto length = static_cast<int32_t>(arguments.integer("predict"));
  const auto prompt = static_cast<int32_t>(prompts.front().size());
  const KvForm kv = kv_type(arguments, *loaded);
  TRY(const auto executor, filling_executor(loaded->model(), loaded->backend(), prompt, length, kv));
  TRY(const auto whole, filling_executor(loaded->model(), loaded->backend(), prompt, length, kv));
  TRY(const Remasking rule, remasking_from_name(arguments.text("remasking")));
  Interruptible scope;
  std::vector<Line> lines;
  std::unique_ptr<Executor> judging;
  for (const int64_t block : arguments.integers("blocks")) {
    for (const int64_t steps : arguments.integers("steps")) {
      Line line = {.ask = {static_cast<int32_t>(steps), static_cast<int32_t>(block), rule}};
      auto measured = measure_filling(*executor, *whole, prompts, length, line.ask, loaded->end_tokens(),
                                      [] { return !Interruptible::interrupted(); });
      if (Interruptible::interrupted()) return interrupted_error();
      if (!measured.ok()) return measured.error();
      line.quality = std::move(*measured);
      if (judge) {
        TRY(line.judged, judge_answers(*judge, prompts, line.quality, judging, prompt + length));
      }
      lines.push_back(std::move(line));
    }
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(json_of(lines)));
  } else {
    print(terminal, lines);
  }
  return kExitOk;
}

}  // namespace

Verb eval_diffusion_verb() {
  Flag steps = by_commas(integer_flag("steps", "", "8,16,32,64", 0, 1 << 20, "numbers of passes over an answer"));
  Flag blocks = by_commas(integer_flag("blocks", "", "0,16", 0, 1 << 20, "lengths of blocks; 0: exact"));
  return {
      .name = "eval diffusion",
      .summary = "quality against passes of a model that fills masks",
      .group = "Measure and check",
      .flags = joined({{model_flag(),
                        {.name = "file",
                         .alias = "-f",
                         .kind = Kind::path,
                         .value = "FILE",
                         .required = true,
                         .help = "documents, apart by blank lines: each begins an answer"},
                        path_flag("judge", "MODEL", "a model of the same tokenizer that says how likely answers are"),
                        integer_flag("limit", "", "16", 1, 1 << 20, "documents at most"),
                        integer_flag("prompt-tokens", "", "16", 1, 1 << 16, "of each document, the prompt"),
                        integer_flag("predict", "-n", "64", 1, 1 << 16, "tokens of an answer"),
                        steps,
                        blocks,
                        text_flag("remasking", "RULE", "confidence", kRemaskings, "which positions come first"),
                        {.name = "json", .help = "as a JSON list"}},
                       machine_flags()}),
      .examples = {{"eval diffusion -m DIFFUSION -f stories.txt --judge TARGET", "passes and blocks against quality"}},
      .notes =
          "The likeliest tokens are chosen. Perplexity is the judge's, over the answers up to an end token. KL is "
          "of the whole sequence against frozen blocks, at masked positions of every pass, in nats.",
      .run = run_eval_diffusion};
}

}  // namespace millrace::apps
