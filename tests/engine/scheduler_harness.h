// A scheduler, its cache and HashModel in virtual time, for tests. A step takes as long as `seconds` says.
#pragma once

#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/hash_model.h"
#include "engine/scheduler.h"

namespace millrace {

struct Answer {
  std::vector<Token> tokens;
  std::vector<int64_t> steps;  // in which each came
  std::vector<double> times;
  Finish finish = Finish::none;
};

struct Harness {
  static CacheLayout plain(int page_tokens = 16) {
    std::vector<CacheSpec> layers(2, CacheSpec{CacheKind::paged, {64, 64}, 0});
    return plan_layout(layers, {.page_tokens = page_tokens}).value();
  }

  Harness(const Limits& given, int pages, const char* policy = "fcfs", int second_pages = 0,
          CacheLayout layout = plain(), std::unique_ptr<DraftControl> control = nullptr)
      : limits(given),
        cache(layout, pages, second_pages),
        model(layout, pages, second_pages, 1000),
        scheduler(limits, cache, make_policy(policy).value(), std::move(control)) {}

  static Request ask(int prompt, int answer, const char* tenant = "a", int first = 0) {
    Request request;
    request.prompt.resize(static_cast<size_t>(prompt));
    std::iota(request.prompt.begin(), request.prompt.end(), first);
    request.max_tokens = answer;
    request.tenant = tenant;
    request.root.bytes[0] = static_cast<uint8_t>(tenant[0]);
    return request;
  }

  // The plan that was made; its sequences may be gone.
  StepPlan step() {
    if (overlap && scheduler.had_better_wait()) land();
    StepPlan plan = scheduler.next(now);
    if (plan.empty()) return plan;
    ++steps;
    for (const Work& work : plan.work) served[work.sequence->asked->tenant] += work.count;
    Sampled sampled = model.run(plan, {}, dice, guess);
    sampled.seconds = seconds(plan);
    now += sampled.seconds + (flight_plan.empty() ? pause : 0);
    double ended = now;
    if (overlap) {
      std::swap(plan, flight_plan);
      std::swap(sampled, flight);
      std::swap(ended, flight_ended);
      if (plan.work.empty() && plan.moves.empty()) return flight_plan;
    }
    take(scheduler.commit(plan, sampled, ended));
    return overlap ? flight_plan : plan;
  }
  void land() {
    if (flight_plan.empty()) return;
    take(scheduler.commit(std::exchange(flight_plan, {}), std::exchange(flight, {}), flight_ended));
  }
  void take(const std::vector<Event>& events) {
    for (const Event& event : events) {
      Answer& answer = answers[{event.request, event.choice}];
      if (event.token) {
        answer.tokens.push_back(*event.token);
        answer.steps.push_back(steps);
        answer.times.push_back(now);
      }
      answer.finish = event.finish;
    }
  }
  void run(int64_t most = 100000) {
    while (!scheduler.idle() && steps < most)
      if (step().empty()) land();
    land();
  }
  std::vector<Token> alone(const Request& request, int choice = 0) const {
    std::vector<Token> tokens = model.alone(request, choice).tokens;
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(request.prompt.size()));
    return tokens;
  }

  Limits limits;
  KvCache cache;
  HashModel model;
  Scheduler scheduler;
  std::function<double(const StepPlan&)> seconds = [](const StepPlan& plan) { return 1e-3 + 1e-4 * plan.tokens; };
  HashModel::Guess guess;
  bool overlap = false;
  double pause = 0;  // before a step that waited for the one before it
  StepPlan flight_plan;
  Sampled flight;
  double flight_ended = 0;
  Dice dice{1};
  double now = 0;
  int64_t steps = 0;
  std::map<std::string, int64_t> served;  // tokens computed, by tenant
  std::map<std::pair<RequestId, int>, Answer> answers;
};

}  // namespace millrace
