// Team: the worker threads of one machine part. A step forks and joins them hundreds of times, so workers spin for a
// moment after each job and only then sleep; nothing is allocated per job. The thread that calls run() is worker 0, so
// a team of one has no threads at all. One thread calls run() at a time, and a job must not call run() again.
//
// Workers stand where topology.h places them: cores before second threads of cores, and each kept near one memory node.
// The thread that calls run() stays where it is: what it starts later would inherit its place.
// Which worker does which part must never show in a result (contract 1): parts write to places of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace millrace {

class Team {
 public:
  explicit Team(int workers);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int workers() const { return workers_; }
  // Processors this process may run on: a container's share, not the machine's.
  static int processors();
  // Workers of a team that nobody chose a number for: one for every core of these.
  static int usual();

  // Calls part(worker, workers) once on every worker and returns when all are done.
  template <class F>
  void run(F&& part) {
    using Body = std::remove_reference_t<F>;
    run_job([](void* context, int worker, int workers) { (*static_cast<Body*>(context))(worker, workers); },
            const_cast<void*>(static_cast<const void*>(&part)));
  }

  // Calls body(task, worker) for every task in [0, tasks), handed out in ascending order to whoever is free.
  template <class F>
  void each(int64_t tasks, F&& body) {
    if (tasks <= 1 || workers_ == 1) {
      for (int64_t task = 0; task < tasks; ++task) body(task, 0);
      return;
    }
    next_task_.store(0, std::memory_order_relaxed);
    run([&](int worker, int) {
      for (int64_t task = take_task(); task < tasks; task = take_task()) body(task, worker);
    });
  }

  // Inside a job: returns once every worker has called it. All workers of the job must.
  void barrier();

  // Ends the threads; the next job starts them again. A process without threads may be copied.
  void rest();

 private:
  using Job = void (*)(void* context, int worker, int workers);

  void start();
  int64_t take_task() { return next_task_.fetch_add(1, std::memory_order_relaxed); }
  void run_job(Job job, void* context);
  void work(int worker, uint32_t seen);
  void place(int worker);  // the calling thread

  // Each on its own cache line: they are written by different threads.
  alignas(64) std::atomic<uint32_t> epoch_{0};  // a new value: a new job
  alignas(64) std::atomic<uint32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // of the barrier
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};

  Job job_ = nullptr;
  void* context_ = nullptr;
  bool running_ = false;
  bool stopping_ = false;
  int workers_ = 1;
  int spins_ = 0;
  std::vector<std::vector<int>> places_;  // the processors of each worker; empty: any
  std::vector<std::thread> threads_;
};

}  // namespace millrace
