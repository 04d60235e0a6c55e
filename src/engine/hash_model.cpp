#include "engine/hash_model.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "cache/planted.h"

namespace millrace {
namespace {

constexpr uint64_t kPoison = 0xDEADDEADDEADDEAD;
constexpr uint64_t kFirstState = 1;

uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15;
  return a ^ (a >> 29);
}

uint64_t start_of(const Identity& root, int position, Token token) {
  uint64_t salt = 0;
  for (size_t i = 0; i < 8; ++i) salt = salt << 8 | root.bytes[i];
  return mix(mix(salt, static_cast<uint64_t>(position)), static_cast<uint64_t>(token) + 1);
}

// What a head keeps of a token, made of the stream of the one before; the first has none.
constexpr uint64_t kNoEntry = 0;
uint64_t entry_of(uint64_t stream, Token token) { return mix(mix(stream, 0xE000), static_cast<uint64_t>(token) + 1); }

uint64_t kept_in(uint64_t kept, int group) { return mix(kept, 0x1000 + static_cast<uint64_t>(group)); }

// Whether a query at `position` reads what a group keeps of an earlier one.
bool reads(const CacheGroup& group, int position, int before) {
  return !group.windowed() || before > position - group.spec.window || before < group.spec.kept;
}

}  // namespace

uint64_t Dice::next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

HashModel::HashModel(const CacheLayout& layout, int pages, int second_pages, int vocab, int spare_pages, int look_back)
    : layout_(layout), vocab_(vocab), look_back_(look_back), branches_(pages, spare_pages) {
  page_cells_ = static_cast<size_t>(layout.node_tokens);
  if (look_back > 0) beside_ = layout.layers.back().group;
  memory_.assign(page_cells_ * static_cast<size_t>(pages + spare_pages), kPoison);
  second_.assign(page_cells_ * static_cast<size_t>(second_pages), kPoison);
}

size_t HashModel::place(int group, PageId page, int offset) const {
  CHECK(page >= 0 && (static_cast<size_t>(page) + 1) * page_cells_ <= memory_.size(), "page {} of group {}", page,
        group);
  return static_cast<size_t>(page) * page_cells_ + static_cast<size_t>(offset);
}

void HashModel::move(const PageMove& move) {
  auto page = [&](std::vector<uint64_t>& store, PageId id) {
    return store.begin() + static_cast<ptrdiff_t>(page_cells_) * id;
  };
  auto from = page(move.kind == PageMove::Kind::in ? second_ : memory_, move.from);
  auto to = page(move.kind == PageMove::Kind::out ? second_ : memory_, move.to);
  std::copy_n(from, page_cells_, to);
}

Sampled HashModel::run(const StepPlan& plan, const HashFaults& faults, Dice& dice, const Guess& guess) {
  Sampled sampled;
  for (const PageMove& planned : plan.moves) {
    bool failed = planned.kind != PageMove::Kind::copy && dice.chance(faults.failed_move);
    if (!failed) move(planned);
    sampled.failed_moves.push_back(failed);
  }
  branches_.begin_step();
  for (const Work& work : plan.work) {
    Guesses guesses;
    if (work.drafts > 0 && guess) guess(work, work.begin + work.count - work.drafts, guesses);
    std::vector<Stream> right;
    if (beside_ >= 0) make_entries_before(work, dice);
    SampledRow row = run_work(work, guesses, right);
    if (beside_ >= 0) row.entries = make_entries_after(work, right, dice);
    if (work.samples && dice.chance(faults.broken_row)) row = {.error = error(Code::internal, "broken row")};
    if (!row.tokens.empty()) chosen_[work.sequence->id] = row.tokens.back();
    sampled.rows.push_back(std::move(row));
  }
  for (const PageCopy& copy : plan.snapshots) move({PageMove::Kind::copy, copy.from, copy.to});
  return sampled;
}

