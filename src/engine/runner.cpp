#include "engine/runner.h"

#include <algorithm>
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
    item.residence = work.residence;
    item.drafts = work.drafts;
    item.drafted = item.branches = item.branch_rows = 0;
    item.branch_wanted = 0;
    item.samples = work.samples;
    item.fill = work.fill;
    item.tables = work.sequence->pages.tables;
  }
  expected = plan.expected;
  moves = plan.moves;
  snapshots = plan.snapshots;
}

Runner::Runner(Executor& executor, Store* second, Drafter* drafter, DraftRule rule)
    : executor_(executor),
      second_(second),
      drafter_(drafter),
      rule_(rule),
      fills_(fills_masks(executor.model().spec())),
      scratch_(executor.vocab()),
      branches_(executor.options().pages, executor.planned().spare_pages) {}

Runner::Answer& Runner::answer(const Launch::Item& item) {
  auto [found, fresh] = answers_.try_emplace({item.request, item.choice});
  Answer& answer = found->second;
  if (!fresh) return answer;
  if (fills_) {
    const Request& asked = *item.asked;
    const FillSpec& model = executor_.model().spec().fill;
    // An answer that another engine has begun is filled anew: the same tokens come, and those told are not told again.
    const size_t told = asked.resumed.empty() ? 0 : asked.resumed[static_cast<size_t>(item.choice)].tokens.size();
    answer.filling.emplace(
        asked.prompt, FillShape(static_cast<int32_t>(asked.prompt.size()), asked.max_tokens, asked.fill, model.shifted),
        model.mask, static_cast<int32_t>(told));
    return answer;
  }
  answer.tokens.reserve(item.asked->prompt.size() + static_cast<size_t>(item.asked->max_tokens));
  answer.tokens = item.asked->prompt;
  auto sampler = Sampler::create(item.asked->sampling, executor_.vocab(), static_cast<uint32_t>(item.choice));
  if (sampler.ok()) {
    answer.sampler = std::make_unique<Sampler>(std::move(*sampler));
    if (!item.asked->resumed.empty()) {
      const Resumed& before = item.asked->resumed[static_cast<size_t>(item.choice)];
      answer.tokens.insert(answer.tokens.end(), before.tokens.begin(), before.tokens.end());
      if (!before.tokens.empty()) answer.sampler->resume(answer.tokens.size(), before.mu);
    }
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

Runner::Row Runner::row_of(const Launch::Item& item, const Answer& answer, int64_t index, int guess) const {
  const Request& asked = *item.asked;
  const int before = item.known() + guess;
  const bool too_short = before - static_cast<int>(asked.prompt.size()) < asked.min_tokens;
  return {.index = index,
          .context = std::span<const Token>(answer.tokens).first(static_cast<size_t>(before)),
          .banned = too_short ? std::span<const Token>(asked.stop_tokens) : std::span<const Token>(),
          .guess = guess};
}

// A step whose result was thrown away is repeated: what it chose last time is chosen again. Where a later row breaks,
// what came before it stands, and the next step begins with that row.
template <class Choose>
void Runner::take(const Launch::Item& item, int64_t& next_row, SampledRow& out, Choose choose) {
  Answer& answer = this->answer(item);
  const auto known = static_cast<size_t>(item.known());
  out.drafted = out.first_drafted = item.drafted;
  answer.kept_branch = -1;
  if (item.branches > 0) note_branches(item, out);
  int64_t index = next_row;
  int guesses = item.drafted;  // of the path that is gone along
  for (int guess = 0;; ++guess, ++index) {
    const size_t at = known + static_cast<size_t>(guess);
    const Row row = row_of(item, answer, index, guess);
    auto token = answer.error ? Result<Token>(*answer.error) : choose(row);
    if (!token.ok()) {
      answer.tokens.resize(at);
      if (guess == 0) fail(answer, token.error(), out);
      break;
    }
    out.tokens.push_back(*token);
    if (auto bar = answer.sampler->bar(at + 1)) out.mus.push_back(*bar);
    const bool agrees = guess < guesses && answer.tokens[at] == *token;
    const auto& ends = item.asked->stop_tokens;
    const bool ends_here = std::find(ends.begin(), ends.end(), *token) != ends.end();
    out.along += agrees && !ends_here && answer.kept_branch < 0;
    if (agrees && !ends_here) continue;
    answer.tokens.resize(at);
    answer.tokens.push_back(*token);
    const int other = ends_here ? -1 : branch_with(item, std::span<const Token>(answer.tokens).subspan(known));
    if (other < 0) break;
    put_path(item, answer, other);
    answer.kept_branch = other;
    guesses = static_cast<int>(branch_of(item, other).tokens.size()) - 1;
    index = first_row_of(item, next_row, other) + guess - 1;  // its first row is after its first guess
  }
  next_row += item.wanted() + item.branch_wanted;
}

// A guess by a rule that is not exact.
Result<Token> Runner::judge(const Launch::Item& item, const Row& row, std::span<const float> logits,
                            const TokenMask* mask) {
  Answer& answer = this->answer(item);
  Sampler& sampler = *answer.sampler;
  const Token guess = answer.tokens[row.context.size()];
  TRY(const auto odds, sampler.distribution(logits, row.context, scratch_, row.banned, mask));
  if (rule_ == DraftRule::typical) {
    if (is_typical(odds, guess)) return guess;
    return sampler.sample(logits, row.context, scratch_, row.banned, mask);
  }
  const auto at = static_cast<size_t>(row.guess);
  return take_or_reject(odds, at < answer.odds.size() ? answer.odds[at] : std::vector<TokenProbability>(), guess,
                        {sampler.sampling().seed, sampler.choice(), static_cast<uint32_t>(row.context.size()), 0});
}

Result<Token> Runner::choose_whole(const Launch::Item& item, const Row& row, std::span<const float> logits,
                                   SampledRow& out) {
  const Request& asked = *item.asked;
  Answer& answer = this->answer(item);
  std::shared_ptr<const TokenMask> mask;
  if (asked.constraint) {
    TRY(mask, answer.states.mask(*asked.constraint, row.context.subspan(asked.prompt.size())));
  }
  const bool judged = by_rule(item) && row.guess < item.drafted;
  TRY(const Token token, judged ? judge(item, row, logits, mask.get())
                                : answer.sampler->sample(logits, row.context, scratch_, row.banned, mask.get()));
  if (asked.logprobs < 0) return token;
  Logprobs report;
  auto reported = logprobs(logits, token, static_cast<size_t>(asked.logprobs), scratch_, report);
  if (reported.ok()) out.logprobs.push_back(std::move(report));
  return token;
}

// Whether every answer of the step takes the largest logit as it is.
bool Runner::all_greedy(const Launch& launch) {
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    if (!item.samples) continue;
    const Answer& answer = this->answer(item);
    const bool too_short = item.known() - static_cast<int>(item.asked->prompt.size()) < item.asked->min_tokens;
    if (answer.error || item.asked->constraint || item.asked->logprobs >= 0 || too_short) return false;
    if (!takes_largest(item.asked->sampling)) return false;
  }
  return true;
}

// What to bring of a row. Log-probabilities are of all tokens, and so is what is wrong with a refused sampler. Under a
// constraint the token that wins freely is taken if it is allowed, since then it wins among those that are too; with
// truncation that is not so, which sees the allowed ones only.
ShortlistAsk Runner::ask_of(const Launch::Item& item, const Row& row) {
  const Answer& answer = this->answer(item);
  const ShortlistAsk whole = {.kind = ShortlistKind::whole};
  if (answer.error || item.asked->logprobs >= 0 || by_rule(item)) return whole;
  const ShortlistAsk ask = answer.sampler->shortlist_ask(executor_.vocab(), row.context.size(), row.banned);
  const bool truncated = ask.kind == ShortlistKind::list && item.asked->sampling.temperature > 0;
  return item.asked->constraint && truncated ? whole : ask;
}

Result<Token> Runner::choose_shortlist(const Launch::Item& item, const Row& row, const Shortlisted& found,
                                       SampledRow& out) {
  const ShortlistAsk& ask = executor_.asks()[static_cast<size_t>(row.index)];
  if (ask.kind == ShortlistKind::whole) return choose_whole(item, row, executor_.row(row.index), out);
  const auto token = answer(item).sampler->sample_shortlist(ask, found, row.context, scratch_, row.banned);
  bool taken = token.has_value();
  if (taken && item.asked->constraint) {
    const auto chosen = row.context.subspan(item.asked->prompt.size());
    TRY(const auto mask, answer(item).states.mask(*item.asked->constraint, chosen));
    taken = mask->has(*token);
  }
  if (!taken) return choose_whole(item, row, executor_.fetch_row(row.index), out);
  return *token;
}

void Runner::run_greedy(const Launch& launch, Sampled& sampled) {
  std::span<const int32_t> best = executor_.run_best(chunks_);
  int64_t next = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    if (!launch.items[i].samples) continue;
    take(launch.items[i], next, sampled.rows[i], [&](const Row& row) -> Result<Token> {
      const int32_t token = best[static_cast<size_t>(row.index)];
      if (token < 0) return error(Code::internal, "the model gave no number for any token");
      return token;
    });
  }
}

