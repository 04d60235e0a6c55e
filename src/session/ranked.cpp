#include "session/ranked.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/cuda/nccl_comm.h"
#include "backend/mpi/mpi_comm.h"
#include "backend/ranks/apart.h"
#include "backend/ranks/ranks.h"
#include "base/team.h"
#include "engine/ranks.h"
#include "session/device.h"

namespace millrace {
namespace {

Result<void> check(const RankChoice& choice) {
  if (choice.ranks < 1 || choice.ranks > kMostRanks)
    return error(Code::invalid, "{} ranks: give a number from 1 to {}", choice.ranks, kMostRanks);
  if (choice.device != kNcclDevice) return {};
  TRY(const int gpus, gpus_for_ranks(choice.device));
  if (choice.mpi)
    return error(Code::invalid, "device {}: its ranks are threads, not processes of an MPI job", kNcclDevice);
  if (choice.ranks > gpus)
    return error(Code::unsupported,
                 "--transport nccl: {} ranks on {} GPUs, but NCCL wants one for each; use --transport threads, whose "
                 "ranks share GPUs",
                 choice.ranks, gpus);
  return {};
}

Result<std::unique_ptr<Backend>> as_rank(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm, RankCut cut) {
  if (inner->apart()) return make_apart_rank_backend(std::move(inner), std::move(comm), cut);
  return make_rank_backend(std::move(inner), std::move(comm), cut);
}

// Threads are divided between ranks; the first have one more if they do not divide.
CpuOptions part_of(const RankChoice& choice, int rank, int ranks) {
  CpuOptions part = choice.cpu;
  if (choice.cut == RankCut::layers) return part;  // while one works the others wait
  const int all = choice.cpu.threads > 0 ? choice.cpu.threads : Team::usual();
  part.threads = std::max(1, all / ranks + (rank < all % ranks ? 1 : 0));
  return part;
}

}  // namespace

Result<std::unique_ptr<Ranked>> Ranked::open(const RankChoice& choice, const Make& make) {
  std::unique_ptr<Ranked> made(new Ranked());
  made->ranks_ = choice.ranks;
  if (choice.mpi) return open_mpi(choice, make);
  if (choice.ranks == 1 && choice.device != kNcclDevice) {
    Member& only = made->members_.emplace_back();
    TRY(only.backend, open_device(choice.device, choice.cpu));
    if (choice.memory_limit > 0) only.backend->set_limit(choice.memory_limit);
    TRY(only.model, make(*only.backend));
    return made;
  }
  TRY_VOID(check(choice));
  std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(choice.ranks);
  made->members_.resize(comms.size());
  for (int r = 0; r < choice.ranks; ++r) {
    Member& member = made->members_[static_cast<size_t>(r)];
    std::shared_ptr<Comm>& comm = comms[static_cast<size_t>(r)];
    TRY(auto computes, open_rank_device(choice.device, part_of(choice, r, choice.ranks), r));
    if (choice.device == kNcclDevice) {
      TRY(comm, make_nccl_comm(comm));
    }
    TRY(member.backend, as_rank(std::move(computes), comm, choice.cut));
    if (choice.memory_limit > 0) member.backend->set_limit(choice.memory_limit / choice.ranks);
    TRY(member.model, make(*member.backend));
  }
  for (size_t r = 1; r < made->members_.size(); ++r)
    made->followers_.emplace_back([owner = made.get(), r] { owner->follow(owner->members_[r]); });
  made->leads_ = choice.ranks > 1;
  return made;
}

// Whether all could load is known to all before any goes on.
Result<std::unique_ptr<Ranked>> Ranked::open_mpi(const RankChoice& choice, const Make& make) {
  TRY_VOID(check(choice));
  TRY(MpiJob job, join_mpi());
  std::shared_ptr<Comm> comm = job.comm;
  if (choice.ranks > 1 && choice.ranks != comm->ranks())
    return error(Code::invalid, "--ranks {}, but mpirun started {} processes (-np)", choice.ranks, comm->ranks());
  std::unique_ptr<Ranked> made(new Ranked());
  made->ranks_ = comm->ranks();
  Member& member = made->members_.emplace_back();
  auto load = [&]() -> Result<void> {
    TRY(auto computes, open_rank_device(choice.device, part_of(choice, job.rank_here, job.ranks_here), job.rank_here));
    TRY(member.backend, as_rank(std::move(computes), comm, choice.cut));
    if (choice.memory_limit > 0) member.backend->set_limit(choice.memory_limit / job.ranks_here);
    TRY(member.model, make(*member.backend));
    return {};
  };
  auto loaded = load();
  const bool all = comm->agree(loaded.ok());
  TRY_VOID(std::move(loaded));
  if (!all)
    return error(Code::io, "another of the {} ranks could not load its part; its own message says why", comm->ranks());
  if (comm->rank() == 0) {
    made->leads_ = comm->ranks() > 1;
    return made;
  }
  made->follow(member);
  made.reset();
  comm.reset();
  job.comm.reset();  // MPI ends with the last
  std::exit(0);
}

// The others wait for this rank in the middle of a step: without it nothing goes on.
void Ranked::follow(Member& member) {
  auto followed = follow_ranks(*member.model, *member.backend);
  if (followed.ok()) return;
  std::fprintf(stderr, "rank %d of %d cannot go on, so the process ends: %s\n", comm_of(*member.backend)->rank(),
               ranks_, followed.error().message.c_str());
  std::abort();
}

Ranked::~Ranked() {
  if (leads_) stop_ranks(*comm_of(backend()));
  for (std::thread& follower : followers_) follower.join();
}

std::vector<Ranked::Held> Ranked::held() const {
  std::vector<Held> held;
  for (const Member& member : members_)
    held.push_back({member.backend->used(Purpose::weights), member.backend->used(Purpose::kv)});
  return held;
}

int64_t Ranked::sent() const {
  const Comm* comm = comm_of(*members_[0].backend);
  return comm != nullptr ? comm->sent() : 0;
}

}  // namespace millrace
