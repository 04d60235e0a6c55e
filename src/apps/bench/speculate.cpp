#include <chrono>
#include <future>
#include <numeric>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/draft/head.h"
#include "engine/draft/replay.h"
#include "engine/engine.h"
#include "machine/stolen.h"
#include "model/shapes.h"
#include "session/answer.h"

namespace millrace::apps {
namespace {

using Answers = std::vector<std::vector<Token>>;

struct Way {
  int guesses = 0;  // a step; -1: as many as pay
};

struct Line {
  Way way;
  double temperature = 0;
  double rate = 0;  // tokens a second
  Metrics metrics;
  bool same = true;              // as without guesses
  std::optional<double> stolen;  // of processor time meanwhile
  Answers answers;

  // Tokens out of a pass that had guesses.
  double tokens_a_pass() const {
    if (metrics.draft_windows == 0) return 1;
    return 1 + static_cast<double>(metrics.accepted_drafts) / static_cast<double>(metrics.draft_windows);
  }
  // Answers in a pass: fewer than run at once where those with guesses on the way take turns.
  double answers_a_pass() const {
    return metrics.step_sequences.sum() / static_cast<double>(std::max<int64_t>(1, metrics.steps));
  }
  double pass_seconds() const {
    return (metrics.step_seconds.sum() - metrics.draft_seconds) /
           static_cast<double>(std::max<int64_t>(1, metrics.steps));
  }
};

// A model and what guesses for it, on a backend of their own. A file is opened anew for every way, since what an engine
// takes of a backend stays taken; random weights of a shape are large and made once.
struct Subject {
  std::unique_ptr<LoadedModel> loaded;
  std::unique_ptr<Drafters> drafters;
  std::unique_ptr<Ranked> ranked;
  std::unique_ptr<Head> head;
  std::vector<std::vector<Token>> prompts;  // by request
  int context = 0;

