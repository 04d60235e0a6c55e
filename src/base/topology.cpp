#include "base/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The numbers of a list such as "0-3,8,10-11".
std::vector<int> numbers_in(std::string_view list) {
  constexpr int kMost = 1 << 16;
  std::vector<int> numbers;
  const char *at = list.data(), *end = at + list.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) break;
    int last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc()) break;
    }
    if (first < 0 || last < first || last >= kMost) break;
    for (int i = first; i <= last; ++i) numbers.push_back(i);
    if (read.ptr >= end || *read.ptr != ',') break;
    at = read.ptr + 1;
  }
  return numbers;
}

// The node of every processor that a node names.
std::map<int, int> nodes_by_processor(const fs::path& root) {
  std::map<int, int> nodes;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", failure)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    const std::vector<int> number = numbers_in(std::string_view(name).substr(4));
    if (number.size() != 1) continue;
    for (const int processor : numbers_in(slurp(entry.path() / "cpulist"))) nodes[processor] = number[0];
  }
  return nodes;
}

int distinct(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return static_cast<int>(std::unique(numbers.begin(), numbers.end()) - numbers.begin());
}

}  // namespace

std::vector<Processor> topology_of(std::span<const int> processors, const fs::path& root) {
  const std::map<int, int> nodes = nodes_by_processor(root);
  std::vector<Processor> all;
  for (const int number : processors) {
    const fs::path folder = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(number));
    const std::vector<int> siblings = numbers_in(slurp(folder / "topology/thread_siblings_list"));
    const auto node = nodes.find(number);
    all.push_back({.number = number,
                   .core = siblings.empty() ? number : *std::ranges::min_element(siblings),
                   .node = node == nodes.end() ? 0 : node->second});
  }
  return all;
}

const std::vector<Processor>& usable_processors() {
  static const std::vector<Processor> usable = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> numbers;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &set)) numbers.push_back(i);
      }
    }
    return topology_of(numbers);
  }();
  return usable;
}

int count_cores(std::span<const Processor> processors) {
  std::vector<int> cores;
  for (const Processor& processor : processors) cores.push_back(processor.core);
  return distinct(std::move(cores));
}

int count_nodes(std::span<const Processor> processors) {
  std::vector<int> nodes;
  for (const Processor& processor : processors) nodes.push_back(processor.node);
  return distinct(std::move(nodes));
}

std::vector<WorkerPlace> places_of(int workers, std::span<const Processor> processors) {
  std::map<int, std::vector<Processor>> nodes;
  for (const Processor& processor : processors) nodes[processor.node].push_back(processor);
  std::vector<WorkerPlace> places;
  int cores_left = 0;
  for (const auto& [node, its] : nodes) cores_left += count_cores(its);
  for (const auto& [node, its] : nodes) {
    const int cores = count_cores(its), left = workers - static_cast<int>(places.size());
    const int share = (left * cores + cores_left - 1) / cores_left;
    cores_left -= cores;
    WorkerPlace place = {.node = node, .processors = {}};
    std::vector<int> seen;
    for (const Processor& processor : its) {
      if (share <= cores && std::ranges::find(seen, processor.core) != seen.end()) continue;
      seen.push_back(processor.core);
      place.processors.push_back(processor.number);
    }
    places.insert(places.end(), static_cast<size_t>(share), place);
  }
  return places;
}

}  // namespace millrace