void Runner::run_shortlist(const Launch& launch, Sampled& sampled) {
  std::span<ShortlistAsk> asks = executor_.asks();
  int64_t next = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    for (int guess = 0; guess < item.wanted(); ++guess)
      asks[static_cast<size_t>(next + guess)] = ask_of(item, row_of(item, answer(item), next + guess, guess));
    next += item.wanted();
    for (int branch = 0; branch < item.branches; ++branch) {
      put_path(item, answer(item), branch);
      for (size_t guess = 1; guess < branch_of(item, branch).tokens.size(); ++guess, ++next)
        asks[static_cast<size_t>(next)] = ask_of(item, row_of(item, answer(item), next, static_cast<int>(guess)));
    }
    if (item.branches > 0) put_path(item, answer(item), -1);
  }
  std::span<const Shortlisted> found = executor_.run_shortlist(chunks_);
  next = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    if (!item.samples) continue;
    take(item, next, sampled.rows[i], [&](const Row& row) {
      return choose_shortlist(item, row, found[static_cast<size_t>(row.index)], sampled.rows[i]);
    });
  }
}

void Runner::fill(const Launch::Item& item, const Tensor& logits, int64_t& next_row, SampledRow& out) {
  auto rows = [&](int32_t row) {
    return std::span<const float>(logits.row(next_row + row), static_cast<size_t>(executor_.vocab()));
  };
  auto told = answer(item).filling->fill(item.fill, *item.asked, item.choice, rows);
  if (told.ok()) {
    out.tokens = std::move(*told);
  } else {
    out.error = told.error();
  }
  next_row += item.wanted();
}

