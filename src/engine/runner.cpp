#include "engine/runner.h"

#include <chrono>

#include "base/check.h"

namespace millrace {

void Launch::take(const StepPlan& plan) {
  if (items.size() < plan.work.size()) items.resize(plan.work.size());
  used = plan.work.size();
  for (size_t i = 0; i < used; ++i) {
    const Work& work = plan.work[i];
    Item& item = items[i];
    item.asked = work.sequence->asked;
    item.request = work.sequence->request;
    item.choice = work.sequence->choice;
    item.begin = work.begin;
    item.count = work.count;
    item.samples = work.samples;
    item.tables = work.sequence->pages.tables;
  }
  moves = plan.moves;
  snapshots = plan.snapshots;
}

Runner::Runner(Executor& executor, Store* second) : executor_(executor), second_(second), scratch_(executor.vocab()) {}

Runner::Answer& Runner::answer(const Launch::Item& item) {
  auto [found, fresh] = answers_.try_emplace({item.request, item.choice});
  Answer& answer = found->second;
  if (!fresh) return answer;
  answer.tokens.reserve(item.asked->prompt.size() + static_cast<size_t>(item.asked->max_tokens));
  answer.tokens = item.asked->prompt;
  auto sampler = Sampler::create(item.asked->sampling, executor_.vocab(), static_cast<uint32_t>(item.choice));
  if (sampler.ok()) {
    answer.sampler = std::make_unique<Sampler>(std::move(*sampler));
  } else {
    answer.error = sampler.error();
  }
  return answer;
}

// The step after this one may be planned already and continue from the token that should have come: it gets one, and
// what it makes of it is thrown away with the answer.
void Runner::fail(Answer& answer, Error why, SampledRow& row) {
  answer.tokens.push_back(0);
  row.error = std::move(why);
}

std::span<const Token> Runner::banned_now(const Launch::Item& item) const {
  const Request& asked = *item.asked;
  const bool too_short = item.begin + item.count - static_cast<int>(asked.prompt.size()) < asked.min_tokens;
  return too_short ? std::span<const Token>(asked.stop_tokens) : std::span<const Token>();
}

void Runner::choose(const Launch::Item& item, std::span<const float> logits, SampledRow& row) {
  Answer& answer = this->answer(item);
  const Request& asked = *item.asked;
  // A step whose result was thrown away is repeated: what it chose last time is chosen again.
  answer.tokens.resize(static_cast<size_t>(item.begin + item.count));
  if (answer.error) return fail(answer, *answer.error, row);
  auto token = answer.sampler->sample(logits, answer.tokens, scratch_, banned_now(item));
  if (!token.ok()) return fail(answer, token.error(), row);
  answer.tokens.push_back(*token);
  row.tokens.push_back(*token);
  if (asked.logprobs < 0) return;
  Logprobs report;
  auto reported = logprobs(logits, *token, static_cast<size_t>(asked.logprobs), scratch_, report);
  if (reported.ok()) row.logprobs.push_back(std::move(report));
}

// Whether every answer of the step takes the largest logit as it is.
bool Runner::all_greedy(const Launch& launch) {
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    if (!item.samples) continue;
    const Answer& answer = this->answer(item);
    const bool too_short =
        item.begin + item.count - static_cast<int>(item.asked->prompt.size()) < item.asked->min_tokens;
    if (answer.error || item.asked->logprobs >= 0 || too_short || !takes_largest(item.asked->sampling)) return false;
  }
  return true;
}

void Runner::take_best(const Launch::Item& item, int32_t best, SampledRow& row) {
  Answer& answer = this->answer(item);
  answer.tokens.resize(static_cast<size_t>(item.begin + item.count));
  if (best < 0) return fail(answer, Error{Code::internal, "the model gave no number for any token"}, row);
  answer.tokens.push_back(best);
  row.tokens.push_back(best);
}