std::vector<uint64_t> HashModel::run_path(const Work& work, std::span<const PageTable> tables, int begin,
                                          std::span<const Token> tokens) {
  std::vector<uint64_t> kept;
  for (const Token token : tokens)
    kept.push_back(compute(work.sequence->pages.root, tables, begin + static_cast<int>(kept.size()), token));
  return kept;
}

void HashModel::run_branches(const Work& work, Token last, const Guesses& guesses,
                             std::vector<std::vector<uint64_t>>& kept) {
  for (const std::vector<Token>& path : guesses.others) {
    std::vector<Token> tokens = {last};
    tokens.insert(tokens.end(), path.begin(), path.end());
    const size_t copied = branches_.before().size();
    if (!branches_.open(work.begin, tokens, work.sequence->pages.tables)) return;
    for (const PageCopy& copy : branches_.before().subspan(copied)) move({PageMove::Kind::copy, copy.from, copy.to});
    const Branch& branch = branches_.at(branches_.size() - 1);
    kept.push_back(run_path(work, branch.tables, branch.begin, branch.tokens));
  }
}

void HashModel::make_entries(const Work& work, int upto) {
  Beside& beside = besides_[work.sequence->id];
  const PageTable& table = work.sequence->pages.tables[static_cast<size_t>(beside_)];
  for (int position = beside.line.whole(); position < upto; ++position) {
    const PageSlot slot = table.at(position);
    cell(beside_, slot.page, slot.offset) =
        position == 0 ? kNoEntry : entry_of(beside.streams[position - 1].kept, beside.streams[position].token);
  }
  beside.line.made(upto);
}

// A head that guesses makes the entries it lacks, the last known token's among them; those of guesses are not to stay.
void HashModel::make_entries_before(const Work& work, Dice& dice) {
  Beside& beside = besides_[work.sequence->id];
  beside.line.step(work.residence, work.begin, look_back_);
  if (work.drafts == 0 || work.count - work.drafts != 1 || !beside.line.has(work.begin - 1) || dice.chance(0.2)) return;
  const bool told = work.begin < work.sequence->known();
  beside.streams[work.begin].token =
      told ? work.sequence->tokens[static_cast<size_t>(work.begin)] : chosen_[work.sequence->id];
  make_entries(work, work.begin + 1);
  for (int guess = 1; guess < work.drafts; ++guess) {
    const PageSlot slot = work.sequence->pages.tables[static_cast<size_t>(beside_)].at(work.begin + guess);
    cell(beside_, slot.page, slot.offset) = dice.next();
  }
  if (PLANTED(guess_counts_as_made)) beside.line.made(work.begin + work.drafts);
}

int HashModel::make_entries_after(const Work& work, std::span<const Stream> right, Dice& dice) {
  constexpr int kRoom = 1 << 20, kLazy = 6;
  Beside& beside = besides_[work.sequence->id];
  beside.line.step(work.residence, work.begin, look_back_);
  for (size_t i = 0; i < right.size(); ++i) beside.streams[work.begin + static_cast<int>(i)] = right[i];
  beside.line.came(static_cast<int>(right.size()), kRoom);
  const bool waits = work.samples && work.begin >= work.sequence->prompt();
  if (!waits || beside.line.end() - beside.line.whole() > kLazy || dice.chance(0.2))
    make_entries(work, beside.line.end());
  return beside.line.whole();
}

