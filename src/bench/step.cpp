#include "bench/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/rng.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Sequences side by side whose pages are dealt out in turn, as a busy cache would have them.
struct Sequences {
  std::vector<std::vector<PageTable>> tables;  // [sequence][group]
  std::vector<std::vector<Token>> tokens;      // [sequence], as long as the test gets

  Sequences(const Executor& executor, int32_t count, int32_t length) {
    const CacheLayout& layout = executor.layout();
    tables.resize(static_cast<size_t>(count));
    PageId next = 0;
    int longest = 0;
    for (const CacheGroup& group : layout.groups) {
      for (auto& sequence : tables) sequence.emplace_back(group.page_tokens);
      longest = std::max(longest, group.pages_for(length));
    }
    for (int entry = 0; entry < longest; ++entry) {
      for (auto& sequence : tables) {
        for (size_t g = 0; g < layout.groups.size(); ++g) {
          if (entry < layout.groups[g].pages_for(length)) sequence[g].push(next++);
        }
      }
    }
    for (int32_t s = 0; s < count; ++s) {
      auto& text = tokens.emplace_back();
      for (int32_t i = 0; i < length; ++i) {
        double draw = uniform({.seed = 7, .choice = static_cast<uint32_t>(s), .position = static_cast<uint32_t>(i)});
        text.push_back(static_cast<Token>(draw * executor.vocab()));
      }
    }
  }
};

class Runner {
 public:
  Runner(Executor& executor, const StepTest& test, int32_t length, std::vector<int> adapters)
      : executor_(executor),
        test_(test),
        sequences_(executor, test.sequences, length),
        adapters_(std::move(adapters)) {}

  // Tokens [begin, end) of every sequence, in chunks as large as a step takes, one sequence after the other.
  void prefill(int32_t begin, int32_t end, std::vector<std::vector<PassRows>>* passes) {
    for (int32_t s = 0; s < test_.sequences; ++s) {
      for (int32_t at = begin; at < end;) {
        int32_t count = std::min(executor_.options().rows, end - at);
        bool last = at + count == end;
        Chunk chunk = this->chunk(s, at, count, last ? 1 : 0);
        executor_.run({&chunk, 1});
        if (passes != nullptr) passes->push_back({{.begin = at, .count = count, .wanted = chunk.wanted}});
        at += count;
      }
    }
  }

  // One token of every sequence together, as many times.
  void generate(int32_t begin, int32_t count, std::vector<std::vector<PassRows>>* passes) {
    std::vector<Chunk> chunks(static_cast<size_t>(test_.sequences));
    for (int32_t at = begin; at < begin + count; ++at) {
      for (int32_t s = 0; s < test_.sequences; ++s) chunks[static_cast<size_t>(s)] = chunk(s, at, 1, 1);
      if (executor_.picks())  // as a server does it: the next tokens come back, not the logits
        executor_.run_best(chunks);
      else
        executor_.run(chunks);
      if (passes != nullptr) passes->emplace_back(static_cast<size_t>(test_.sequences), PassRows{.begin = at});
    }
  }

 private:
  Chunk chunk(int32_t s, int32_t begin, int32_t count, int32_t wanted) {
    size_t i = static_cast<size_t>(s);
    std::span<const Token> text = sequences_.tokens[i];
    return {.tokens = text.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
            .begin = begin,
            .tables = sequences_.tables[i],
            .wanted = wanted,
            .adapter = test_.adapters > 0 ? adapters_[i % static_cast<size_t>(test_.adapters)] : -1};
  }

  Executor& executor_;
  StepTest test_;
  Sequences sequences_;
  std::vector<int> adapters_;
};

}  // namespace

std::string StepTest::name() const {
  std::string name;
  if (prompt > 0) name += fmt::format("pp{}", prompt);
  if (generated > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", generated);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  if (sequences > 1) name += fmt::format(" x {}", sequences);
  if (adapters > 0) name += fmt::format(", {} adapter{}", adapters, adapters == 1 ? "" : "s");
  return name;
}

double StepResult::mean_rate() const {
  double sum = 0;
  for (double s : seconds) sum += static_cast<double>(test.tokens()) / s;
  return sum / static_cast<double>(seconds.size());
}

double StepResult::deviation() const {
  if (seconds.size() < 2) return 0;
  double mean = mean_rate(), sum = 0;
  for (double s : seconds) sum += std::pow(static_cast<double>(test.tokens()) / s - mean, 2);
  return std::sqrt(sum / static_cast<double>(seconds.size() - 1));
}

double StepResult::best_seconds() const { return *std::min_element(seconds.begin(), seconds.end()); }

double StepResult::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

ExecutorOptions options_for(const std::vector<StepTest>& tests, int32_t rows, const KvForm& kv) {
  ExecutorOptions options = {.context = 1, .rows = rows, .sequences = 1, .kv = kv};
  for (const StepTest& test : tests) {
    options.context = std::max(options.context, test.depth + test.prompt + test.generated);
    options.sequences = std::max(options.sequences, test.sequences);
  }
  options.rows = std::max(options.rows, options.sequences);
  return options;
}

Result<StepResult> run_step_test(Executor& executor, const StepTest& test, const Machine& machine,
                                 const StepBenchOptions& options) {
  if (test.tokens() <= 0) return error(Code::invalid, "a test needs at least one token: give -p or -n above 0");
  int32_t length = test.depth + test.prompt + test.generated;
  if (length > executor.options().context || test.sequences > executor.options().sequences) {
    return error(Code::invalid, "test {} needs {} positions of {} sequences, but there is room for {} of {}",
                 test.name(), length, test.sequences, executor.options().context, executor.options().sequences);
  }
  if (std::ssize(options.adapters) < test.adapters)
    return error(Code::invalid, "test {} needs {} adapters, and {} are loaded", test.name(), test.adapters,
                 options.adapters.size());
  Runner runner(executor, test, length, options.adapters);
  runner.prefill(0, test.depth, nullptr);
  StepResult result = {.test = test};
  std::vector<std::vector<PassRows>>& passes = result.passes;
  for (int round = options.warm_up ? -1 : 0; round < options.repetitions; ++round) {
    if (options.progress && !options.progress(std::max(round, 0), options.repetitions)) {
      return error(Code::cancelled, "stopped");
    }
    bool first = passes.empty();
    auto begin = Clock::now();
    runner.prefill(test.depth, test.depth + test.prompt, first ? &passes : nullptr);
    runner.generate(test.depth + test.prompt, test.generated, first ? &passes : nullptr);
    if (const Executor::Counters& done = executor.counters(); done.failed > 0) {
      return error(Code::internal, "{} of {} steps failed: there is no speed to tell", done.failed, done.steps);
    }
    if (round >= 0) result.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  result.floor = floor_of(executor, passes, machine, options.fast);
  return result;
}

Floor floor_of(const Executor& executor, const std::vector<std::vector<PassRows>>& passes, const Machine& machine,
               bool fast) {
  Floor floor;
  for (const auto& pass : passes)
    floor += floor_of(trace_pass(executor.model(), executor.options().kv, pass), machine, fast);
  return floor;
}

}  // namespace millrace