// What to bring of the item's row. Log-probabilities are of all tokens, and so is what is wrong with a refused sampler.
ShortlistAsk Runner::ask_of(const Launch::Item& item) {
  const Answer& answer = this->answer(item);
  if (answer.error || item.asked->logprobs >= 0) return {.kind = ShortlistKind::whole};
  return answer.sampler->shortlist_ask(executor_.vocab(), static_cast<size_t>(item.begin + item.count),
                                       banned_now(item));
}

void Runner::choose_shortlist(const Launch::Item& item, const ShortlistAsk& ask, const Shortlisted& found,
                              int64_t index, SampledRow& row) {
  if (ask.kind == ShortlistKind::whole) return choose(item, executor_.row(index), row);
  Answer& answer = this->answer(item);
  answer.tokens.resize(static_cast<size_t>(item.begin + item.count));
  const auto token = answer.sampler->sample_shortlist(ask, found, answer.tokens, scratch_, banned_now(item));
  if (!token) return choose(item, executor_.fetch_row(index), row);
  answer.tokens.push_back(*token);
  row.tokens.push_back(*token);
}

void Runner::run_greedy(const Launch& launch, Sampled& sampled) {
  std::span<const int32_t> best = executor_.run_best(chunks_);
  size_t row = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    if (launch.items[i].samples) take_best(launch.items[i], best[row++], sampled.rows[i]);
  }
}

void Runner::run_shortlist(const Launch& launch, Sampled& sampled) {
  std::span<ShortlistAsk> asks = executor_.asks();
  size_t row = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    if (launch.items[i].samples) asks[row++] = ask_of(launch.items[i]);
  }
  std::span<const Shortlisted> found = executor_.run_shortlist(chunks_);
  row = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    if (!launch.items[i].samples) continue;
    choose_shortlist(launch.items[i], asks[row], found[row], static_cast<int64_t>(row), sampled.rows[i]);
    ++row;
  }
}

void Runner::run_whole(const Launch& launch, Sampled& sampled) {
  Tensor logits = executor_.run(chunks_);
  int64_t row = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    if (!launch.items[i].samples) continue;
    choose(launch.items[i], {logits.row(row++), static_cast<size_t>(executor_.vocab())}, sampled.rows[i]);
  }
}

void Runner::run(Launch& launch, Sampled& sampled) {
  auto begin = std::chrono::steady_clock::now();
  for (RequestId request : launch.forget) {
    answers_.erase(answers_.lower_bound({request, 0}), answers_.lower_bound({request + 1, 0}));
  }
  launch.forget.clear();
  sampled.rows.assign(launch.used, {});
  const Executor::Counters before = executor_.counters();
  carry_out(launch.moves, executor_.store(), second_, sampled.failed_moves);
  chunks_.clear();
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    std::span<const Token> tokens = answer(item).tokens;
    CHECK(static_cast<int>(tokens.size()) >= item.begin + item.count, "tokens {} to {} of {}", item.begin,
          item.begin + item.count, tokens.size());
    chunks_.push_back({.tokens = tokens.subspan(static_cast<size_t>(item.begin), static_cast<size_t>(item.count)),
                       .begin = item.begin,
                       .tables = item.tables,
                       .wanted = item.samples ? 1 : 0});
  }
  if (!chunks_.empty()) {
    int64_t rows = 0;
    for (const Chunk& chunk : chunks_) rows += chunk.wanted;
    if (executor_.picks() && all_greedy(launch)) {
      run_greedy(launch, sampled);
    } else if (executor_.picks() && executor_.takes_shortlists(rows)) {
      run_shortlist(launch, sampled);
    } else {
      run_whole(launch, sampled);
    }
  }
  const Executor::Counters& after = executor_.counters();
  sampled.shortlist_rows = after.shortlisted - before.shortlisted;
  sampled.whole_rows = after.whole - before.whole;
  sampled.unsettled_rows = after.unsettled - before.unsettled;
  executor_.store().copy(launch.snapshots);
  sampled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace millrace
