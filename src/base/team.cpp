#include "base/team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/relax.h"
#include "base/topology.h"

namespace millrace {
namespace {

// Spinning longer than the gaps inside a step costs the neighbours; shorter, and a job pays for waking up.
constexpr int kSpins = 4000;

// Waits until `value` is no longer `old`: spins, then sleeps. The sleeper announces itself first, and whoever changes
// the value looks for sleepers afterwards; both in one total order, so one of them sees the other.
void await_change(std::atomic<uint32_t>& value, uint32_t old, std::atomic<uint32_t>& sleepers, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (value.load(std::memory_order_seq_cst) == old) value.wait(old, std::memory_order_seq_cst);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void wake(std::atomic<uint32_t>& value, std::atomic<uint32_t>& sleepers) {
  if (sleepers.load(std::memory_order_seq_cst) > 0) value.notify_all();
}

}  // namespace

int Team::processors() { return std::max(1, static_cast<int>(usable_processors().size())); }
int Team::usual() { return std::max(1, count_cores(usable_processors())); }

Team::Team(int workers) : workers_(workers) {
  CHECK(workers >= 1, "a team of {} workers", workers);
  const std::vector<Processor>& usable = usable_processors();
  // With more workers than processors, spinning keeps the one we wait for from running.
  spins_ = usable.size() >= static_cast<size_t>(workers) ? kSpins : 0;
  if (count_nodes(usable) > 1 || count_cores(usable) < static_cast<int>(usable.size()))
    for (WorkerPlace& place : places_of(workers, usable)) places_.push_back(std::move(place.processors));
  start();
}

void Team::start() {
  threads_.reserve(static_cast<size_t>(workers_ - 1));
  for (int worker = 1; worker < workers_; ++worker) {
    threads_.emplace_back([this, worker, seen = epoch_.load()] {
      place(worker);
      work(worker, seen);
    });
  }
}

void Team::place(int worker) {
  if (places_.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : places_[static_cast<size_t>(worker)]) CPU_SET(processor, &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a wish: running elsewhere is still right
}

Team::~Team() { rest(); }

void Team::rest() {
  stopping_ = true;
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  wake(epoch_, sleepers_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
}

void Team::run_job(Job job, void* context) {
  CHECK(!running_, "a job of a team started another");
  if (workers_ == 1) {
    job(context, 0, 1);
    return;
  }
  if (threads_.empty()) start();
  running_ = true;
  job_ = job;
  context_ = context;
  unfinished_.store(static_cast<uint32_t>(workers_ - 1), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  wake(epoch_, sleepers_);
  job(context, 0, workers_);
  for (uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    await_change(unfinished_, left, sleepers_, spins_);
  }
  running_ = false;
}

void Team::work(int worker, uint32_t seen) {
  for (;;) {
    await_change(epoch_, seen, sleepers_, spins_);
    ++seen;
    if (stopping_) return;
    job_(context_, worker, workers_);
    unfinished_.fetch_sub(1, std::memory_order_seq_cst);
    wake(unfinished_, sleepers_);
  }
}

void Team::barrier() {
  if (workers_ == 1) return;
  uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(workers_)) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    wake(generation_, sleepers_);
  } else {
    await_change(generation_, generation, sleepers_, spins_);
  }
}

}  // namespace millrace
