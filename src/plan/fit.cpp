#include "plan/fit.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Rows that decide how a kernel runs: of attention those of one sequence, since each sequence has keys of its own.
int64_t rows_of(const OpCall& call, int32_t sequences) {
  return call.op == "attend" ? std::max<int64_t>(1, call.rows / std::max(1, sequences)) : call.rows;
}

}  // namespace

double work_seconds(std::span<const TraceRecord> records, const Ceilings& ceilings) {
  double seconds = 0;
  for (const TraceRecord& record : records) {
    const double weights = static_cast<double>(record.cost.weight_bytes + record.cost.kv_bytes);
    const double activations = static_cast<double>(record.cost.activation_bytes);
    // Activations that come with weights stay in the caches; alone they are all there is to move.
    const double bytes = weights > 0 ? weights : activations;
    seconds += std::max(bytes / ceilings.read_bytes, record.cost.flops / ceilings.operations(record));
  }
  return seconds;
}

void OpFit::add(const CallOps& calls, int32_t sequences) {
  // The same call of several runs of one pass: its place among the calls of a step.
  std::map<size_t, std::vector<const OpCall*>> places;
  size_t place = 0;
  const OpCall* last = nullptr;
  double busy = 0, begin = 0;
  auto close = [&] {
    if (last != nullptr) gaps_.push_back(last->begin + last->seconds - begin - busy);
  };
  for (const OpCall& call : calls.calls()) {
    if (last == nullptr || call.step != last->step) {
      close();
      place = 0, busy = 0, begin = call.begin;
    }
    places[place++].push_back(&call);
    busy += call.seconds;
    last = &call;
  }
  close();
  for (const auto& [index, same] : places) {
    std::vector<double> seconds;
    for (const OpCall* call : same) seconds.push_back(call->seconds);
    const OpCall& call = *same.front();
    samples_[{std::string(call.op), call.type}][rows_of(call, sequences)].push_back(
        {work_seconds(calls.records(call), ceilings_), median(std::move(seconds))});
  }
}

void OpFit::settle() {
  lines_.clear();
  for (const auto& [key, by_rows] : samples_) {
    for (const auto& [rows, samples] : by_rows) {
      // Least squares, each sample weighted by 1 / seconds so that all count alike in percent.
      double n = 0, x = 0, y = 0, xx = 0, xy = 0;
      for (const Sample& s : samples) {
        const double weight = s.seconds > 0 ? 1 / (s.seconds * s.seconds) : 0;
        n += weight, x += weight * s.work, y += weight * s.seconds, xx += weight * s.work * s.work,
            xy += weight * s.work * s.seconds;
      }
      if (n == 0) continue;
      Line line = {.samples = static_cast<int64_t>(samples.size())};
      const double spread = n * xx - x * x;
      const bool varied = spread > 1e-6 * n * xx;
      line.slope = varied ? (n * xy - x * y) / spread : x > 0 ? xy / xx : 0;
      line.fixed = varied ? (y - line.slope * x) / n : 0;
      if (line.fixed < 0 || line.slope < 0) line.fixed = 0, line.slope = xx > 0 ? xy / xx : 0;
      lines_[key][rows] = line;
    }
  }
  between_ = median(gaps_);
}

double OpFit::seconds(const Key& key, int64_t rows, double work) const {
  const auto found = lines_.find(key);
  if (found == lines_.end() || found->second.empty()) return work;  // never timed: at its floor
  const auto& by_rows = found->second;
  auto above = by_rows.lower_bound(rows);
  if (above == by_rows.end()) --above;
  auto at = [&](const Line& line) { return line.fixed + line.slope * work; };
  if (above->first == rows || above == by_rows.begin() || above->first < rows) return at(above->second);
  const auto below = std::prev(above);
  const double share = std::log(static_cast<double>(rows) / static_cast<double>(below->first)) /
                       std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return (1 - share) * at(below->second) + share * at(above->second);
}

double OpFit::predict(const Model& model, const KvForm& kv, std::span<const PassRows> sequences) const {
  CallOps ops(nullptr);
  run_pass(ops, model, kv, sequences);
  return between_ + predict(ops.calls(), ops.records(), static_cast<int32_t>(sequences.size()), 1);
}

double OpFit::predict(std::span<const OpCall> calls, std::span<const TraceRecord> records, int32_t sequences,
                      int parts) const {
  double total = 0;
  for (const OpCall& call : calls) {
    const double work = work_seconds(records.subspan(call.first, call.end - call.first), ceilings_);
    total += seconds({std::string(call.op), call.type}, rows_of(call, sequences), work * parts);
  }
  return total;
}

}  // namespace millrace