void Runner::run_whole(const Launch& launch, Sampled& sampled) {
  Tensor logits = executor_.run(chunks_);
  int64_t next = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    if (!item.samples) continue;
    if (fills_) {
      fill(item, logits, next, sampled.rows[i]);
      continue;
    }
    take(item, next, sampled.rows[i], [&](const Row& row) {
      return choose_whole(item, row, {logits.row(row.index), static_cast<size_t>(executor_.vocab())}, sampled.rows[i]);
    });
  }
}

// What a drafter says is trusted in nothing: too many guesses, ids no model has, what a constraint refuses and what
// follows an end are cut off. Where a constraint leaves one token, that is the guess, whatever the drafter said; where
// it leaves one text and the drafter says nothing that fits, its first token is.
void Runner::take_guesses(Launch::Item& item, Answer& answer) {
  const auto& ends = item.asked->stop_tokens;
  for (size_t next = 0; item.drafted < item.drafts; ++next) {
    Token token = next < answer.guesses.size() ? answer.guesses[next] : -1;
    if (item.asked->constraint) {
      const auto chosen = std::span<const Token>(answer.tokens).subspan(item.asked->prompt.size());
      auto mask = answer.states.mask(*item.asked->constraint, chosen);
      if (!mask.ok()) return;
      const bool fits = token >= 0 && (*mask)->has(token);
      Token must = (*mask)->only();
      if (must < 0 && !fits) must = answer.states.forced(*item.asked->constraint);
      if (must >= 0 && must != token) answer.guesses.resize(std::min(next, answer.guesses.size()));
      if (must >= 0) token = must;
      const bool forbidden = token < 0 || !(*mask)->has(token);
      // By reject a guess that cannot be is one that is not kept: leaving it out would change the odds.
      if (forbidden && (token < 0 || rule_ != DraftRule::reject)) return;
    }
    if (token < 0 || token >= executor_.vocab()) return;
    answer.tokens.push_back(token);
    ++item.drafted;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return;
  }
}

