#include "machine/stolen.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>

namespace millrace {
namespace {

std::optional<ProcessorTimes> times_now() {
  std::ifstream stat("/proc/stat");
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  return read_processor_times(line);
}

}  // namespace

// "cpu  user nice system idle iowait irq softirq steal guest guest_nice"; what guests got is in user and nice too.
std::optional<ProcessorTimes> read_processor_times(std::string_view stat) {
  std::string_view line = stat.substr(0, stat.find('\n'));
  if (!line.starts_with("cpu ")) return std::nullopt;
  line.remove_prefix(4);
  std::array<uint64_t, 8> ticks = {};
  for (uint64_t& tick : ticks) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), tick);
    if (failure != std::errc()) return std::nullopt;
    line.remove_prefix(static_cast<size_t>(end - line.data()));
  }
  ProcessorTimes times{.stolen = ticks.back()};
  for (const uint64_t tick : ticks) times.all += tick;
  return times;
}

StolenTime::StolenTime() : begin_(times_now()) {}

std::optional<double> StolenTime::share() const {
  const std::optional<ProcessorTimes> end = times_now();
  if (!begin_ || !end || end->all <= begin_->all || end->stolen < begin_->stolen) return std::nullopt;
  return static_cast<double>(end->stolen - begin_->stolen) / static_cast<double>(end->all - begin_->all);
}

std::optional<std::string> stolen_text(std::optional<double> share) {
  if (share.value_or(0) < 0.005) return std::nullopt;
  return fmt::format(
      "other virtual machines took up to {:.0f} % of the processor time meanwhile: speeds are that much too low",
      100 * *share);
}

Json stolen_json(std::optional<double> share) { return share ? Json(*share) : Json(nullptr); }

}  // namespace millrace
