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
#include "backend/cpu/f16_peak.h"
#include "base/cache_folder.h"
#include "base/file.h"
#include "base/human.h"
#include "base/json.h"
#include "base/team.h"
#include "machine/stolen.h"

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

double read_rate(Team& team, double& noise) {
  const size_t workers = static_cast<size_t>(team.workers());
  const size_t words = kReadBytes / sizeof(Words) / workers / kMostStreams / kMostStreams * kMostStreams;
  const size_t all = words * kMostStreams * workers,
               bytes = (all * sizeof(Words) + kHugePage - 1) / kHugePage * kHugePage;
  const std::unique_ptr<Words, decltype(&std::free)> room(static_cast<Words*>(std::aligned_alloc(kHugePage, bytes)),
                                                          &std::free);
  Words* data = room.get();
  if (data == nullptr) return 0;
  (void)madvise(data, bytes, MADV_HUGEPAGE);  // as weights have them
  // A page never written is one shared page of zeros; whoever writes one first has it near.
  team.run([&](int worker, int) {
    const size_t each = words * kMostStreams, begin = static_cast<size_t>(worker) * each;
    for (size_t i = begin; i < begin + each; ++i) data[i] = Words{i};
  });
  std::vector<uint64_t> sinks(workers * 8);
  std::vector<double> rates[2];  // of one stream and of four
  auto read = [&]<int Streams>(std::integral_constant<int, Streams>) {
    auto begin = Clock::now();
    team.run([&](int worker, int) {
      size_t w = static_cast<size_t>(worker);
      sinks[w * 8] += read_streams<Streams>(data + w * kMostStreams * words, words * kMostStreams / Streams);
    });
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    rates[Streams > 1].push_back(static_cast<double>(all * sizeof(Words)) / seconds);
  };
  for (int run = 0; run < kReads; ++run) {
    read(std::integral_constant<int, 1>());
    read(std::integral_constant<int, 4>());
  }
  for (auto& each : rates) std::sort(each.begin(), each.end());
  const std::vector<double>& better = rates[rates[1].back() > rates[0].back()];
  noise = std::max(noise, 1 - better[better.size() / 2] / better.back());
  return better.back();
}

Result<Machine> read_cache(const Machine& wanted) {
  TRY(std::string text, read_file(machine_cache_path(wanted), 1 << 16));
  TRY(Json json, parse_json(text));
  Machine machine = wanted;
  TRY(machine.read_bytes, get_number(json, "read_bytes", 0));
  TRY(machine.int8_operations, get_number(json, "int8_operations", 0));
  TRY(machine.bf16_operations, get_number(json, "bf16_operations", 0));
  TRY(machine.f32_operations, get_number(json, "f32_operations", 0));
  if (find(json, "f16_operations") == nullptr) return error(Code::corrupt, "it does not say how fast float16 is");
  TRY(machine.f16_operations, get_number(json, "f16_operations", 0));
  if (find(json, "noise") == nullptr) return error(Code::corrupt, "it does not say how noisy the measurement was");
  TRY(machine.noise, get_number(json, "noise", 0));
  TRY(machine.stolen, get_number(json, "stolen", 0));
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
               {"f32_operations", machine.f32_operations},
               {"f16_operations", machine.f16_operations},
               {"noise", machine.noise},
               {"stolen", machine.stolen}};
  if (file->write(to_pretty_text(json) + "\n").ok()) (void)file->commit().ok();
}

// Each is the best of several measurements, and the noise how far the middle one was below it.
Result<void> measure_arithmetic(Machine& machine) {
  std::vector<double> int8, bf16, f32, f16;
  for (int run = 0; run < 3; ++run) {
    TRY(const CpuPeaks peaks, measure_cpu_peaks(machine.isa, machine.threads));
    int8.push_back(peaks.int8);
    bf16.push_back(peaks.bf16);
    f32.push_back(peaks.f32);
    f16.push_back(f16_peak(peaks));
  }
  auto best = [&](std::vector<double>& rates) {
    std::sort(rates.begin(), rates.end());
    if (rates.back() > 0) machine.noise = std::max(machine.noise, 1 - rates[rates.size() / 2] / rates.back());
    return rates.back();
  };
  machine.int8_operations = best(int8);
  machine.bf16_operations = best(bf16);
  machine.f32_operations = best(f32);
  machine.f16_operations = best(f16);
  return {};
}

// What was done once can be done.
Machine larger_of(Machine one, const Machine& other) {
  one.read_bytes = std::max(one.read_bytes, other.read_bytes);
  one.int8_operations = std::max(one.int8_operations, other.int8_operations);
  one.bf16_operations = std::max(one.bf16_operations, other.bf16_operations);
  one.f32_operations = std::max(one.f32_operations, other.f32_operations);
  one.f16_operations = std::max(one.f16_operations, other.f16_operations);
  return one;
}

}  // namespace

bool over_limit(double share) { return share > 1.005; }

std::string share_of_limit(double share) {
  return over_limit(share) ? "over 100 %" : fmt::format("{:.0f} %", 100 * share);
}

bool fits_a_cache(int64_t weights) { return weights < int64_t{128} << 20; }  // last caches are up to about so large

std::string over_limit_text(int64_t weights, const Machine& machine) {
  if (!fits_a_cache(weights)) {
    return fmt::format("over 100 %: faster than what was measured as the machine's limit, twice; {}",
                       noise_text(machine));
  }
  return fmt::format(
      "over 100 %: {} of weights may come from the processor's cache, the limit is what memory gives; {}",
      human_bytes(static_cast<uint64_t>(weights)), noise_text(machine));
}

std::string noise_text(const Machine& machine) {
  std::string text = fmt::format("the ceilings were measured with {:.0f} % noise", 100 * machine.noise);
  if (machine.stolen >= 0.005) text += fmt::format(" and {:.0f} % of processor time stolen", 100 * machine.stolen);
  if (machine.noise >= 0.1 || machine.stolen >= 0.02)
    text += ": others were at work, so they may be too low; bench --remeasure on a quiet machine";
  return text;
}

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
  std::string name = fmt::format("ceilings-{}-{}-{}.json", machine.processor, machine.isa, machine.threads);
  for (char& c : name) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!plain) c = '-';
  }
  return cache_folder() / name;
}

Result<Machine> measure_machine(const MachineOptions& options) {
  Machine machine;
  machine.processor = processor_name();
  machine.threads = options.threads > 0 ? options.threads : Team::usual();
  auto isas = cpu_isas();
  machine.isa = std::string(options.isa.empty() ? isas.back() : options.isa);
  const Result<Machine> cached = read_cache(machine);
  if (cached.ok() && !options.remeasure && !options.raise) return cached;
  if (options.known_only)
    return error(Code::not_found, "this machine was not measured yet: `millrace bench` does that");
  const StolenTime stolen;
  TRY_VOID(measure_arithmetic(machine));
  Team team(machine.threads);
  machine.read_bytes = read_rate(team, machine.noise);
  machine.stolen = stolen.share().value_or(0);
  if (options.raise && cached.ok()) machine = larger_of(machine, *cached);
  write_cache(machine);
  return machine;
}

}  // namespace millrace
