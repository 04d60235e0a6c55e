#include "eval/crowd_check.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/rng.h"

namespace millrace {
namespace {

// Gathers what an engine tells about requests, until all of them have ended.
class Gathering {
 public:
  Listener listener(int request, int choices) {
    return [this, request, open = choices](std::span<const Event> events) mutable {
      std::lock_guard lock(mutex_);
      for (const Event& event : events) {
        if (event.error && !failure_) failure_ = *event.error;
        if (event.token) answers_[{request, event.choice}].push_back(*event.token);
        if (open == 0 || (event.finish == Finish::none && !event.error)) continue;
        open = event.error ? 0 : open - 1;
        if (open == 0) ++ended_, changed_.notify_one();
      }
    };
  }
  // Until so many have ended. The last number told is theirs, however many end while it is told of others.
  void wait(int requests, const std::function<void(int)>& heard) {
    std::unique_lock lock(mutex_);
    for (int told = -1; told < requests;) {
      changed_.wait(lock, [&] { return ended_ > told; });
      told = ended_;
      lock.unlock();
      heard(told);
      lock.lock();
    }
  }
  Result<CrowdAnswers> take() {
    std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    return std::move(answers_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  CrowdAnswers answers_;
  std::optional<Error> failure_;
};

// Tokens for a quarter of what runs at once, with prompts counted half, because much of them is shared; but the longest
// request must fit.
double tight_room(const CrowdSize& size, const std::vector<Request>& requests) {
  double longest = 0, all = 0;
  for (const Request& request : requests) {
    const auto prompt = static_cast<double>(request.prompt.size()),
               answers = 1.0 * request.choices * request.max_tokens;
    longest = std::max(longest, prompt + answers);
    all += prompt / 2 + answers;
  }
  return std::max(longest, all / static_cast<double>(requests.size()) * size.parallel / 4);
}

Result<EngineOptions> options_of(const Model& model, const Backend& backend, const CrowdSize& size, const CrowdWay& way,
                                 const std::vector<Request>& requests, const DraftOptions& draft) {
  EngineOptions options;
  options.executor.context = size.prompt + size.tokens;
  options.executor.kv = size.kv;
  options.executor.beside = draft.beside;
  suit_requests(model.spec(), options.executor);
  options.limits.max_sequences = way.alone ? 3 : size.parallel;  // three: the answers of one request
  options.limits.step_tokens = std::max(way.small_steps ? 48 : 512, options.limits.max_sequences);
  options.limits.max_waiting = 3 * size.requests;
  options.limits.page_move_seconds = 1e-6;
  options.policy = way.priority ? "priority" : "fcfs";
  options.swap_bytes = way.swaps ? size.swap_bytes : 0;
  options.overlap = way.overlap;
  if (way.tight) {
    ExecutorOptions full = options.executor;
    full.sequences = options.limits.max_sequences;
    full.rows = std::max(options.limits.step_tokens, options.executor.rows);
    TRY(const Executor::Plan plan, Executor::plan(model, backend, full));
    const double contexts = tight_room(size, requests) / (size.prompt + size.tokens);
    options.executor.pages = static_cast<int32_t>(std::ceil(contexts * plan.options.pages / full.sequences)) + 4;
  }
  return options;
}

// Passes of every kind: exact and by blocks, few and many, by every rule.
FillAsk fill_of(size_t request) {
  constexpr int32_t kBlocks[] = {0, 8, 0, 5}, kSteps[] = {0, 3, 7};
  constexpr Remasking kRules[] = {Remasking::confidence, Remasking::entropy, Remasking::margin, Remasking::order};
  return {kSteps[request % 3], kBlocks[request % 4], kRules[request / 4 % 4]};
}

}  // namespace

std::vector<Request> crowd_requests(const CrowdSize& size, int32_t vocab, uint64_t seed) {
  std::vector<Request> all;
  for (int i = 0; i < size.requests; ++i) {
    const auto number = static_cast<uint32_t>(i);
    auto draw = [&](uint32_t what, int limit) {
      return static_cast<int>(uniform({.seed = seed, .position = number, .draw = what}) * limit);
    };
    auto token = [&](uint32_t of, uint32_t at) {
      return static_cast<Token>(uniform({.seed = seed + 1, .position = of, .draw = at}) * vocab);
    };
    Request request;
    const int length = 1 + draw(0, size.prompt), shared = draw(1, 3) == 0 ? 0 : std::min(length, size.prompt / 2);
    for (int t = 0; t < length; ++t)
      request.prompt.push_back(token(t < shared ? 0 : number + 1, static_cast<uint32_t>(t)));
    request.max_tokens = 1 + draw(2, size.tokens);
    request.choices = draw(3, 8) == 0 ? 3 : 1;
    request.sampling.temperature = draw(4, 2) == 0 ? 0.0 : 1.0;
    request.sampling.seed = seed + number;
    request.priority = i < size.requests / 2 ? 0 : 1;
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<Request> sampler_requests(const CrowdSize& size, int32_t vocab, uint64_t seed) {
  const std::vector<Sampling> kinds = {{.temperature = 0},
                                       {.temperature = 1},
                                       {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
                                       {.temperature = 1, .typical = 0.9},
                                       {.temperature = 1.2, .top_n_sigma = 1.5},
                                       {.temperature = 0, .repetition = 1.2, .presence = 0.2, .frequency = 0.3},
                                       {.temperature = 1, .mirostat = 2, .mirostat_tau = 3},
                                       {.temperature = 1, .xtc_probability = 0.5, .xtc_threshold = 0.05},
                                       {.temperature = 0.7, .dry_multiplier = 0.8}};
  std::vector<Request> all = crowd_requests(size, vocab, seed);
  for (size_t i = 0; i < all.size(); ++i) {
    Request& request = all[i];
    const uint64_t own = request.sampling.seed;
    request.sampling = kinds[i % kinds.size()];
    request.sampling.seed = own;
    for (size_t t = request.prompt.size() / 2; i % 2 == 0 && t < request.prompt.size(); ++t)
      request.prompt[t] = request.prompt[t - request.prompt.size() / 2];
    if (i % 3 == 0) request.min_tokens = request.max_tokens / 2;
    for (Token stop = 0; i % 4 == 1 && stop < 16; ++stop) request.stop_tokens.push_back(stop * (vocab / 16));
    if (i % 5 == 2) request.logprobs = 2;
  }
  return all;
}

std::vector<CrowdWay> crowd_ways() {
  return {{.name = "one after the other", .alone = true, .overlap = false},
          {.name = "together"},
          {.name = "together, steps of 48 tokens", .small_steps = true},
          {.name = "in a quarter of the room, computed again", .tight = true, .overlap = false},
          {.name = "the same, steps planned ahead", .tight = true},
          {.name = "in a quarter of the room, moved out", .tight = true, .swaps = true},
          {.name = "the same, the later ones first", .tight = true, .swaps = true, .priority = true}};
}

Result<CrowdOutcome> run_crowd(const Model& model, Backend& backend, const CrowdSize& size, const CrowdWay& way,
                               std::vector<Request> requests, const std::function<void(int)>& heard,
                               const DraftOptions& draft) {
  TRY(EngineOptions options, options_of(model, backend, size, way, requests, draft));
  options.draft = draft;
  options.adapters = size.adapters;
  Gathering gathering;  // outlives the engine, which tells it
  TRY(auto engine, Engine::create(model, backend, options));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    if (fills_masks(model.spec())) request.fill = fill_of(i);
    if (const size_t turn = i % (size.adapters.size() + 1); turn > 0) {
      request.adapter = size.adapters[turn - 1].name;
      request.adapter_strength = size.adapters[turn - 1].strength;
      request.root.bytes[31] = static_cast<uint8_t>(turn);  // what it computes is nobody else's
    }
    if (way.alone) {  // a root of its own: nothing is found in the cache
      request.root.bytes[0] = static_cast<uint8_t>(i);
      request.root.bytes[1] = static_cast<uint8_t>(i >> 8);
    }
    const int choices = request.choices;
    engine->submit(std::move(request), gathering.listener(static_cast<int>(i), choices));
    if (way.alone) gathering.wait(static_cast<int>(i) + 1, heard);
  }
  gathering.wait(static_cast<int>(requests.size()), heard);
  CrowdOutcome outcome;
  TRY(outcome.answers, gathering.take());
  outcome.metrics = engine->snapshot().metrics;
  return outcome;
}

int first_difference(const CrowdAnswers& expected, const CrowdAnswers& found) {
  int first = -1;
  auto look = [&](const CrowdAnswers& one, const CrowdAnswers& other) {
    for (const auto& [key, tokens] : one) {
      const auto same = other.find(key);
      if ((same == other.end() || same->second != tokens) && (first < 0 || key.first < first)) first = key.first;
    }
  };
  look(expected, found);
  look(found, expected);
  return first;
}

}  // namespace millrace
