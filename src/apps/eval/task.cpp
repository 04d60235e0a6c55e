#include <algorithm>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/interval.h"
#include "eval/task.h"
#include "session/answer.h"

namespace millrace::apps {
namespace {

#if MILLRACE_SESSION_TEXT
constexpr size_t kItemsAtOnce = 8;  // answered between two lines of the journal

struct Run {
  const Arguments& arguments;
  LoadedModel& model;
  TaskJournal& journal;
  size_t total = 0;
};

template <class Item>
Result<std::vector<Item>> read_items(const Arguments& arguments, std::string_view flag,
                                     Result<Item> (*read)(const Json&)) {
  std::vector<Item> items;
  const std::string file = arguments.text(flag);
  TRY(const std::string text, read_input(file));
  const size_t limit = arguments.given("limit") ? static_cast<size_t>(arguments.integer("limit")) : SIZE_MAX;
  TRY_VOID(for_each_line(text, file, [&](const Json& line) -> Result<void> {
    if (items.size() >= limit) return {};
    TRY(Item item, read(line));
    items.push_back(std::move(item));
    return {};
  }));
  if (items.empty()) return error(Code::invalid, "{} has no lines", file);
  return items;
}

Result<void> run_choices(Run& run, const std::vector<ChoiceItem>& items) {
  const Tokenizer& tokenizer = *run.model.tokenizer();
  Result<void> encoded;
  const Encode encode = [&](std::string_view text) {
    auto tokens = tokenizer.encode(text);
    if (!tokens.ok()) encoded = tokens.error();
    return tokens.ok() ? std::move(*tokens) : std::vector<Token>();
  };
  const int32_t context = run.model.context();
  ExecutorOptions options;
  options.context = context;
  options.rows = options.wanted = std::clamp<int32_t>((64 << 20) / (4 * run.model.vocab()), 32, 512);
  options.sequences = 8;
  options.kv = kv_type(run.arguments, run.model);
  TRY(auto executor, Executor::create(run.model.model(), run.model.backend(), options));
  TRY_VOID(use_adapters(run.arguments, *executor));
  Progress progress(run.arguments.terminal(), "answering", items.size(), Progress::Unit::count);
  for (size_t i = 0; i < items.size();) {
    std::vector<size_t> indices;
    std::vector<ScoredText> texts;
    for (; i < items.size() && indices.size() < kItemsAtOnce; ++i) {
      if (run.journal.done().contains(static_cast<int64_t>(i))) continue;
      indices.push_back(i);
      for (ScoredText& text : choice_texts(items[i], encode, run.model.begin_token(), context))
        texts.push_back(std::move(text));
    }
    TRY_VOID(encoded);
    TRY(const Perplexity scored, score_texts(*executor, texts, [](int64_t) { return !Interruptible::interrupted(); }));
    size_t first = 0;
    for (size_t index : indices) {
      const ChoiceItem& item = items[index];
      const auto scores = std::span(scored.texts).subspan(first, item.choices.size());
      const Picked choice = pick(item, scores);
      JsonArray surprises;
      for (const TextScore& score : scores) surprises.push_back(score.surprise);
      TRY_VOID(run.journal.add(static_cast<int64_t>(index), {{"plain", choice.plain == item.answer},
                                                             {"normalised", choice.normalised == item.answer},
                                                             {"surprise", std::move(surprises)}}));
      first += item.choices.size();
    }
    progress.update(i);
  }
  return {};
}

Result<void> run_problems(Run& run, const std::vector<WordProblem>& items) {
  std::string before;
  if (run.arguments.given("examples")) {
    TRY(const auto examples, read_items<WordProblem>(run.arguments, "examples", word_problem));
    const auto shots = static_cast<size_t>(run.arguments.integer("shots"));
    for (size_t i = 0; i < std::min(shots, examples.size()); ++i)
      before += "Question: " + examples[i].question + "\nAnswer: " + examples[i].solution + "\n\n";
  }
  ExecutorOptions wanted = {.context = run.model.context()};
  wanted.kv = kv_type(run.arguments, run.model);
  TRY(auto generator, Generator::create(run.model.model(), run.model.backend(), wanted));
  TRY_VOID(use_adapters(run.arguments, generator->executor()));
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = static_cast<int32_t>(run.arguments.integer("max-tokens"));
  options.end_tokens.assign(run.model.end_tokens().begin(), run.model.end_tokens().end());
  const std::vector<std::string> stops = {"\n\n", "Question:"};
  Progress progress(run.arguments.terminal(), "answering", items.size(), Progress::Unit::count);
  for (size_t i = 0; i < items.size(); ++i) {
    progress.update(i);
    if (run.journal.done().contains(static_cast<int64_t>(i))) continue;
    TRY(const std::vector<Token> prompt,
        raw_prompt(run.model, before + "Question: " + items[i].question + "\nAnswer:"));
    TRY(Answer answer, Answer::create(run.model, stops, true));
    std::string text;
    auto generated = generator->generate(
        prompt, options,
        [&](const GeneratedToken& token) {
          if (Interruptible::interrupted() || token.last) return Generator::Reply::enough;
          return answer.push(token.id, text) ? Generator::Reply::stop_string : Generator::Reply::more;
        },
        [] { return Interruptible::interrupted(); });
    if (Interruptible::interrupted()) return error(Code::cancelled, "stopped");
    if (!generated.ok()) return within(fmt::format("question {}", i + 1), std::move(generated).error());
    answer.finish(text);
    TRY_VOID(run.journal.add(static_cast<int64_t>(i),
                             {{"plain", final_number(text) == items[i].answer}, {"text", valid_utf8(text)}}));
  }
  return {};
}

Interval share_of(const TaskJournal& journal, std::string_view key) {
  int64_t hits = 0;
  for (const auto& [index, entry] : journal.done()) {
    const Json* value = find(entry, key);
    hits += value != nullptr && value->is_bool() && value->get_bool();
  }
  return share_interval(hits, static_cast<int64_t>(journal.done().size()));
}

void show(const Arguments& arguments, const TaskJournal& journal, bool choices) {
  const Terminal& terminal = arguments.terminal();
  const Interval plain = share_of(journal, "plain"), normalised = share_of(journal, "normalised");
  auto object = [](const Interval& i) { return JsonObject{{"score", i.value}, {"low", i.low}, {"high", i.high}}; };
  if (arguments.toggle("json")) {
    JsonObject out = {{"task", arguments.operand("TASK")}, {"questions", journal.done().size()}};
    out[choices ? "accuracy" : "exact_match"] = object(plain);
    if (choices) out["accuracy_normalised"] = object(normalised);
    terminal.print("{}\n", to_text(out));
    return;
  }
  auto line = [&](std::string_view name, const Interval& i) {
    terminal.print("{:<22} {:.4f}  (95 %: {:.4f} to {:.4f})\n", name, i.value, i.low, i.high);
  };
  line(choices ? "accuracy" : "exact match", plain);
  if (choices) line("accuracy, normalised", normalised);
  terminal.print("{}\n", counted(static_cast<int64_t>(journal.done().size()), "question"));
}

Result<int> run_eval_task(const Arguments& arguments) {
  const std::string task = arguments.operand("TASK");
  TRY(auto loaded, load_model(arguments, 0));
  if (loaded->tokenizer() == nullptr)
    return error(Code::unsupported, "no task without a tokenizer: {}", loaded->tokenizer_error());
  std::vector<ChoiceItem> choices;
  std::vector<WordProblem> problems;
  if (task == "gsm8k") {
    TRY(problems, read_items<WordProblem>(arguments, "data", word_problem));
  } else {
    TRY(choices, read_items<ChoiceItem>(arguments, "data", task == "hellaswag" ? hellaswag_item : choice_item));
  }
  const JsonObject identity = {{"task", task},
                               {"model", valid_utf8(loaded->checkpoint().path().string())},
                               {"data", valid_utf8(arguments.text("data"))},
                               {"questions", choices.size() + problems.size()},
                               {"shots", arguments.given("examples") ? arguments.integer("shots") : 0},
                               {"kv", kv_type(arguments, *loaded).name()}};
  TRY(TaskJournal journal, TaskJournal::open(arguments.text("output"), identity));
  if (!journal.done().empty()) arguments.terminal().note("{} answered before", journal.done().size());
  Interruptible scope;
  Run state = {arguments, *loaded, journal};
  auto done = problems.empty() ? run_choices(state, choices) : run_problems(state, problems);
  if (!done.ok() && Interruptible::interrupted()) {
    if (!arguments.text("output").empty())
      arguments.terminal().note("{} answered so far; the same command goes on from there", journal.done().size());
    return interrupted_error();
  }
  TRY_VOID(std::move(done));
  show(arguments, journal, problems.empty());
  return kExitOk;
}
#else
Result<int> run_eval_task(const Arguments&) { return error(Code::unsupported, "this build has no text support"); }
#endif

}  // namespace

Verb eval_task_verb() {
  return {
      .name = "eval task",
      .summary = "have a model answer the questions of a task and count what is right",
      .group = "Measure and check",
      .operands = {{.name = "TASK",
                    .choices = "hellaswag|gsm8k|choice",
                    .help = "how lines are read and answers judged"}},
      .flags = joined({{model_flag(),
                        {.name = "data",
                         .kind = Kind::path,
                         .value = "FILE",
                         .required = true,
                         .help = "the questions, JSON lines"},
                        {.name = "output",
                         .alias = "-o",
                         .kind = Kind::path,
                         .value = "FILE",
                         .help = "write answers down as they come, and go on from there"},
                        {.name = "limit",
                         .kind = Kind::integer,
                         .value = "N",
                         .least = 1,
                         .most = 1 << 30,
                         .help = "only the first N questions"},
                        {.name = "examples",
                         .kind = Kind::path,
                         .value = "FILE",
                         .help = "gsm8k: solved questions to put before each"},
                        {.name = "shots",
                         .kind = Kind::integer,
                         .value = "N",
                         .otherwise = "5",
                         .least = 0,
                         .most = 100,
                         .help = "gsm8k: how many of them"},
                        {.name = "max-tokens",
                         .kind = Kind::integer,
                         .value = "N",
                         .otherwise = "256",
                         .least = 1,
                         .most = 1 << 20,
                         .help = "gsm8k: most tokens of an answer"},
                        {.name = "json", .help = "as a JSON object"}},
                       adapter_flags(),
                       {ranks_flag(), pipeline_flag(), whole_experts_flag(), transport_flag()},
                       machine_flags()}),
      .examples = {{"eval task hellaswag -m model.gguf --data hellaswag_val.jsonl -o answers.jsonl",
                    "stop it and start it again as you like"},
                   {"eval task choice --data questions.jsonl", "lines with question, choices and answer"}},
      .notes =
          "Choices are compared by how likely the model finds them after the question, and again divided by their "
          "length in characters (normalised), as HellaSwag is reported. gsm8k is answered greedily and right if the "
          "last number is. Intervals are Wilson's, 95 %.",
      .run = run_eval_task};
}

}  // namespace millrace::apps
