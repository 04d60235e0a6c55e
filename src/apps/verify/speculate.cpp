#include "apps/run/speculate.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "engine/draft/replay.h"
#include "eval/crowd_check.h"
#include "model/forward.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

constexpr std::string_view kReplay = "known answers, ";  // spoilt with a chance that follows
constexpr std::string_view kTree = ", tree";             // several ways to go on at once

struct Line {
  std::string drafter;
  CrowdWay way;
  CrowdOutcome outcome;
  int64_t tokens = 0;
  int differs_at = -1;
};

// One way with one drafter, on a model and backend of its own: what an engine takes of a backend stays taken.
class Check {
 public:
  explicit Check(const Arguments& arguments) : arguments_(arguments) {}
  Result<Line> run_one(const std::string& drafter, const CrowdWay& way, const CrowdAnswers* plain);

 private:
  Result<DraftOptions> draft_options(const std::string& drafter, LoadedModel& loaded, const CrowdAnswers* plain);

  const Arguments& arguments_;
  std::unique_ptr<Drafters> drafters_;
};

Result<DraftOptions> Check::draft_options(const std::string& drafter, LoadedModel& loaded, const CrowdAnswers* plain) {
  TRY(SpeculateOptions options, speculate_options(arguments_));
  if (options.rule != DraftRule::exact)
    return error(Code::invalid, "by rule {} answers are not the plain ones: there is nothing to compare",
                 rule_name(options.rule));
  DraftOptions draft{.make = {}, .most = options.most, .steady = true};
  if (plain == nullptr) return draft;
  const bool tree = drafter.ends_with(kTree);
  if (tree) draft.branches = std::max(options.branches, 2);
  if (drafter.starts_with(kReplay)) {
    if (tree) draft.most = std::max(draft.most, 6);  // room for two ways to go on beside the first
    const double right = std::stod(drafter.substr(kReplay.size()));
    draft.make = [plain, right, vocab = loaded.vocab()](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
      auto truth = [plain](const DraftAsk& ask) -> std::span<const Token> {
        const auto found = plain->find({static_cast<int>(ask.request), ask.choice});
        return found == plain->end() ? std::span<const Token>() : found->second;
      };
      return std::unique_ptr<Drafter>(new ReplayDrafter(truth, right, 7, vocab));
    };
    return draft;
  }
  options.names = {tree ? drafter.substr(0, drafter.size() - kTree.size()) : drafter};
  TRY(drafters_, Drafters::open(options, loaded, loaded.context()));
  const DraftOptions made = drafters_->for_engine();
  draft.make = made.make;
  draft.beside = made.beside;
  return draft;
}

Result<Line> Check::run_one(const std::string& drafter, const CrowdWay& way, const CrowdAnswers* plain) {
  TRY(auto path, model_path(arguments_));
  CrowdSize size = {.requests = static_cast<int>(arguments_.integer("requests")),
                    .parallel = static_cast<int>(arguments_.integer("parallel")),
                    .prompt = static_cast<int>(arguments_.integer("prompt")),
                    .tokens = static_cast<int>(arguments_.integer("predict")),
                    .swap_bytes = 64 << 20};
  LoadChoice choice{.path = path, .device = arguments_.text("device"), .context = size.prompt + size.tokens};
  choice.cpu.threads = static_cast<int>(arguments_.integer("threads"));
  TRY(choice.keep, kv_keep(arguments_));
  TRY(auto loaded, LoadedModel::load(choice));
  if (choice.context > loaded->context())
    return error(Code::invalid, "prompts of {} tokens and answers of {} are more than the model's {}", size.prompt,
                 size.tokens, loaded->context());
  size.kv = kv_type(arguments_, *loaded);
  TRY(const DraftOptions draft, draft_options(drafter, *loaded, plain));
  std::vector<Request> requests =
      sampler_requests(size, loaded->vocab(), static_cast<uint64_t>(arguments_.integer("seed")));
  Progress progress(arguments_.terminal(), fmt::format("{}: {}", drafter, way.name), requests.size(),
                    Progress::Unit::count);
  Line line{.drafter = drafter, .way = way, .outcome = {}};
  TRY(line.outcome, run_crowd(
                        loaded->model(), loaded->backend(), size, way, std::move(requests),
                        [&](int answered) { progress.update(static_cast<size_t>(answered)); }, draft));
  for (const auto& [key, tokens] : line.outcome.answers) line.tokens += static_cast<int64_t>(tokens.size());
  if (plain != nullptr) line.differs_at = first_difference(*plain, line.outcome.answers);
  return line;
}

