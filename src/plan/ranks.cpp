#include "plan/ranks.h"

#include <algorithm>
#include <utility>

#include "backend/ranks/ops.h"
#include "model/check_backend.h"

namespace millrace {
namespace {

// A rank among others that are not there: nothing moves, and everything that would is counted.
class CountingComm final : public Comm {
 public:
  CountingComm(int rank, int ranks, RankCut cut) : rank_(rank), ranks_(ranks), cut_(cut) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  const char* name() const override { return "counted"; }
  void broadcast(std::vector<std::byte>&) override {}

  RankCount take() { return std::exchange(count_, RankCount()); }

 protected:
  void move(const Movement& movement) override {
    const int64_t rows = movement.row_count();
    ++count_.exchanges;
    if (cut_ != RankCut::layers && !movement.owners.empty()) {
      count_.embedded += rows * movement.rows.cols * static_cast<int64_t>(sizeof(float));
      return;
    }
    for (int r = 0; r < ranks_; ++r) (r == rank_ ? count_.sent : count_.received) += movement.bytes(r, 0, rows);
  }

 private:
  int rank_, ranks_;
  RankCut cut_;
  RankCount count_;
};

Ceilings share_of(Ceilings all, int here) {
  for (double* each : {&all.read_bytes, &all.grouped, &all.f8, &all.f16, &all.bf16, &all.f32, &all.attend})
    *each /= here;
  return all;
}

}  // namespace

struct RanksPlanner::Member {
  std::shared_ptr<CountingComm> comm;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

RanksPlanner::RanksPlanner(RanksPlanner&&) noexcept = default;
RanksPlanner& RanksPlanner::operator=(RanksPlanner&&) noexcept = default;
RanksPlanner::~RanksPlanner() = default;

RanksPass& RanksPass::operator+=(const RanksPass& other) {
  floor += other.floor;
  exchanges += other.exchanges;
  sent += other.sent;
  moved += other.moved;
  link_seconds += other.link_seconds;
  return *this;
}

Result<RanksPlanner> RanksPlanner::create(const ModelSpec& spec, const FormOf& form_of, const Backend* like,
                                          const RanksChoice& choice) {
  CHECK(choice.ranks >= 1 && choice.here >= 1, "{} ranks, {} here", choice.ranks, choice.here);
  RanksPlanner planner;
  planner.choice_ = choice;
  for (int rank = 0; rank < choice.ranks; ++rank) {
    Member& member = planner.members_.emplace_back();
    member.comm = std::make_shared<CountingComm>(rank, choice.ranks, choice.cut);
    TRY(member.backend, make_rank_backend(make_trace_backend(like), member.comm, choice.cut));
    TRY_VOID(check_backend(spec, *member.backend));
    TRY(member.model, Model::outline(spec, form_of, *member.backend));
  }
  return planner;
}

Result<std::vector<MemoryPlan>> RanksPlanner::memory(const ExecutorOptions& options) const {
  std::vector<MemoryPlan> all;
  for (const Member& member : members_) {
    TRY(const Executor::Plan plan, Executor::plan(*member.model, *member.backend, options));
    all.push_back({.weights = member.model->weight_bytes(),
                   .kv = plan.kv_bytes,
                   .workspace = plan.workspace_bytes,
                   .staging = plan.staging_bytes});
  }
  return all;
}

RankCount RanksPlanner::count(int rank, const KvForm& kv, std::span<const PassRows> rows) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  auto counted = std::make_unique<CallOps>(nullptr);
  const CallOps& calls = *counted;
  std::unique_ptr<Ops> ops = std::move(counted);
  if (choice_.cut != RankCut::layers) ops = std::make_unique<RankOps>(std::move(ops), *member.comm, choice_.cut, false);
  member.comm->take();
  run_pass(*ops, *member.model, kv, rows);
  RankCount count = member.comm->take();
  ++count.exchanges;
  count.calls = calls.calls();
  count.records = calls.records();
  return count;
}

RanksPass RanksPlanner::pass(const KvForm& kv, std::span<const PassRows> rows, const Ceilings& ceilings,
                             const Link& link) const {
  const bool together = choice_.cut != RankCut::layers;
  // While one works on its layers the others wait, so it has the machine.
  const Ceilings share = together ? share_of(ceilings, choice_.here) : ceilings;
  RanksPass pass;
  for (int rank = 0; rank < choice_.ranks; ++rank) {
    const RankCount count = this->count(rank, kv, rows);
    const Floor floor = floor_of(count.records, share);
    if (!together) {
      pass.floor += floor;
    } else if (floor.seconds > pass.floor.seconds) {
      pass.floor = floor;
    }
    const double sent = count.likely_sent(choice_.ranks);
    const double all = static_cast<double>(count.sent + count.received + count.embedded);
    pass.exchanges = std::max(pass.exchanges, static_cast<double>(count.exchanges));
    pass.sent = std::max(pass.sent, sent);
    pass.moved = std::max(pass.moved, together ? all - sent : all);
  }
  if (choice_.ranks == 1) pass.exchanges = pass.sent = pass.moved = 0;
  pass.link_seconds = link.of(pass.exchanges, pass.moved);
  return pass;
}

}  // namespace millrace
