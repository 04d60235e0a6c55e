// What `doctor` finds out about the machine, read from /proc, /sys and /dev only, so that it needs no library and no
// privileges. A file that is missing leaves its field at "unknown". `root` stands before every path, for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace millrace::apps {

struct Gpu {
  std::string name;
  bool supported = false;  // by some build of Millrace: NVIDIA
};

struct Host {
  int processors = 0;                     // online, of the machine
  std::optional<int> cores;               // that these are; fewer where a core has several threads
  std::vector<std::string> cpu_features;  // those that matter for the kernels, by the names /proc/cpuinfo gives
  std::optional<double> cpu_quota;        // processors' worth of time the control group allows

  uint64_t memory = 0, memory_available = 0, swap = 0;  // bytes
  std::optional<uint64_t> memory_limit;                 // of the control group
  std::optional<uint64_t> locked_limit;                 // RLIMIT_MEMLOCK, absent if unlimited
  uint64_t page = 0;
  std::string transparent_huge_pages;     // "always", "madvise", "never", "unknown"
  std::vector<uint64_t> huge_page_sizes;  // bytes
  std::string governor;                   // of cpu0: "performance", "powersave", "" if unknown

  std::vector<Gpu> gpus;
  std::string gpu_driver;  // version, "" if none
};

Host probe_host(const std::filesystem::path& root = "/");

}  // namespace millrace::apps
