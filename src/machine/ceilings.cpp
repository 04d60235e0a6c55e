#include "machine/ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <type_traits>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/team.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Words = uint64_t __attribute__((vector_size(64)));

constexpr size_t kReadBytes = size_t{1} << 30;  // far beyond any cache
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kMostStreams = 4;
constexpr int kReads = 4;

// Reads `words` from each of several places at once and folds them, so that nothing can be left out. On some machines
// one stream a thread leaves a fifth of the bandwidth unused, on others four streams do.
template <int Streams>
uint64_t read_streams(const Words* data, size_t words) {
  Words fold[kMostStreams] = {};
  for (size_t i = 0; i < words; i += kMostStreams / Streams) {
    for (size_t s = 0; s < kMostStreams; ++s) fold[s] ^= data[s % Streams * words + i + s / Streams];
  }
  Words all = fold[0] ^ fold[1] ^ fold[2] ^ fold[3];
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

double read_rate(Team& team) {
  const size_t workers = static_cast<size_t>(team.workers());
  const size_t words = kReadBytes / sizeof(Words) / workers / kMostStreams / kMostStreams * kMostStreams;
  const size_t all = words * kMostStreams * workers,
               bytes = (all * sizeof(Words) + kHugePage - 1) / kHugePage * kHugePage;
  const std::unique_ptr<Words, decltype(&std::free)> room(static_cast<Words*>(std::aligned_alloc(kHugePage, bytes)),
                                                          &std::free);
  Words* data = room.get();
  if (data == nullptr) return 0;
  (void)madvise(data, bytes, MADV_HUGEPAGE);            // as weights have them
  for (size_t i = 0; i < all; ++i) data[i] = Words{i};  // a page never written is one shared page of zeros
  std::vector<uint64_t> sinks(workers * 8);
  double best = 0;
  auto read = [&]<int Streams>(std::integral_constant<int, Streams>) {
    auto begin = Clock::now();
    team.run([&](int worker, int) {
      size_t w = static_cast<size_t>(worker);
      sinks[w * 8] += read_streams<Streams>(data + w * kMostStreams * words, words * kMostStreams / Streams);
    });
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, static_cast<double>(all * sizeof(Words)) / seconds);
  };
  for (int run = 0; run < kReads; ++run) {
    read(std::integral_constant<int, 1>());
    read(std::integral_constant<int, 4>());
  }
  return best;
}

Result<Machine> read_cache(const Machine& wanted) {
  TRY(std::string text, read_file(machine_cache_path(wanted), 1 << 16));
  TRY(Json json, parse_json(text));
  Machine machine = wanted;
  TRY(machine.read_bytes, get_number(json, "read_bytes", 0));
  TRY(machine.int8_operations, get_number(json, "int8_operations", 0));
  TRY(machine.bf16_operations, get_number(json, "bf16_operations", 0));
  TRY(machine.f32_operations, get_number(json, "f32_operations", 0));
  if (!(machine.read_bytes > 0 && machine.f32_operations > 0))
    return error(Code::corrupt, "the figures are not positive");
  return machine;
}

void write_cache(const Machine& machine) {
  std::filesystem::path path = machine_cache_path(machine);
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  auto file = AtomicFile::create(path);
  if (!file.ok()) return;
  Json json = {{"processor", machine.processor},
               {"isa", machine.isa},
               {"threads", machine.threads},
               {"read_bytes", machine.read_bytes},
               {"int8_operations", machine.int8_operations},
               {"bf16_operations", machine.bf16_operations},
               {"f32_operations", machine.f32_operations}};
  if (file->write(to_pretty_text(json) + "\n").ok()) (void)file->commit().ok();
}

}  // namespace

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, implementer, part;
  auto value = [&] { return line.substr(std::min(line.size(), line.find(':') + 2)); };
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return value();
    if (line.starts_with("CPU implementer")) implementer = value();
    if (line.starts_with("CPU part")) part = value();
    if (!part.empty()) break;
  }
  if (implementer == "0x41" && part == "0xd40") return "Neoverse-V1";
  if (implementer == "0x41" && part == "0xd4f") return "Neoverse-V2";
  if (implementer == "0x41" && part == "0xd0c") return "Neoverse-N1";
  if (implementer == "0x41" && part == "0xd49") return "Neoverse-N2";
  return part.empty() ? "unknown processor" : fmt::format("arm {} {}", implementer, part);
}

std::filesystem::path machine_cache_path(const Machine& machine) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path root = cache != nullptr && *cache != '\0' ? std::filesystem::path(cache)
                               : home != nullptr                  ? std::filesystem::path(home) / ".cache"
                                                                  : std::filesystem::temp_directory_path();
  std::string name = fmt::format("ceilings-{}-{}-{}.json", machine.processor, machine.isa, machine.threads);
  for (char& c : name) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!plain) c = '-';
  }
  return root / "millrace" / name;
}

Result<Machine> measure_machine(const MachineOptions& options) {
  Machine machine;
  machine.processor = processor_name();
  machine.threads = options.threads > 0 ? options.threads : Team::processors();
  auto isas = cpu_isas();
  machine.isa = std::string(options.isa.empty() ? isas.back() : options.isa);
  if (!options.remeasure) {
    if (auto cached = read_cache(machine); cached.ok()) return cached;
  }
  if (options.known_only)
    return error(Code::not_found, "this machine was not measured yet: `millrace bench` does that");
  TRY(CpuPeaks peaks, measure_cpu_peaks(machine.isa, machine.threads));
  machine.int8_operations = peaks.int8;
  machine.bf16_operations = peaks.bf16;
  machine.f32_operations = peaks.f32;
  Team team(machine.threads);
  machine.read_bytes = read_rate(team);
  write_cache(machine);
  return machine;
}

}  // namespace millrace
