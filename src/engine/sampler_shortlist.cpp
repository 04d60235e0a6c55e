// Choosing from part of a row (backend/shortlist.h): what to ask for, and the same steps over what came, each of them
// only where what is missing cannot matter.
#include <algorithm>
#include <cfloat>

#include "engine/sampler_run.h"

namespace millrace {
namespace {

constexpr int32_t kMostListed = 512;   // longer lists are seldom asked for and do not always fit
constexpr double kCoolest = 1e-6;      // below, a race is not worth being careful about
constexpr size_t kPunishedByDry = 32;  // a guess; if it was more, the list may not settle it
constexpr float kEverything = std::numeric_limits<float>::infinity();

size_t looked_back(int32_t window, size_t position) {
  return window < 0 ? position : std::min(position, static_cast<size_t>(window));
}

// What the caller, the penalties and DRY may change: they must only ever lower logits, and those of few tokens.
struct Changes {
  bool any = false, only_lower = true;
  size_t tokens = 0;  // at most, or about
};
Changes changes_of(const Sampling& s, size_t position, std::span<const Token> banned_now) {
  Changes changes;
  changes.tokens = s.bias.size() + s.banned.size() + banned_now.size();
  changes.only_lower = std::all_of(s.bias.begin(), s.bias.end(), [](const LogitBias& bias) { return bias.bias <= 0; });
  if (s.penalty_window != 0 && (s.repetition != 1 || s.presence != 0 || s.frequency != 0)) {
    changes.only_lower &= s.repetition >= 1 && s.presence >= 0 && s.frequency >= 0;
    changes.tokens += looked_back(s.penalty_window, position);
  }
  if (s.dry_multiplier > 0) changes.tokens += std::min(kPunishedByDry, looked_back(s.dry_window, position));
  changes.any = changes.tokens > 0;
  return changes;
}

// Only these two steps can remove the likeliest token.
bool top_stays(const Sampling& s) { return s.typical >= 1 && s.xtc_probability <= 0; }

bool truncates_by_count(const Sampling& s, int32_t vocab) { return s.top_k > 0 && s.top_k < vocab; }

ShortlistAsk list_of(size_t count) {
  if (count > static_cast<size_t>(kMostListed)) return {.kind = ShortlistKind::whole};
  return {.kind = ShortlistKind::list, .count = static_cast<int32_t>(count), .depth = kEverything};
}

}  // namespace

ShortlistAsk Sampler::shortlist_ask(int32_t vocab, size_t position, std::span<const Token> banned_now) const {
  const Sampling& s = sampling_;
  const ShortlistAsk whole = {.kind = ShortlistKind::whole};
  const Changes changes = changes_of(s, position, banned_now);
  if (vocab > kShortlistCols || !changes.only_lower) return whole;
  if (s.temperature <= 0 && (s.mirostat == 2 || top_stays(s))) {
    return changes.any ? list_of(1 + changes.tokens) : ShortlistAsk{.kind = ShortlistKind::best};
  }
  if (s.mirostat == 2 || s.top_n_sigma > 0) return whole;
  if (truncates_by_count(s, vocab)) return list_of(static_cast<size_t>(s.top_k) + changes.tokens);
  if (s.typical < 1) return whole;
  if (s.top_p >= 1 && s.min_p <= 0) {
    const bool races = s.xtc_probability <= 0 || s.xtc_threshold > 0.5;
    if (!races || changes.any || s.temperature < kCoolest) return whole;
    return {.kind = ShortlistKind::race,
            .scale = static_cast<float>(1.4426950408889634 / s.temperature),
            .seed = s.seed,
            .choice = choice_,
            .position = static_cast<uint32_t>(position)};
  }
  if (s.top_p < 1 && changes.any) return whole;
  ShortlistAsk list = {.kind = ShortlistKind::list, .depth = kEverything};
  if (s.top_p < 1) {
    list.mass = static_cast<float>(s.top_p);
    // All tokens together that are further down weigh less than what top-p leaves out.
    list.depth = static_cast<float>(std::log(vocab / (1 - s.top_p)) + 0.01);
  }
  // Changes may take the likeliest away, and then the bar lies lower.
  if (s.min_p > 0) list.depth = std::min(list.depth, static_cast<float>(0.01 - std::log(s.min_p) + 4 * changes.any));
  return list;
}

bool SampleRun::adjust_shortlist(const Shortlisted& row, bool changes, std::span<const Token> context,
                                 std::span<const Token> banned_now) {
  std::vector<float>& own = scratch_.logits_;
  list_.clear();
  for (const ShortlistToken& token : row.list()) {
    if (token.id < 0 || token.id >= scratch_.vocab()) return false;
    own[static_cast<size_t>(token.id)] = token.logit;
    list_.push_back({token.id, token.logit});
  }
  if (changes) {
    change(context, banned_now);
    for (Candidate& candidate : list_) candidate.logit = own[static_cast<size_t>(candidate.id)];
    std::erase_if(list_, [](const Candidate& candidate) { return candidate.logit == kNever; });
  }
  if (list_.empty()) return false;
  dense_ = false;
  sort();
  largest_ = list_.front();
  return true;
}

// As keep_top_p, with the sum over all tokens known to a bound. `closed`: everything that is kept is in the list.
bool SampleRun::keep_top_p_shortlist(const Shortlisted& row, bool& closed) {
  const double wanted = s_.top_p * row.sum, doubt = kShortlistSumError * row.sum;
  double so_far = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    so_far += weight(list_[i].logit);
    if (std::abs(so_far - wanted) <= doubt) return false;
    if (so_far < wanted) continue;
    list_.resize(i + 1);
    closed = true;
    return true;
  }
  return true;
}