void Runner::draft(Launch& launch, Sampled& sampled) {
  if (drafter_ == nullptr) return;
  const auto begin = std::chrono::steady_clock::now();
  drafts_.clear();
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    if (item.drafts == 0) continue;
    Answer& answer = this->answer(item);
    if (answer.error) continue;
    answer.tokens.resize(static_cast<size_t>(item.known()));
    answer.guesses.clear();
    answer.others.clear();
    answer.odds.clear();
    drafts_.push_back({.request = item.request,
                       .choice = item.choice,
                       .root = item.asked->root,
                       .tokens = answer.tokens,
                       .prompt = static_cast<int>(item.asked->prompt.size()),
                       .prediction = item.asked->prediction,
                       .limit = item.drafts,
                       .begin = item.begin,
                       .residence = item.residence,
                       .tables = item.tables,
                       .sampler = answer.sampler.get(),
                       .banned_now = row_of(item, answer, 0, 0).banned,
                       .out = &answer.guesses,
                       .branches = item.asked->constraint ? 0 : executor_.options().branches,
                       .others = &answer.others,
                       .odds = rule_ == DraftRule::reject ? &answer.odds : nullptr});
  }
  if (drafts_.empty()) return;
  drafter_->propose(drafts_);
  for (size_t i = 0; i < launch.used; ++i) {
    Launch::Item& item = launch.items[i];
    if (item.drafts == 0 || answer(item).error) continue;
    take_guesses(item, answer(item));
    open_branches(item, answer(item));
  }
  sampled.draft_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What a drafter says of them is trusted as little. Under a constraint there are none: every path would need states of
// its own.
void Runner::open_branches(Launch::Item& item, Answer& answer) {
  if (item.asked->constraint || answer.others.empty() || item.begin != item.known() - 1) return;
  const auto known = static_cast<size_t>(item.known());
  answer.guesses.assign(answer.tokens.begin() + static_cast<ptrdiff_t>(known), answer.tokens.end());
  const auto& ends = item.asked->stop_tokens;
  item.branch = branches_.size();
  std::vector<Token> line;
  for (const std::vector<Token>& path : answer.others) {
    if (item.branches == executor_.options().branches) return;
    line.assign(1, answer.tokens[known - 1]);
    for (const Token token : path) {
      if (token < 0 || token >= executor_.vocab()) break;
      line.push_back(token);
      if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    }
    const auto rows = static_cast<int>(line.size());
    if (rows < 2 || item.drafted + item.branch_rows + rows > item.drafts) continue;
    if (!branches_.open(item.begin, line, item.tables)) return;
    ++item.branches;
    item.branch_rows += rows;
    item.branch_wanted += rows - 1;
  }
}

void Runner::note_branches(const Launch::Item& item, SampledRow& out) const {
  out.draft_rows = item.drafted + item.branch_rows;
  for (int branch = 0; branch < item.branches; ++branch)
    out.drafted = std::max(out.drafted, static_cast<int>(branch_of(item, branch).tokens.size()) - 1);
}

int Runner::branch_with(const Launch::Item& item, std::span<const Token> agreed) const {
  for (int branch = 0; branch < item.branches; ++branch) {
    const auto path = std::span<const Token>(branch_of(item, branch).tokens).subspan(1);
    if (path.size() >= agreed.size() && std::equal(agreed.begin(), agreed.end(), path.begin())) return branch;
  }
  return -1;
}

int64_t Runner::first_row_of(const Launch::Item& item, int64_t first, int branch) const {
  int64_t row = first + item.wanted();
  for (int before = 0; before < branch; ++before)
    row += static_cast<int64_t>(branch_of(item, before).tokens.size()) - 1;
  return row;
}

void Runner::put_path(const Launch::Item& item, Answer& answer, int branch) {
  answer.tokens.resize(static_cast<size_t>(item.known()));
  const auto path = branch < 0 ? std::span<const Token>(answer.guesses)
                               : std::span<const Token>(branch_of(item, branch).tokens).subspan(1);
  answer.tokens.insert(answer.tokens.end(), path.begin(), path.end());
}

// The pages of branches that were right become their answers'.
void Runner::keep_branches(const Launch& launch, const Sampled& sampled) {
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    const int kept = item.branches > 0 ? answer(item).kept_branch : -1;
    if (kept < 0) continue;
    const auto tokens = static_cast<int>(sampled.rows[i].tokens.size());  // the last known one and right guesses
    executor_.copy_pages(branches_.keep(branch_of(item, kept), tokens, item.tables));
  }
}