SampledRow HashModel::run_work(const Work& work, const Guesses& guesses, std::vector<Stream>& right) {
  const Sequence& sequence = *work.sequence;
  const int known = work.count - work.drafts;
  std::vector<Token> tokens;
  for (int position = work.begin; position < work.begin + known; ++position)
    tokens.push_back(position < sequence.known() ? sequence.tokens[static_cast<size_t>(position)]
                                                 : chosen_[sequence.id]);
  const Token last = tokens.back();
  tokens.insert(tokens.end(), guesses.first.begin(), guesses.first.end());
  const size_t first_branch = branches_.size();
  std::vector<std::vector<uint64_t>> others;
  if (known == 1) run_branches(work, last, guesses, others);
  const std::vector<uint64_t> own = run_path(work, sequence.pages.tables, work.begin, tokens);
  SampledRow row;
  row.drafted = row.first_drafted = static_cast<int>(guesses.first.size());
  for (size_t i = 0; i < others.size(); ++i)
    row.drafted = std::max(row.drafted, static_cast<int>(others[i].size()) - 1);
  for (int i = 0; i < known; ++i) right.push_back({own[static_cast<size_t>(i)], tokens[static_cast<size_t>(i)]});
  if (!work.samples) return row;
  std::span<const Token> path = guesses.first;
  std::span<const uint64_t> kept = std::span(own).subspan(static_cast<size_t>(known) - 1);
  std::optional<size_t> branch;
  for (size_t depth = 0;; ++depth) {
    row.tokens.push_back(
        choose_next(sequence, kept[depth], work.begin + known + static_cast<int>(depth), static_cast<int>(depth)));
    const bool goes_on = depth < path.size() && path[depth] == row.tokens.back();
    row.along += goes_on && !branch;
    if (goes_on) continue;
    auto agrees = [&](const std::vector<Token>& other) {
      return other.size() >= row.tokens.size() && std::equal(row.tokens.begin(), row.tokens.end(), other.begin());
    };
    const auto opened = guesses.others.begin() + static_cast<ptrdiff_t>(others.size());
    const auto other = std::find_if(guesses.others.begin(), opened, agrees);
    if (other == opened) break;
    branch = static_cast<size_t>(other - guesses.others.begin());
    path = *other;
    kept = others[*branch];
  }
  for (size_t depth = 1; depth < row.tokens.size(); ++depth) right.push_back({kept[depth], row.tokens[depth - 1]});
  if (!branch) return row;
  for (const PageCopy& copy :
       branches_.keep(branches_.at(first_branch + *branch), static_cast<int>(row.tokens.size()), sequence.pages.tables))
    move({PageMove::Kind::copy, copy.from, copy.to});
  return row;
}

// The state is kept by position, so that choosing again after a step that was thrown away does not move it twice.
Token HashModel::choose_next(const Sequence& sequence, uint64_t kept, int position, int guesses) {
  std::vector<uint64_t>& states = states_[sequence.id];
  if (states.empty()) {
    states.push_back(kFirstState);
    const auto& resumed = sequence.asked->resumed;
    if (!resumed.empty()) {
      for (Token told : resumed[static_cast<size_t>(sequence.choice)].tokens)
        states.push_back(mix(states.back(), static_cast<uint64_t>(told)));
    }
  }
  auto at = static_cast<size_t>(position - sequence.prompt());
  if (PLANTED(state_moved_twice)) at = states.size() - 1;
  CHECK(at < states.size(), "token {} of an answer with {} chosen", at, states.size() - 1);
  const size_t looked_at = PLANTED(state_of_wrong_row) ? at - static_cast<size_t>(guesses) : at;
  Token token = choose(kept, states[looked_at], *sequence.asked, sequence.choice, position);
  states.resize(at + 1);
  states.push_back(mix(states[at], static_cast<uint64_t>(token)));
  return token;
}

// Reads what every group keeps of the positions before, then writes its own.
uint64_t HashModel::compute(const Identity& root, std::span<const PageTable> tables, int position, Token token) {
  uint64_t kept = start_of(root, position, token);
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    const PageTable& table = tables[index];
    int g = static_cast<int>(index);
    if (g == beside_) continue;
    if (group.recurrent()) {
      kept = mix(kept, position == 0 ? 0 : cell(g, table[0], 0));
      continue;
    }
    for (int before = 0; before < position; ++before) {
      if (!reads(group, position, before)) continue;
      PageSlot slot = table.at(before);
      kept = mix(kept, cell(g, slot.page, slot.offset));
    }
  }
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const PageTable& table = tables[index];
    if (static_cast<int>(index) == beside_) continue;
    bool recurrent = layout_.groups[index].recurrent();
    PageSlot slot = recurrent ? PageSlot{table[0], 0} : table.at(position);
    cell(static_cast<int>(index), slot.page, slot.offset) = kept_in(kept, static_cast<int>(index));
  }
  return kept;
}

