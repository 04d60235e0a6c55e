#include "apps/cli/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// Files of /proc and /sys have no size until they are read, so base/file does not fit them.
std::string slurp(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r";
  size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::optional<uint64_t> to_number(std::string_view text) {
  text = trimmed(text);
  uint64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// "key : value" lines; of a key that comes again (one stanza per processor) the first stays.
std::map<std::string, std::string, std::less<>> fields_of(const std::string& text) {
  std::map<std::string, std::string, std::less<>> fields;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string_view view = line;
    fields.emplace(trimmed(view.substr(0, colon)), trimmed(view.substr(colon + 1)));
  }
  return fields;
}

bool matters(std::string_view feature) {
  static constexpr std::string_view kFeatures[] = {"asimd",       "asimdhp",     "asimddp",  "i8mm",     "bf16",
                                                   "sve",         "sve2",        "sme",      "avx",      "avx2",
                                                   "fma",         "f16c",        "avxvnni",  "avx_vnni", "avx512f",
                                                   "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"};
  return std::find(std::begin(kFeatures), std::end(kFeatures), feature) != std::end(kFeatures);
}

// Processors that are threads of one core name the same list of siblings. A virtual machine may not be told.
std::optional<int> count_cores(const fs::path& root) {
  std::set<std::string> siblings;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/cpu", failure)) {
    std::string list = slurp(entry.path() / "topology/thread_siblings_list");
    if (!list.empty()) siblings.insert(std::move(list));
  }
  return siblings.empty() ? std::nullopt : std::optional(static_cast<int>(siblings.size()));
}

void probe_cpu(const fs::path& root, Host& host) {
  std::string text = slurp(root / "proc/cpuinfo");
  auto fields = fields_of(text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) host.processors += line.starts_with("processor") ? 1 : 0;
  std::istringstream words(fields.contains("flags") ? fields["flags"] : fields["Features"]);
  for (std::string word; words >> word;) {
    if (matters(word)) host.cpu_features.push_back(word);
  }
  host.cores = count_cores(root);
  host.governor = trimmed(slurp(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
}

// The folder of this process's control group and those above it; version 2 has one tree, version 1 one per controller.
std::vector<fs::path> group_folders(const fs::path& root, std::string_view controller) {
  std::vector<fs::path> folders;
  std::istringstream lines(slurp(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    bool unified = names == ",,";
    if (!unified && names.find("," + std::string(controller) + ",") == std::string::npos) continue;
    fs::path top = root / "sys/fs/cgroup";
    if (!unified) top /= controller;
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      folders.push_back(top / group);
      if (group.empty()) break;
    }
  }
  return folders;
}

void probe_limits(const fs::path& root, Host& host) {
  for (const fs::path& folder : group_folders(root, "memory")) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      auto limit = to_number(slurp(folder / file));
      if (limit && *limit < host.memory && (!host.memory_limit || *limit < *host.memory_limit)) {
        host.memory_limit = limit;
      }
    }
  }
  auto take_quota = [&](std::optional<uint64_t> quota, std::optional<uint64_t> period) {
    if (!quota || !period || *period == 0) return;
    double share = static_cast<double>(*quota) / static_cast<double>(*period);
    if (!host.cpu_quota || share < *host.cpu_quota) host.cpu_quota = share;
  };
  for (const fs::path& folder : group_folders(root, "cpu")) {
    std::string text = slurp(folder / "cpu.max");  // "200000 100000" or "max 100000"
    size_t space = text.find(' ');
    if (space != std::string::npos) take_quota(to_number(text.substr(0, space)), to_number(text.substr(space)));
    std::string quota = slurp(folder / "cpu.cfs_quota_us");
    if (!quota.starts_with("-")) take_quota(to_number(quota), to_number(slurp(folder / "cpu.cfs_period_us")));
  }
  rlimit locked = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    host.locked_limit = locked.rlim_cur;
}

void probe_memory(const fs::path& root, Host& host) {
  auto fields = fields_of(slurp(root / "proc/meminfo"));
  auto kibibytes = [&](std::string_view key) -> uint64_t {
    auto found = fields.find(key);
    return found == fields.end() ? 0 : to_number(found->second).value_or(0) * 1024;
  };
  host.memory = kibibytes("MemTotal");
  host.memory_available = kibibytes("MemAvailable");
  host.swap = kibibytes("SwapTotal");
  long page = ::sysconf(_SC_PAGESIZE);
  host.page = page > 0 ? static_cast<uint64_t>(page) : 0;

  std::string modes = slurp(root / "sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  size_t open = modes.find('['), close = modes.find(']');
  bool chosen = open != std::string::npos && close != std::string::npos && open < close;
  host.transparent_huge_pages = chosen ? modes.substr(open + 1, close - open - 1) : "unknown";
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "sys/kernel/mm/hugepages", failure)) {
    std::string name = entry.path().filename();  // hugepages-2048kB
    if (!name.starts_with("hugepages-")) continue;
    if (auto size = to_number(std::string_view(name).substr(10))) host.huge_page_sizes.push_back(*size * 1024);
  }
  std::sort(host.huge_page_sizes.begin(), host.huge_page_sizes.end());
}

void probe_gpus(const fs::path& root, Host& host) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "proc/driver/nvidia/gpus", failure)) {
    auto fields = fields_of(slurp(entry.path() / "information"));
    std::string name = fields.contains("Model") ? fields["Model"] : "NVIDIA GPU " + entry.path().filename().string();
    host.gpus.push_back({.name = name, .supported = true});
  }
  if (host.gpus.empty()) {  // containers often have the devices but not the /proc folder
    for (int index = 0; fs::exists(root / ("dev/nvidia" + std::to_string(index)), failure); ++index) {
      host.gpus.push_back({.name = "NVIDIA GPU " + std::to_string(index), .supported = true});
    }
  }
  if (fs::exists(root / "dev/kfd", failure)) host.gpus.push_back({.name = "AMD GPU"});
  std::string version =
      slurp(root / "proc/driver/nvidia/version");  // "NVRM version: NVIDIA ... Module  580.65.06  Sat ..."
  std::istringstream words(version.substr(0, version.find('\n')));
  for (std::string word; words >> word;) {
    bool numbers = word.find_first_not_of("0123456789.") == std::string::npos;
    if (host.gpu_driver.empty() && numbers && word.find('.') != std::string::npos) host.gpu_driver = word;
  }
}

}  // namespace

Host probe_host(const fs::path& root) {
  Host host;
  probe_cpu(root, host);
  probe_memory(root, host);
  probe_limits(root, host);
  probe_gpus(root, host);
  return host;
}

}  // namespace millrace::apps