bool SampleRun::truncate_shortlist(const Shortlisted& row, const Draw& draw) {
  bool closed = row.floor <= -FLT_MAX;  // then all are here
  if (truncates_by_count(s_, scratch_.vocab())) {
    const size_t k = static_cast<size_t>(s_.top_k);
    if (list_.size() > k) list_.resize(k);
    if (!closed && (list_.size() < k || list_.back().logit < row.floor)) return false;
    truncate_further(draw);
    return true;
  }
  if (s_.top_p < 1 && !keep_top_p_shortlist(row, closed)) return false;
  if (!closed && (s_.min_p <= 0 || min_p_bar() < row.floor)) return false;
  truncate_last(draw);
  return true;
}

std::optional<Token> Sampler::sample_shortlist(const ShortlistAsk& ask, const Shortlisted& row,
                                               std::span<const Token> context, SamplerScratch& scratch,
                                               std::span<const Token> banned_now) const {
  const Sampling& s = sampling_;
  if (row.best < 0 || !(std::abs(row.largest) <= FLT_MAX)) return {};
  if (ask.kind == ShortlistKind::best) return row.best;
  if (!row.fits) return {};
  SampleRun run(s, scratch);
  const Draw draw{s.seed, choice_, static_cast<uint32_t>(context.size()), 0};
  const bool races = ask.kind == ShortlistKind::race;
  if (!run.adjust_shortlist(row, changes_of(s, context.size(), banned_now).any, context, banned_now)) return {};
  if (races) {
    run.set_largest({row.best, row.largest});
  } else if (!run.top_is_certain(row)) {
    return {};
  } else if (s.temperature <= 0 && (s.mirostat == 2 || top_stays(s))) {
    return run.greedy();
  } else if (!run.truncate_shortlist(row, draw)) {
    return {};
  }
  if (s.temperature <= 0) return run.greedy();
  // A random number of exactly zero arrives at once, however unlikely its token: leave that to the whole row.
  const SampleRun::Finish finish = run.race_list(draw);
  if (!(finish.time > 0) || finish.time == std::numeric_limits<double>::infinity()) return {};
  return finish.winner;
}

}  // namespace millrace
