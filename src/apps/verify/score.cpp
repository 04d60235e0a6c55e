#include <algorithm>
#include <bit>
#include <condition_variable>
#include <map>
#include <mutex>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/crowd_check.h"
#include "session/forced_tokens.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

struct Said {
  std::vector<Token> tokens;
  std::vector<float> logprobs;  // of each, as it was chosen
};
using SaidBy = std::map<std::pair<int, int>, Said>;  // request and choice

// What an engine tells about requests, until all of them have ended.
class Hearing {
 public:
  Listener listener(int request, int choices) {
    return [this, request, open = choices](std::span<const Event> events) mutable {
      std::lock_guard lock(mutex_);
      for (const Event& event : events) {
        if (event.error && !failure_) failure_ = *event.error;
        if (event.token) {
          Said& said = said_[{request, event.choice}];
          said.tokens.push_back(*event.token);
          said.logprobs.push_back(event.logprobs ? event.logprobs->chosen : 0);
        }
        if (event.finish == Finish::none && !event.error) continue;
        open = event.error ? 0 : open - 1;
        if (open <= 0) ++ended_;
      }
      changed_.notify_one();
    };
  }
  Result<SaidBy> wait(int requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= requests || failure_; });
    if (failure_) return *failure_;
    return std::move(said_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  SaidBy said_;
  std::optional<Error> failure_;
};

// On a model and backend of its own: what an engine takes of a backend stays taken.
Result<SaidBy> run_all(const Arguments& arguments, const CrowdSize& size, int step_tokens,
                       std::vector<Request> requests) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = size.prompt + size.tokens};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(choice.keep, kv_keep(arguments));
  TRY(auto loaded, LoadedModel::load(choice));
  if (choice.context > loaded->context())
    return error(Code::invalid, "prompts of {} tokens and answers of {} are more than the model's {}: ask for less",
                 size.prompt, size.tokens, loaded->context());
  if (requests.empty())
    requests = crowd_requests(size, loaded->vocab(), static_cast<uint64_t>(arguments.integer("seed")));
  for (Request& request : requests) {
    request.logprobs = std::max(request.logprobs, 1);
    if (!request.constraint) continue;
    TRY(request.constraint, forced_tokens_of(request.constraint->source(), loaded->vocab()));
  }
  EngineOptions options;
  options.executor.context = size.prompt + size.tokens;
  options.executor.kv = kv_type(arguments, *loaded);
  options.limits.max_sequences = size.parallel;
  options.limits.step_tokens = std::max(step_tokens, size.parallel);
  options.limits.max_waiting = 4 * static_cast<int>(requests.size());
  Hearing hearing;  // outlives the engine, which tells it
  TRY(auto engine, Engine::create(loaded->model(), loaded->backend(), options));
  for (size_t i = 0; i < requests.size(); ++i) {
    const int choices = requests[i].choices;
    engine->submit(std::move(requests[i]), hearing.listener(static_cast<int>(i), choices));
  }
  return hearing.wait(static_cast<int>(requests.size()));
}

// Every answer with its prompt as a text that is given: nothing is left to choose.
std::vector<Request> scoring(const std::vector<Request>& asked, const SaidBy& said, int32_t vocab) {
  std::vector<Request> requests;
  for (const auto& [key, answer] : said) {
    std::vector<Token> all = asked[static_cast<size_t>(key.first)].prompt;
    all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
    Request request;
    request.prompt = {all.front()};
    request.max_tokens = static_cast<int>(all.size()) - 1;
    request.constraint = forced_tokens({all.begin() + 1, all.end()}, vocab);
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  int64_t tokens = 0, differences = 0;
  std::string first;
};

Outcome compare(const SaidBy& said, const SaidBy& scored) {
  Outcome outcome;
  int number = 0;
  for (const auto& [key, answer] : said) {
    const auto found = scored.find({number++, 0});
    for (size_t i = 0; i < answer.tokens.size(); ++i) {
      ++outcome.tokens;
      const size_t skipped = found == scored.end() ? 0 : found->second.tokens.size() - answer.tokens.size();
      const bool same =
          found != scored.end() && found->second.tokens[skipped + i] == answer.tokens[i] &&
          std::bit_cast<uint32_t>(found->second.logprobs[skipped + i]) == std::bit_cast<uint32_t>(answer.logprobs[i]);
      if (same) continue;
      if (outcome.differences++ == 0)
        outcome.first =
            fmt::format("request {}, answer {}, token {}: {} was {}", key.first, key.second, i,
                        found == scored.end() ? 0 : found->second.logprobs[skipped + i], answer.logprobs[i]);
    }
  }
  return outcome;
}

Result<int> run_verify_score(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const CrowdSize size = {.requests = static_cast<int>(arguments.integer("requests")),
                          .parallel = static_cast<int>(arguments.integer("parallel")),
                          .prompt = static_cast<int>(arguments.integer("prompt")),
                          .tokens = static_cast<int>(arguments.integer("predict"))};
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path};
  choice.weights = false;
  TRY(const auto outline, LoadedModel::load(choice));
  const auto seed = static_cast<uint64_t>(arguments.integer("seed"));
  const std::vector<Request> asked = crowd_requests(size, outline->vocab(), seed);
  TRY(SaidBy said, run_all(arguments, size, 512, asked));
  if (arguments.toggle("plant")) said.begin()->second.logprobs.front() += 1e-6F;
  TRY(const SaidBy scored, run_all(arguments, size, 48, scoring(asked, said, outline->vocab())));
  const Outcome outcome = compare(said, scored);
  if (arguments.toggle("json")) {
    terminal.print("{}\n",
                   to_text(JsonObject{
                       {"answers", said.size()}, {"tokens", outcome.tokens}, {"differences", outcome.differences}}));
  } else {
    terminal.print("{} of {}, scored as given texts: {} differ\n",
                   counted(outcome.tokens, "log-probability", "log-probabilities"),
                   counted(static_cast<int64_t>(said.size()), "answer"), outcome.differences);
  }
  if (outcome.differences > 0) terminal.fail(outcome.first);
  return outcome.differences == 0 && outcome.tokens > 0 ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_score_verb() {
  return {
      .name = "verify score",
      .summary = "check that scoring a text gives the log-probabilities of having written it, bit for bit",
      .group = "Measure and check",
      .flags = joined({{model_flag(), device_flag(),
                        integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor")},
                       kv_flags(),
                       {integer_flag("requests", "", "32", 1, 65536, "requests to answer"),
                        integer_flag("parallel", "-np", "16", 4, 4096, "answers under way at once"),
                        integer_flag("prompt", "", "64", 1, 1 << 20, "tokens of a prompt, at most"),
                        integer_flag("predict", "-n", "32", 1, 1 << 20, "tokens of an answer, at most"),
                        integer_flag("seed", "-s", "3", 0, 1e12, "of prompts and draws"),
                        {.name = "plant", .help = "also change one by a millionth, which must be found: exit code 1"},
                        {.name = "json", .help = "as a JSON object"}}}),
      .examples = {{"verify score", "the shipped model"}},
      .notes =
          "Random prompts are answered together, in steps of 512 tokens, with the log-probability of every token. "
          "Then every prompt with its answer is given as a text, in another company and in steps of 48 tokens, "
          "and the model is asked how likely each token was. The two must be the same 32 bits: what a training "
          "loop scores is what the rollout saw. Exit code 1 if one differs.",
      .run = run_verify_score};
}

}  // namespace millrace::apps
