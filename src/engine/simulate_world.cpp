#include "engine/simulate_world.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace millrace {

World::World(uint64_t seed) : dice(seed * 0x9E3779B97F4A7C15 + 1) {
  longest = dice.roll(20, 60);
  make_layout();
  vocab = dice.roll(5, 60);
  limits.context = 2 * longest;
  limits.max_sequences = dice.roll(1, 12);
  limits.step_tokens = limits.max_sequences + dice.roll(0, dice.chance(0.5) ? 8 : 60);
  limits.max_waiting = dice.roll(8, 60);
  limits.max_choices = 4;
  limits.max_drafts = dice.chance(0.4) ? dice.roll(1, 4) : 0;
  limits.page_move_seconds = dice.chance(0.3) ? 1.0 : 1e-6;
  KvCache sized(layout, 0, 0);
  int least = sized.most_pages(longest, limits.step_tokens, limits.max_drafts > 0);
  pages = least + dice.roll(0, dice.chance(0.7) ? least : 4 * least);
  second_pages = dice.chance(0.7) ? dice.roll(1, pages) : 0;
  policy = std::array{"fcfs", "fcfs", "priority", "slo", "static"}[static_cast<size_t>(dice.roll(0, 4))];
  overlap = dice.chance(0.5);
  faults.failed_move = dice.chance(0.5) ? 0.05 : 0;
  faults.broken_row = dice.chance(0.1) ? 0.002 : 0;
  cancel_chance = dice.chance(0.5) ? 0.03 : 0.005;
  arrival_chance = dice.chance(0.3) ? 0.5 : 0.12;
  many_chance = dice.chance(0.5) ? 0.2 : 0.03;
  slow_chance = dice.chance(0.3) ? 0.05 : 0;
  tenants = dice.roll(1, 4);
  least_requests = dice.roll(30, 45);
  for (int count = dice.roll(1, 4); count > 0; --count) beginnings_.push_back(random_tokens(dice.roll(1, longest / 2)));
  if (limits.max_drafts > 1 && Branches::fits(layout) && dice.chance(0.7)) branches = dice.roll(1, 3);
  spare_pages = branches * limits.max_sequences * Branches::pages_for(layout, limits.max_drafts);
}

void World::make_layout() {
  CacheSpec paged{CacheKind::paged, {64, 64}, 0}, latent{CacheKind::latent, {128, 0}, 0};
  CacheSpec windowed{CacheKind::windowed, {64, 64}, dice.roll(1, 20)};
  CacheSpec keeps = windowed;
  keeps.kept = 1 + windowed.window / 3;
  std::vector<CacheSpec> layers;
  int kinds = dice.roll(0, 13);
  LayoutOptions options{.page_tokens = 1 << dice.roll(0, 3), .snapshot_tokens = dice.roll(2, 12)};
  CacheSpec recurrent{CacheKind::recurrent, {64, 128 * options.page_tokens}, 0};
  if (kinds < 5) layers = {paged, paged};
  if (kinds == 5) layers = {latent};
  if (kinds == 6) layers = {paged, windowed};
  if (kinds == 7) layers = {windowed, windowed};
  if (kinds == 8) layers = {paged, recurrent, paged};
  if (kinds == 9) layers = {recurrent, windowed, paged, windowed};
  if (kinds == 10) layers = {latent, windowed, latent, windowed, windowed};
  if (kinds == 11) layers = {paged, {CacheKind::recurrent, {1024, int64_t{4096} * options.page_tokens}, 0, 4}};
  if (kinds == 12) layers = {keeps, keeps};
  if (kinds == 13) layers = {keeps, paged, windowed};
  const bool states = kinds == 8 || kinds == 9 || kinds == 11;
  const bool head = !states && dice.chance(0.4);  // keeps a layer beside the model's
  if (head) layers.push_back({CacheKind::paged, {60, 64}, 0});
  auto planned = plan_layout(layers, options);
  CHECK(planned.ok(), "{}", planned.error().message);
  layout = std::move(*planned);
  look_back = head ? 1 : 0;
}

std::vector<Token> World::random_tokens(int count) {
  std::vector<Token> tokens;
  for (; count > 0; --count) tokens.push_back(dice.roll(0, vocab - 1));
  return tokens;
}

int World::arrivals(bool idle) {
  if (dice.chance(0.02)) return dice.roll(2, 8);  // all at once
  return idle || dice.chance(arrival_chance) ? 1 : 0;
}

