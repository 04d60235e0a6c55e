// Topology: which processors of this machine are threads of one core, and which cores are near which memory. Read from
// the files of the kernel; a machine that does not tell is one memory node whose processors are cores.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

namespace millrace {

struct Processor {
  int number = 0;
  int core = 0;  // the lowest number of the processors that share its core
  int node = 0;  // of memory
  bool operator==(const Processor&) const = default;
};

// Of these processors; `root` is where /sys lies.
std::vector<Processor> topology_of(std::span<const int> processors, const std::filesystem::path& root = "/");
// Of the processors this process may run on: a container's share, not the machine's. As it was when first asked:
// threads that are given a place later do not change it.
const std::vector<Processor>& usable_processors();

int count_cores(std::span<const Processor> processors);
int count_nodes(std::span<const Processor> processors);

// Where a worker of a team may run.
struct WorkerPlace {
  int node = 0;
  std::vector<int> processors;  // ascending
};
// The places of so many workers. Nodes get workers by their cores, and workers that follow one another share a node, so
// that a part of a matrix stays near whoever reads it. On a node they may use one processor of every core; all of them
// only where there are more workers than cores. Which of these, the kernel chooses: it knows who else is at work.
std::vector<WorkerPlace> places_of(int workers, std::span<const Processor> processors);

}  // namespace millrace
