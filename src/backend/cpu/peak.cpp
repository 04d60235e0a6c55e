#include <algorithm>
#include <chrono>

#include "backend/cpu/f16_peak.h"
#include "backend/cpu/kernels.h"
#include "base/team.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// The best of several short runs: what is asked for is the machine's limit, not its neighbours' load.
double best_rate(const cpu::Peak& peak, Team& team) {
  if (peak.run == nullptr) return 0;
  constexpr int kRuns = 12;
  int64_t rounds = 1 << 12;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    auto begin = Clock::now();
    team.run([&](int, int) { peak.run(rounds); });
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds < 5e-3) {
      rounds *= 4;
      continue;
    }
    best = std::max(best, peak.operations * static_cast<double>(rounds) * team.workers() / seconds);
  }
  return best;
}

// Rows whose float16 products are made of several bfloat16 ones (x86/amx/half.cpp). All others have float32's.
struct MadeOfBf16 {
  std::string_view isa;
  double products;
};
constexpr MadeOfBf16 kMadeOfBf16[] = {{"amx", 2}};

}  // namespace

Result<CpuPeaks> measure_cpu_peaks(std::string_view isa, int threads) {
  TRY(cpu::Kernels kernels, cpu::choose_kernels(isa));
  Team team(threads > 0 ? threads : Team::usual());
  return CpuPeaks{.isa = kernels.name,
                  .int8 = best_rate(kernels.peaks[cpu::kPeakInt8], team),
                  .bf16 = best_rate(kernels.peaks[cpu::kPeakBf16], team),
                  .f32 = best_rate(kernels.peaks[cpu::kPeakF32], team)};
}

double f16_peak(const CpuPeaks& peaks) {
  for (const MadeOfBf16& each : kMadeOfBf16) {
    if (each.isa == peaks.isa) return peaks.bf16 / each.products;
  }
  return peaks.f32;
}

}  // namespace millrace