Request World::request() {
  Request made;
  int tenant = dice.roll(0, tenants - 1);
  int answer = dice.chance(0.1) ? 1 : dice.roll(1, std::max(1, longest / 2));
  int room = std::max(1, longest - answer);
  if (!stories_.empty() && dice.chance(0.25)) {
    // Somebody goes on with what was answered before.
    const Story& story = stories_[static_cast<size_t>(dice.roll(0, static_cast<int>(stories_.size()) - 1))];
    made.prompt = story.tokens;
    tenant = story.tenant;
  } else if (dice.chance(0.7)) {
    made.prompt = beginnings_[static_cast<size_t>(dice.roll(0, static_cast<int>(beginnings_.size()) - 1))];
  }
  std::vector<Token> more = random_tokens(dice.chance(0.2) ? 0 : dice.roll(0, room));
  made.prompt.insert(made.prompt.end(), more.begin(), more.end());
  if (static_cast<int>(made.prompt.size()) > room) made.prompt.resize(static_cast<size_t>(room));
  if (made.prompt.empty()) made.prompt = random_tokens(1);
  made.max_tokens = answer;
  if (dice.chance(0.02)) made.max_tokens = limits.context;  // never fits
  if (dice.chance(many_chance)) made.choices = dice.roll(2, limits.max_choices);
  if (dice.chance(0.3)) made.stop_tokens = {0};
  made.sampling.seed = dice.next() % 3;
  made.tenant = fmt::format("tenant {}", tenant);
  made.root.bytes[0] = static_cast<uint8_t>(tenant + 1);
  made.priority = dice.roll(0, 2);
  if (dice.chance(0.5)) made.targets = {dice.roll(1, 100) * 0.01, dice.roll(1, 100) * 1e-3};
  return made;
}

double World::step_seconds(const StepPlan& plan) {
  double seconds = 1e-3 + 1e-4 * plan.tokens + 1e-7 * static_cast<double>(plan.context) +
                   1e-5 * static_cast<double>(plan.work.size());
  return dice.chance(slow_chance) ? 100 * seconds : seconds;
}

void World::remember(const std::vector<Token>& tokens, const Request& request) {
  if (stories_.size() > 8) stories_.erase(stories_.begin());
  stories_.push_back({tokens, request.root.bytes[0] - 1});
}

void WorldDrafter::propose(const Work& work, int at, HashModel::Guesses& out) {
  auto found = truth_.find(work.sequence->request);
  if (found == truth_.end()) return;
  const auto& tokens = found->second[static_cast<size_t>(work.sequence->choice)].tokens;
  const int rows = world_.dice.roll(0, work.drafts);
  int count = world_.branches > 0 ? world_.dice.roll(0, rows) : rows;
  const int left = rows - count;
  const auto first = static_cast<size_t>(at);
  for (; count > 0; --count, ++at) {
    bool tells = at < static_cast<int>(tokens.size()) && world_.dice.chance(0.7);
    out.first.push_back(tells ? tokens[static_cast<size_t>(at)] : world_.dice.roll(0, world_.vocab - 1));
  }
  if (world_.branches > 0) branch_off(tokens, first, left, out);
}

// Other ways, of which one may be the truth.
void WorldDrafter::branch_off(const std::vector<Token>& truth, size_t at, int rows, HashModel::Guesses& out) {
  for (int count = world_.dice.roll(0, world_.branches); count > 0 && rows > 1; --count) {
    std::vector<Token>& path = out.others.emplace_back();
    for (int length = world_.dice.roll(1, rows - 1); length > 0; --length) {
      const size_t position = at + path.size();
      const bool tells = position < truth.size() && world_.dice.chance(0.8);
      path.push_back(tells ? truth[position] : world_.dice.roll(0, world_.vocab - 1));
    }
    rows -= static_cast<int>(path.size()) + 1;
  }
}

namespace {

class DiceControl : public DraftControl {
 public:
  explicit DiceControl(World& world) : world_(world) {}
  void assign(std::span<Seat> seats, int, int, int spare) override {
    for (Seat& seat : seats) {
      seat.room = world_.dice.roll(0, std::min(seat.limit, spare));
      spare -= seat.room;
    }
  }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<DraftControl> world_control(World& world) {
  if (world.limits.max_drafts == 0) return nullptr;
  if (world.dice.chance(0.25))
    return world.dice.chance(0.5) ? paying_drafts(world.limits.max_drafts) : paying_trees(world.limits.max_drafts, 2);
  return std::make_unique<DiceControl>(world);
}

}  // namespace millrace