  const Model& model() const { return loaded ? loaded->model() : ranked->model(); }
  Backend& backend() { return loaded ? loaded->backend() : ranked->backend(); }
};

Result<void> open_shape(const Arguments& arguments, const std::string& name, Subject& subject) {
  TRY(ModelSpec spec, named_shape(name));
  TRY(const DType type, weight_format(arguments.text("type")));
  const RankChoice choice{.device = arguments.text("device"),
                          .cpu = {.threads = static_cast<int>(arguments.integer("threads"))}};
  TRY(subject.ranked, Ranked::open(choice, [&](Backend& backend) { return Model::random(spec, type, 1, backend); }));
  const std::string head = arguments.text("head");
  using Kind = HeadSpec::Kind;
  for (const auto& [kind, called] : {std::pair(Kind::medusa, "medusa"), {Kind::mtp, "mtp"}, {Kind::eagle3, "eagle3"}}) {
    if (head != called) continue;
    TRY(subject.head, Head::random(kind, subject.model(), type, 2, subject.backend()));
  }
  return {};
}

Result<std::shared_ptr<Subject>> open_subject(const Arguments& arguments) {
  auto subject = std::make_shared<Subject>();
  const auto tokens = static_cast<int>(arguments.integer("predict"));
  const auto requests = static_cast<size_t>(arguments.integer("requests"));
  const auto length = static_cast<size_t>(arguments.integer("prompt-tokens"));
  const auto shape = arguments.maybe_text("shape");
  if (shape) {
    TRY_VOID(open_shape(arguments, *shape, *subject));
  } else {
    TRY(auto path, model_path(arguments));
    LoadChoice choice{.path = path, .device = arguments.text("device")};
    choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
    TRY(choice.keep, kv_keep(arguments));
    TRY(subject->loaded, LoadedModel::load(choice));
  }
  std::vector<Token> prompt;
  if (!shape && length == 0) {
    TRY(prompt, raw_prompt(*subject->loaded, arguments.text("prompt")));
  }
  subject->prompts.assign(requests, prompt);
  const auto vocab = static_cast<uint32_t>(subject->model().spec().vocab);
  for (size_t i = 0; i < requests && prompt.empty(); ++i) {
    for (uint32_t at = 0; at < std::max<size_t>(1, length); ++at) {
      const double place = uniform({11, static_cast<uint32_t>(i), at, 0}) * vocab;
      subject->prompts[i].push_back(std::min(static_cast<Token>(place), static_cast<Token>(vocab) - 1));
    }
  }
  subject->context = static_cast<int>(subject->prompts[0].size()) + tokens;
  if (!shape) {
    TRY(subject->drafters, drafters_of(arguments, *subject->loaded, subject->context));
  }
  return subject;
}

// The drafter of the command line or, at a given acceptance, known answers with that drafter beside for its time.
DraftOptions draft_options(const Arguments& arguments, const Subject& subject, const Way& way, const Answers& truth) {
  DraftOptions draft;
  if (subject.drafters) draft = subject.drafters->for_engine();
  if (subject.head) {
    draft.beside = HeadDrafter::beside(subject.head->spec());
    draft.make = [&head = *subject.head](Executor& target, Backend& backend) {
      return HeadDrafter::create(head, target, backend);
    };
  }
  if (way.guesses == 0) return {};
  draft.most = way.guesses > 0 ? way.guesses : static_cast<int>(arguments.integer("draft-max"));
  draft.steady = way.guesses > 0;
  if (!arguments.given("accept")) return draft;
  const double right = arguments.number("accept");
  draft.make = [make = draft.make, right, &truth](Executor& target,
                                                  Backend& backend) -> Result<std::unique_ptr<Drafter>> {
    std::unique_ptr<Drafter> beside;
    if (make) {
      TRY(beside, make(target, backend));
    }
    auto known = [&truth](const DraftAsk& ask) -> std::span<const Token> {
      return truth[static_cast<size_t>(ask.sampler->sampling().seed)];
    };
    return std::unique_ptr<Drafter>(new ReplayDrafter(known, right, 7, target.vocab(), std::move(beside)));
  };
  return draft;
}

// Tokens a second. Where all requests run at once: while all of them do, so that prompts and the last ones, with
// nobody beside them, do not count.
double rate_of(const std::vector<std::vector<double>>& times, size_t parallel, double seconds) {
  double from = 0, to = seconds;
  if (times.size() <= parallel) {
    for (const auto& answer : times) {
      from = std::max(from, answer.front());
      to = std::min(to, answer.back());
    }
    if (to <= from) from = 0, to = seconds;
  }
  int64_t tokens = 0;
  for (const auto& answer : times)
    tokens += std::count_if(answer.begin(), answer.end(), [&](double at) { return at > from && at <= to; });
  return static_cast<double>(tokens) / (to - from);
}

// All answers of one way, each told apart by its seed, at most so many at once.
Result<Line> run_way(const Arguments& arguments, Subject& subject, const Way& way, double temperature,
                     const Answers& truth) {
  EngineOptions options;
  options.executor.context = subject.context;
  options.executor.kv = subject.loaded ? kv_type(arguments, *subject.loaded)
                                       : kv_type(arguments.text("kv-type"), subject.model(), subject.backend());
  options.limits.max_sequences = static_cast<int>(arguments.integer("parallel"));
  const int step = subject.backend().apart() ? 2048 : 256;
  options.limits.step_tokens = std::max(step, 4 * options.limits.max_sequences);
  options.draft = draft_options(arguments, subject, way, truth);
  TRY(auto engine, Engine::create(subject.model(), subject.backend(), options));
  const size_t requests = subject.prompts.size();
  Line line{.way = way, .temperature = temperature};
  line.answers.resize(requests);
  std::vector<std::vector<double>> times(requests);
  std::promise<void> done;
  std::optional<Error> failed;
  size_t left = requests;
  const StolenTime stolen;
  const auto start = std::chrono::steady_clock::now();
  auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (size_t i = 0; i < requests; ++i) {
    Request request{.prompt = subject.prompts[i], .max_tokens = static_cast<int>(arguments.integer("predict"))};
    request.sampling.temperature = temperature;
    request.sampling.seed = i;
    engine->submit(std::move(request), [&, i](std::span<const Event> events) {
      for (const Event& event : events) {
        if (event.error) failed = *event.error;
        if (event.token) {
          line.answers[i].push_back(*event.token);
          times[i].push_back(now());
        }
        if (event.finish != Finish::none && --left == 0) done.set_value();
      }
    });
  }
  done.get_future().wait();
  const double seconds = now();
  line.stolen = stolen.share();
  if (failed) return *failed;
  line.metrics = engine->snapshot().metrics;
  line.rate = rate_of(times, static_cast<size_t>(arguments.integer("parallel")), seconds);
  return line;
}

// What the guesses that were right, the measured passes and the measured guessing allow: nothing between steps.
double allowed(const Line& plain, const Line& line) {
  if (line.metrics.draft_windows == 0) return 1;
  const double pass = line.pass_seconds() + line.metrics.draft_seconds / static_cast<double>(line.metrics.steps);
  return line.tokens_a_pass() * line.answers_a_pass() / plain.answers_a_pass() * plain.pass_seconds() / pass;
}

// Of all guesses at a depth, those that were kept; and of those that had all before them kept.
std::string by_depth(const Metrics& metrics, bool given) {
  std::string text;
  for (size_t depth = 0; depth < metrics.drafted_at.size() && metrics.drafted_at[depth] > 0; ++depth)
    text += fmt::format("{}{:.2f}", depth == 0 ? "" : " ",
                        static_cast<double>(metrics.accepted_at[depth]) /
                            static_cast<double>(std::max<int64_t>(
                                1, given && depth > 0 ? metrics.accepted_at[depth - 1] : metrics.drafted_at[depth])));
  return text;
}

std::string name_of(const Way& way) {
  return way.guesses == 0 ? "none" : way.guesses < 0 ? "as many as pay" : fmt::format("{}", way.guesses);
}

JsonObject json(const Line& plain, const Line& line) {
  return {{"temperature", line.temperature},
          {"guesses", name_of(line.way)},
          {"tokens_per_second", line.rate},
          {"speedup", line.rate / plain.rate},
          {"allowed", allowed(plain, line)},
          {"tokens_a_pass", line.tokens_a_pass()},
          {"answers_a_pass", line.answers_a_pass()},
          {"pass_cost", line.pass_seconds() / plain.pass_seconds()},
          {"drafted", line.metrics.drafted_tokens},
          {"accepted", line.metrics.accepted_drafts},
          {"accepted_by_depth", by_depth(line.metrics, false)},
          {"accepted_given_those_before", by_depth(line.metrics, true)},
          {"draft_seconds", line.metrics.draft_seconds},
          {"same", line.same},
          {"stolen", stolen_json(line.stolen)}};
}

Result<void> check_asked(const Arguments& arguments) {
  const bool shape = arguments.given("shape"), names = !arguments.texts("speculate").empty();
  if (!shape && (arguments.given("head") || arguments.given("type")))
    return error(Code::invalid, "--head and --type are of random weights: name a --shape");
  if (shape && names)
    return error(Code::invalid,
                 "random weights of a --shape are no target of a file: --head runs a head of random "
                 "weights, and --accept says how often it is right");
  if (!arguments.given("accept") && shape)
    return error(Code::invalid, "what random weights guess is noise: say with --accept how often guesses are right");
  if (!arguments.given("accept") && !names && arguments.text("speculative-config").empty())
    return error(Code::invalid, "say what guesses: --speculate ngram, suffix or a draft model, or --accept");
  return {};
}

Result<int> run_bench_speculate(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  using Align = Table::Align;
  Table table({{"temperature", Align::right},
               {"guesses"},
               {"tok/s", Align::right},
               {"speed-up", Align::right},
               {"allowed", Align::right},
               {"tokens a pass", Align::right},
               {"answers", Align::right},
               {"pass cost", Align::right},
               {"guess cost", Align::right},
               {"right", Align::right},
               {"by depth"},
               {"given those before"},
               {"same"}});
  TRY_VOID(check_asked(arguments));
  std::vector<Way> ways = {{0}};
  for (int64_t guesses : arguments.integers("guesses")) ways.push_back({static_cast<int>(guesses)});
  if (arguments.toggle("paying")) ways.push_back({-1});
  JsonArray array;
  bool same = true;
  std::optional<double> stolen;
  std::shared_ptr<Subject> subject;
  for (double temperature : arguments.numbers("temp")) {
    Line plain;
    for (const Way& way : ways) {
      if (subject == nullptr || subject->loaded) {
        subject.reset();
        TRY(subject, open_subject(arguments));
      }
      TRY(Line line, run_way(arguments, *subject, way, temperature, plain.answers));
      if (way.guesses == 0) plain = line;
      line.same = line.answers == plain.answers;
      same = same && line.same;
      stolen = std::max(stolen, line.stolen);
      const double guess = line.metrics.drafted_tokens == 0
                               ? 0
                               : line.metrics.draft_seconds / static_cast<double>(line.metrics.drafted_tokens) *
                                     line.answers_a_pass() / plain.pass_seconds();
      table.row({fmt::format("{}", temperature), name_of(way), fmt::format("{:.0f}", line.rate),
                 fmt::format("{:.2f}", line.rate / plain.rate), fmt::format("{:.2f}", allowed(plain, line)),
                 fmt::format("{:.2f}", line.tokens_a_pass()), fmt::format("{:.1f}", line.answers_a_pass()),
                 fmt::format("{:.2f}", line.pass_seconds() / plain.pass_seconds()), fmt::format("{:.2f}", guess),
                 fmt::format("{:.2f}", static_cast<double>(line.metrics.accepted_drafts) /
                                           static_cast<double>(std::max<int64_t>(1, line.metrics.drafted_tokens))),
                 by_depth(line.metrics, false), by_depth(line.metrics, true),
                 line.same ? "yes" : terminal.out_paint(Style::red, "NO")});
      array.push_back(json(plain, line));
    }
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"lines", std::move(array)}}));
  } else {
    table.print(terminal);
    if (const auto text = stolen_text(stolen)) terminal.note("{}", *text);
  }
  return same ? kExitOk : kExitFailure;
}