Token HashModel::choose(uint64_t kept, uint64_t state, const Request& request, int choice, int position) const {
  uint64_t hash = mix(mix(mix(kept, state), request.sampling.seed),
                      (static_cast<uint64_t>(choice) << 32) + static_cast<uint64_t>(position));
  return static_cast<Token>(mix(hash, 7) % static_cast<uint64_t>(vocab_));
}

HashAnswer HashModel::alone(const Request& request, int choice) const {
  HashAnswer answer;
  answer.tokens = request.prompt;
  uint64_t state = kFirstState;
  for (size_t position = 0; position < answer.tokens.size(); ++position) {
    int p = static_cast<int>(position);
    uint64_t kept = start_of(request.root, p, answer.tokens[position]);
    for (size_t index = 0; index < layout_.groups.size(); ++index) {
      const CacheGroup& group = layout_.groups[index];
      if (static_cast<int>(index) == beside_) continue;
      if (group.recurrent()) {
        kept = mix(kept, p == 0 ? 0 : kept_in(answer.kept.back(), static_cast<int>(index)));
        continue;
      }
      for (int before = 0; before < p; ++before)
        if (reads(group, p, before))
          kept = mix(kept, kept_in(answer.kept[static_cast<size_t>(before)], static_cast<int>(index)));
    }
    answer.kept.push_back(kept);
    bool prompt_ends = position + 1 == answer.tokens.size();
    bool more = static_cast<int>(answer.tokens.size()) < static_cast<int>(request.prompt.size()) + request.max_tokens;
    if (!prompt_ends || !more) continue;
    Token last = answer.tokens.back();
    bool stopped = answer.tokens.size() > request.prompt.size() &&
                   std::find(request.stop_tokens.begin(), request.stop_tokens.end(), last) != request.stop_tokens.end();
    if (stopped) continue;
    answer.tokens.push_back(choose(kept, state, request, choice, p + 1));
    state = mix(state, static_cast<uint64_t>(answer.tokens.back()));
  }
  return answer;
}

uint64_t HashModel::expected(const HashAnswer& truth, int position, int group) const {
  const auto at = static_cast<size_t>(position);
  if (group != beside_) return kept_in(truth.kept[at], group);
  return position == 0 ? kNoEntry : entry_of(truth.kept[at - 1], truth.tokens[at]);
}

Result<void> HashModel::compare(const SequencePages& pages, const HashAnswer& truth, int tokens) const {
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    const PageTable& table = pages.tables[index];
    int g = static_cast<int>(index);
    if (group.recurrent()) {
      if (tokens == 0 || pages.state_at != tokens) continue;  // a step in flight has moved it on
      if (memory_[place(g, table[0], 0)] != kept_in(truth.kept[static_cast<size_t>(tokens) - 1], g))
        return error(Code::internal, "sequence {}: its state at {} is wrong", pages.owner, tokens);
      continue;
    }
    for (int position = 0; position < tokens; ++position) {
      PageSlot slot = table.at(position);
      const int entry = position / group.page_tokens;
      if (entry >= table.pinned() && entry < table.first()) continue;
      if (slot.page == kNoPage || memory_[place(g, slot.page, slot.offset)] != expected(truth, position, g))
        return error(Code::internal, "sequence {}: position {} of group {} is wrong (page {})", pages.owner, position,
                     g, slot.page);
    }
  }
  return {};
}

void HashModel::poison_free(const KvCache& cache) {
  auto poison = [&](std::vector<uint64_t>& store, const PagePool& pool) {
    for (PageId page = 0; page < pool.pages(); ++page)
      if (pool.holders(page) == 0)
        std::fill_n(store.begin() + static_cast<ptrdiff_t>(page_cells_) * page, page_cells_, kPoison);
  };
  poison(memory_, cache.pool());
  poison(second_, cache.second());
}

}  // namespace millrace
