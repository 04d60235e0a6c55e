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
  noise = 1 - better[better.size() / 2] / better.back();
  return better.back();
}

// The ceilings of a machine, by the names they have in the file.
struct NamedCeiling {
  std::string_view name;
  double Machine::*rate;
  double CeilingNoise::*noise;
};
constexpr NamedCeiling kCeilings[] = {{"read", &Machine::read_bytes, &CeilingNoise::read},
                                      {"int8", &Machine::int8_operations, &CeilingNoise::int8},
                                      {"bf16", &Machine::bf16_operations, &CeilingNoise::bf16},
                                      {"f32", &Machine::f32_operations, &CeilingNoise::f32},
                                      {"f16", &Machine::f16_operations, &CeilingNoise::f16}};

std::string key_of(const NamedCeiling& ceiling) {
  return std::string(ceiling.name) + (ceiling.rate == &Machine::read_bytes ? "_bytes" : "_operations");
}

// A file of before some figure or its noise was kept is no error worth telling: the machine is measured again.
Result<Machine> read_cache(const Machine& wanted) {
  TRY(std::string text, read_file(machine_cache_path(wanted), 1 << 16));
  TRY(Json json, parse_json(text));
  const Json* noise = find(json, "noise");
  if (noise == nullptr || !noise->is_object())
    return error(Code::corrupt, "it does not say how noisy the measurement of each figure was");
  Machine machine = wanted;
  for (const NamedCeiling& ceiling : kCeilings) {
    const std::string key = key_of(ceiling);
    if (find(json, key) == nullptr || find(*noise, ceiling.name) == nullptr)
      return error(Code::corrupt, "it has no '{}' or does not say how noisy that is", key);
    TRY(machine.*ceiling.rate, get_number(json, key, 0));
    TRY(machine.noise.*ceiling.noise, get_number(*noise, ceiling.name, 0));
  }
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
  JsonObject json = {{"processor", machine.processor}, {"isa", machine.isa}, {"threads", machine.threads}}, noise;
  for (const NamedCeiling& ceiling : kCeilings) {
    json[key_of(ceiling)] = machine.*ceiling.rate;
    noise[ceiling.name] = machine.noise.*ceiling.noise;
  }
  json["noise"] = std::move(noise);
  json["stolen"] = machine.stolen;
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
  auto best = [](std::vector<double>& rates, double& noise) {
    std::sort(rates.begin(), rates.end());
    noise = rates.back() > 0 ? 1 - rates[rates.size() / 2] / rates.back() : 0;
    return rates.back();
  };
  machine.int8_operations = best(int8, machine.noise.int8);
  machine.bf16_operations = best(bf16, machine.noise.bf16);
  machine.f32_operations = best(f32, machine.noise.f32);
  machine.f16_operations = best(f16, machine.noise.f16);
  return {};
}

// What was done once can be done. Each figure keeps the noise it was measured with.
Machine larger_of(Machine one, const Machine& other) {
  for (const NamedCeiling& ceiling : kCeilings) {
    if (one.*ceiling.rate >= other.*ceiling.rate) continue;
    one.*ceiling.rate = other.*ceiling.rate;
    one.noise.*ceiling.noise = other.noise.*ceiling.noise;
  }
  return one;
}

std::string percent_of_noise(double noise) {
  return noise < 0 ? "unknown noise" : fmt::format("{:.0f} % noise", 100 * noise);
}

// "WHAT measured with 3 % noise", and what follows from it.
std::string noise_text_of(std::string_view what, double noise, double stolen) {
  std::string text = fmt::format("{} measured with {}", what, percent_of_noise(noise));
  if (stolen >= 0.005) text += fmt::format(" and {:.0f} % of processor time stolen", 100 * stolen);
  if (noise >= 0.1 || stolen >= 0.02)
    text += ": others were at work, so they may be too low; bench --remeasure on a quiet machine";
  return text;
}

}  // namespace

bool over_limit(double share) { return share > 1.005; }

std::string share_of_limit(double share) {
  return over_limit(share) ? "over 100 %" : fmt::format("{:.0f} %", 100 * share);
}

bool fits_a_cache(int64_t weights) { return weights < int64_t{128} << 20; }  // last caches are up to about so large

double CeilingNoise::arithmetic() const { return std::max({int8, bf16, f32, f16}); }
double CeilingNoise::largest() const { return std::max(read, arithmetic()); }

void PassedLimits::add(double memory_seconds, double compute_seconds, double seconds) {
  if (!(seconds > 0) || !over_limit((memory_seconds + compute_seconds) / seconds)) return;
  (over_limit(compute_seconds / seconds) ? compute : memory) = true;
}

std::string over_limit_text(const PassedLimits& passed, int64_t weights, const Machine& machine) {
  constexpr std::string_view kTwice = "faster than what was measured as the machine's limit, twice";
  std::string text;
  if (passed.memory) {
    const std::string why =
        fits_a_cache(weights)
            ? fmt::format("{} of weights may come from the processor's cache, the limit is what memory gives",
                          human_bytes(static_cast<uint64_t>(weights)))
            : std::string(kTwice);
    text = fmt::format("over 100 % of memory's limit: {}; {}", why,
                       noise_text_of("its ceiling was", machine.noise.read, machine.stolen));
  }
  if (passed.compute) {
    text += fmt::format("{}over 100 % of arithmetic's limit: {}; {}", text.empty() ? "" : "; ", kTwice,
                        noise_text_of("its ceilings were", machine.noise.arithmetic(), machine.stolen));
  }
  return text;
}

std::string noise_text(const Machine& machine) {
  return noise_text_of("the ceilings were", machine.noise.largest(), machine.stolen);
}

std::string ceilings_text(const Machine& machine) {
  std::string text =
      fmt::format("read {:.1f} GB/s ({})", machine.read_bytes / 1e9, percent_of_noise(machine.noise.read));
  for (const NamedCeiling& ceiling : kCeilings) {
    if (ceiling.rate == &Machine::read_bytes) continue;
    text += fmt::format(", {} ", ceiling.name);
    const double rate = machine.*ceiling.rate;
    text += rate > 0 ? fmt::format("{:.0f} GOP/s ({})", rate / 1e9, percent_of_noise(machine.noise.*ceiling.noise))
                     : "none";
  }
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
  machine.read_bytes = read_rate(team, machine.noise.read);
  machine.stolen = stolen.share().value_or(0);
  if (options.raise && cached.ok()) machine = larger_of(machine, *cached);
  write_cache(machine);
  return machine;
}

}  // namespace millrace