std::vector<Flag> own_flags() {
  Flag temperatures = number_flag("temp", "", "0,1", 0, 100, "temperatures of answers");
  temperatures.many = Many::commas;
  Flag guesses = integer_flag("guesses", "", "1,2,3,4", 1, kMostDrafts, "fixed numbers of guesses a step to measure");
  guesses.many = Many::commas;
  return {model_flag(),
          text_flag("shape", "NAME", "", "", "random weights of a known shape instead of a file"),
          text_flag("type", "FORMAT", "Q8_0", "", "weight format for --shape"),
          text_flag("head", "KIND", "none", "none|medusa|mtp|eagle3",
                    "a head of random weights, as large as published ones, that runs for its time"),
          number_flag("accept", "", "", 0, 1, "guess what is right with this chance: known answers, spoilt"),
          text_flag("prompt", "TEXT", "Once upon a time", "", "what every answer continues"),
          integer_flag("prompt-tokens", "", "0", 0, 1 << 20, "random tokens instead, others for every answer"),
          integer_flag("requests", "", "8", 1, 4096, "answers, each with a seed of its own"),
          integer_flag("parallel", "-np", "1", 1, 4096, "answers under way at once"),
          integer_flag("predict", "-n", "200", 2, 1 << 20, "tokens of an answer"),
          temperatures,
          guesses,
          {.name = "paying", .otherwise = "true", .help = "also as many guesses as pay"},
          device_flag(),
          integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor"),
          {.name = "json", .help = "as a JSON object"}};
}

}  // namespace

Verb bench_speculate_verb() {
  return {.name = "bench speculate",
          .summary = "measure guessing ahead against plain decoding",
          .group = "Measure and check",
          .flags = joined({own_flags(), kv_flags(), speculate_flags()}),
          .examples = {{"bench speculate --speculate draft.gguf", "the shipped model with a draft model"},
                       {"bench speculate --shape llama-8b --type BF16 --head eagle3 --accept 0.8 --requests 1",
                        "random weights, guesses that are right with a given chance"}},
          .notes =
              "Temperature 0 and 1; without guesses, with fixed numbers of them and with as many as pay. 'allowed' is "
              "the speed-up that the guesses that were right and the measured passes and guesses would give if nothing "
              "else took time: tokens a pass of all its answers over (cost of a pass + cost of its guesses), in plain "
              "passes. With "
              "--accept, answers are known from the plain run and each guess is spoilt with the chance that is left; "
              "what --speculate or --head names runs beside for its time. Where all requests run at once, tokens a "
              "second are those while all of them did. Exit code 1 if an answer differs from the plain one.",
          .run = run_bench_speculate};
}

}  // namespace millrace::apps