// The rows that count, and their streams: known tokens, guesses that were right, on the path that was gone along.
void Runner::observe(const Launch& launch, Sampled& sampled) {
  if (drafter_ == nullptr || !drafter_->observes() || chunks_.empty()) return;
  const Tensor all = executor_.tapped();
  observed_.clear();
  int64_t row = 0;
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    const Answer& own = answer(item);
    const int64_t first = row;
    row += item.rows();
    int64_t from = first;
    for (int branch = 0; branch < item.branches; ++branch) {
      if (branch == own.kept_branch) from = row;
      row += static_cast<int64_t>(branch_of(item, branch).tokens.size());
    }
    const int64_t right = item.samples ? std::ssize(own.tokens) - 1 - item.begin : item.rows();
    observed_.push_back(
        {.request = item.request,
         .choice = item.choice,
         .begin = item.begin,
         .rows = static_cast<int>(right),
         .residence = item.residence,
         .streams = all ? Tensor{all.data + from * all.stride, all.type, right, all.cols, all.stride} : Tensor(),
         .tokens = own.tokens,
         .tables = item.tables,
         .waits = item.samples && item.begin >= static_cast<int>(item.asked->prompt.size())});
  }
  drafter_->observe(observed_);
  for (size_t i = 0; i < launch.used; ++i) sampled.rows[i].entries = observed_[i].entries;
}

void Runner::run(Launch& launch, Sampled& sampled) {
  auto begin = std::chrono::steady_clock::now();
  for (RequestId request : launch.forget) {
    answers_.erase(answers_.lower_bound({request, 0}), answers_.lower_bound({request + 1, 0}));
    if (drafter_ != nullptr) drafter_->forget(request);
  }
  launch.forget.clear();
  sampled.rows.assign(launch.used, {});
  sampled.draft_seconds = 0;
  const Executor::Counters before = executor_.counters();
  executor_.move_pages(launch.moves, second_, sampled.failed_moves);
  branches_.begin_step();
  draft(launch, sampled);
  if (branches_.size() > 0) executor_.copy_pages(branches_.before());
  chunks_.clear();
  for (size_t i = 0; i < launch.used; ++i) {
    const Launch::Item& item = launch.items[i];
    const Answer& own = answer(item);
    std::span<const Token> tokens = own.filling ? own.filling->tokens() : own.tokens;
    CHECK(static_cast<int>(tokens.size()) >= item.begin + item.rows(), "tokens {} to {} of {}", item.begin,
          item.begin + item.rows(), tokens.size());
    chunks_.push_back({.tokens = tokens.subspan(static_cast<size_t>(item.begin), static_cast<size_t>(item.rows())),
                       .begin = item.begin,
                       .tables = item.tables,
                       .wanted = item.wanted(),
                       .whole = fills_,
                       .adapter = item.asked->adapter_place,
                       .strength = item.asked->adapter_strength});
    for (int branch = 0; branch < item.branches; ++branch) {
      const Branch& one = branch_of(item, branch);
      Chunk chunk = chunks_.back();
      chunk.tokens = one.tokens;
      chunk.begin = one.begin;
      chunk.tables = one.tables;
      chunk.wanted = static_cast<int32_t>(one.tokens.size()) - 1;
      chunks_.push_back(chunk);
    }
  }
  if (!chunks_.empty()) {
    int64_t rows = 0;
    for (const Chunk& chunk : chunks_) rows += chunk.wanted;
    if (fills_) {
      run_whole(launch, sampled);
    } else if (executor_.picks() && all_greedy(launch)) {
      run_greedy(launch, sampled);
    } else if (executor_.picks() && executor_.takes_shortlists(rows)) {
      run_shortlist(launch, sampled);
    } else {
      run_whole(launch, sampled);
    }
  }
  keep_branches(launch, sampled);
  observe(launch, sampled);
  const Executor::Counters& after = executor_.counters();
  sampled.shortlist_rows = after.shortlisted - before.shortlisted;
  sampled.whole_rows = after.whole - before.whole;
  sampled.unsettled_rows = after.unsettled - before.unsettled;
  executor_.copy_pages(launch.snapshots);
  sampled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace millrace