void print(const std::vector<Line>& lines, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"drafter"},
               {"way"},
               {"steps", Align::right},
               {"tokens", Align::right},
               {"guessed", Align::right},
               {"right", Align::right},
               {"put off", Align::right},
               {"same as plain"}});
  for (const Line& line : lines) {
    const Metrics& m = line.outcome.metrics;
    table.row({line.drafter, line.way.name, fmt::format("{}", m.steps), fmt::format("{}", line.tokens),
               fmt::format("{}", m.drafted_tokens), fmt::format("{}", m.accepted_drafts),
               fmt::format("{}", m.preemptions),
               line.differs_at < 0 ? terminal.out_paint(Style::green, "yes")
                                   : terminal.out_paint(Style::red, fmt::format("NO, request {}", line.differs_at))});
  }
  table.print(terminal);
}

// Models that keep a state have one way to go on at a time.
Result<bool> has_room_for_trees(const Arguments& arguments) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = 64};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(auto loaded, LoadedModel::load(choice));
  const auto shapes = kv_shapes(loaded->model().spec(), kv_type(arguments, *loaded));
  return std::none_of(shapes.begin(), shapes.end(), [](const KvShape& shape) { return shape.state.kept(); });
}

Result<int> run_verify_speculate(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  std::vector<std::string> drafters = {"ngram", "suffix", "known answers, 0.5", "known answers, 0.9"};
  TRY(const SpeculateOptions asked, speculate_options(arguments));
  TRY(const bool trees, has_room_for_trees(arguments));
  if (trees) drafters.push_back("known answers, 0.5, tree");
  for (const std::string& name : asked.names) {
    if (name == "ngram" || name == "suffix" || name == "none" || name.empty()) continue;
    drafters.push_back(name);
    if (trees && asked.branches > 0) drafters.push_back(name + std::string(kTree));
  }
  std::vector<Line> lines;
  Check check(arguments);
  TRY(Line plain, check.run_one("none", crowd_ways().front(), nullptr));
  const CrowdAnswers expected = plain.outcome.answers;
  lines.push_back(std::move(plain));
  for (const std::string& drafter : drafters) {
    for (const CrowdWay& way : crowd_ways()) {
      TRY(Line line, check.run_one(drafter, way, &expected));
      lines.push_back(std::move(line));
    }
  }
  int differences = 0;
  int64_t tokens = 0, guessed = 0, right = 0;
  JsonArray array;
  for (const Line& line : lines) {
    const Metrics& m = line.outcome.metrics;
    differences += line.differs_at < 0 ? 0 : 1;
    tokens += line.tokens;
    guessed += m.drafted_tokens;
    right += m.accepted_drafts;
    array.push_back(JsonObject{{"drafter", line.drafter},
                               {"way", line.way.name},
                               {"tokens", line.tokens},
                               {"guessed", m.drafted_tokens},
                               {"right", m.accepted_drafts},
                               {"same", line.differs_at < 0}});
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"differences", differences},
                                              {"tokens", tokens},
                                              {"guessed", guessed},
                                              {"right", right},
                                              {"ways", std::move(array)}}));
  } else {
    print(lines, terminal);
    terminal.note("{} in {} of {}; {}, {} of them right", counted(differences, "difference"), counted(tokens, "token"),
                  counted(static_cast<int64_t>(lines.size()), "run"), counted(guessed, "guess", "guesses"), right);
  }
  if (right == 0) terminal.fail("no guess was right, so little is shown: ask for longer answers (--predict)");
  return differences == 0 && right > 0 ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_speculate_verb() {
  return {
      .name = "verify speculate",
      .summary = "check that answers with guesses are those without, token by token",
      .group = "Measure and check",
      .flags = joined({{model_flag(),
                        device_flag(),
                        integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor"),
                        integer_flag("requests", "", "36", 2, 65536, "requests to answer, of nine samplers in turn"),
                        integer_flag("parallel", "-np", "8", 4, 4096, "answers under way at once"),
                        integer_flag("prompt", "", "64", 8, 1 << 20, "tokens of a prompt, at most"),
                        integer_flag("predict", "-n", "32", 2, 1 << 20, "tokens of an answer, at most"),
                        integer_flag("seed", "-s", "3", 0, 1e12, "of prompts and draws"),
                        {.name = "json", .help = "as a JSON object"}},
                       kv_flags(),
                       speculate_flags()}),
      .examples = {{"verify speculate", "the shipped model, guesses without weights"},
                   {"verify speculate -m model.gguf --speculate draft.gguf", "with a draft model too"}},
      .notes =
          "Requests with nine kinds of samplers, least lengths, stop tokens, log-probabilities and several answers "
          "are answered one after the other without guesses; then in every way of 'verify crowd' with each drafter, "
          "always as many guesses as --draft-max; where the model has no states also with known answers that are not "
          "the first way to go on, and with --draft-tree with trees of each head. Every answer must have the same "
          "tokens. Exit code 1 if one "
          "differs or if no guess was right.",
      .run = run_verify_speculate};
}

}  // namespace millrace::apps
