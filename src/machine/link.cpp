#include "machine/link.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFew = 256, kMany = 64 << 10;  // numbers of a rank: a row of a step, and rows of a prompt
constexpr int kRuns = 100;                       // short ones, so that some fit between what others do

// Every rank's part of one row of so many numbers of each, gathered so often.
void gather(Comm& comm, std::vector<float>& room, int repeats) {
  const auto ranks = static_cast<int64_t>(comm.ranks()), all = static_cast<int64_t>(room.size());
  std::vector<int64_t> begins;
  for (int64_t r = 0; r <= ranks; ++r) begins.push_back(r * (all / ranks));
  const SharedColumns columns = {
      {reinterpret_cast<std::byte*>(room.data()), DType::f32, 1, all, all * static_cast<int64_t>(sizeof(float))},
      1,
      begins};
  for (int i = 0; i < repeats; ++i) comm.gather_columns({&columns, 1});
}

// The best of several runs: a limit is what is possible, and others may have worked meanwhile.
double seconds_of(Comm& comm, int64_t numbers, int repeats) {
  std::vector<float> room(static_cast<size_t>(numbers * comm.ranks()));
  std::vector<double> runs;
  for (int run = -1; run < kRuns; ++run) {  // the first is for nothing: pages and threads wake
    comm.agree(true);
    const auto start = Clock::now();
    gather(comm, room, repeats);
    if (run >= 0) runs.push_back(std::chrono::duration<double>(Clock::now() - start).count() / repeats);
  }
  return *std::min_element(runs.begin(), runs.end());
}

}  // namespace

Link measure_link(Comm& comm) {
  if (comm.ranks() < 2) return {};
  const double few = seconds_of(comm, kFew, 8), many = seconds_of(comm, kMany, 1);
  const double more = static_cast<double>((kMany - kFew) * (comm.ranks() - 1)) * sizeof(float);
  return {.seconds = few, .bytes = more / std::max(many - few, many * 0.01)};
}

int ranks_here(Comm& comm) {
  std::array<char, 256> name = {};
  static_cast<void>(gethostname(name.data(), name.size() - 1));
  uint32_t digest = 2166136261u;
  for (const char letter : std::string_view(name.data()))
    digest = (digest ^ static_cast<unsigned char>(letter)) * 16777619u;
  std::vector<float> names(static_cast<size_t>(comm.ranks()));
  const auto own = static_cast<float>(digest >> 8);  // a float32 has it whole
  names[static_cast<size_t>(comm.rank())] = own;
  gather(comm, names, 1);
  return static_cast<int>(std::count(names.begin(), names.end(), own));
}

Link measure_thread_link(int ranks) {
  const std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(ranks);
  std::vector<std::thread> others;
  for (size_t r = 1; r < comms.size(); ++r) others.emplace_back([&comms, r] { measure_link(*comms[r]); });
  const Link link = measure_link(*comms[0]);
  for (std::thread& other : others) other.join();
  return link;
}

}  // namespace millrace
