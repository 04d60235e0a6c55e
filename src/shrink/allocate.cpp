#include "shrink/allocate.h"

#include <algorithm>

#include "model/convert.h"

namespace millrace {
namespace {

// Formats that rows of that length can have, by bytes.
std::vector<DType> ladder(int64_t cols) {
  std::vector<DType> out;
  for (DType type : {DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::q8_0}) {
    if (cols % format(type).group == 0) out.push_back(type);
  }
  if (out.size() > 1) return out;
  out.clear();
  for (DType type : {DType::q4_0, DType::q5_0, DType::q8_0}) {
    if (cols % format(type).group == 0) out.push_back(type);
  }
  return out;
}

// The sum over rows and columns of importance * error^2.
double weighed_error(std::span<const float> wanted, std::span<const float> got, std::span<const float> importance,
                     size_t cols) {
  double sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double lost = static_cast<double>(wanted[i]) - static_cast<double>(got[i]);
    sum += lost * lost * (importance.empty() ? 1 : static_cast<double>(importance[i % cols]));
  }
  return sum;
}

// The slot's matrices in a format, into `next`, and their error.
Result<double> put_in(Team& team, const ModelSource& source, const Slot& slot, const ColumnWeights& importance,
                      DType type, ModelSource& next) {
  double lost = 0;
  for (int64_t e = 0; e < slot.matrices(); ++e) {
    const std::span<const float> counts = importance.of(slot, e);
    TRY(const std::vector<float> wanted, read_matrix(source, slot, e));
    put_quantised(team, next, slot, e, wanted, type, counts);
    TRY(const std::vector<float> got, read_matrix(next, slot, e));
    lost += weighed_error(wanted, got, counts, static_cast<size_t>(slot.cols));
  }
  return lost;
}

Result<TensorCost> cost_of(Team& team, const ModelSource& source, const Slot& slot, const ColumnWeights& importance,
                           Judge& judge, const StudentOptions& options) {
  TensorCost cost = {.slot = slot.name, .types = ladder(slot.cols), .bytes = {}, .errors = {}, .kl = {}};
  cost.probe = std::min<size_t>(1, cost.types.size() - 1);  // coarse enough to be heard, fine enough to be small
  ModelSource probed = source;
  for (size_t k = 0; k < cost.types.size(); ++k) {
    ModelSource next = source;
    TRY(const double lost, put_in(team, source, slot, importance, cost.types[k], next));
    cost.bytes.push_back(slot.matrices() * bytes_of(cost.types[k], slot.rows * slot.cols));
    cost.errors.push_back(lost);
    if (k == cost.probe) probed = std::move(next);
  }
  TRY(const Loaded loaded, load_student(probed, options));
  TRY(const Comparison judged, judge.judge(*loaded.model, *loaded.backend, nullptr));
  const double error = cost.errors[cost.probe];
  for (double each : cost.errors) cost.kl.push_back(error > 0 ? judged.kl_mean() * each / error : 0);
  return cost;
}

// What an earlier run measured, or measured now and written down.
Result<TensorCost> known_cost(Team& team, const ModelSource& source, const Slot& slot, const ColumnWeights& importance,
                              Judge& judge, const StudentOptions& options, Journal* journal) {
  if (journal == nullptr) return cost_of(team, source, slot, importance, judge, options);
  const std::string what = "cost of " + slot.name;
  TensorCost cost = {.slot = slot.name, .types = ladder(slot.cols), .bytes = {}, .errors = {}, .kl = {}};
  const size_t count = cost.types.size();
  TRY(const std::optional<JournalRecord> record, journal->next(what));
  if (record && record->figures.size() == 2 * count) {
    for (DType type : cost.types) cost.bytes.push_back(slot.matrices() * bytes_of(type, slot.rows * slot.cols));
    cost.errors.assign(record->figures.begin(), record->figures.begin() + static_cast<int64_t>(count));
    cost.kl.assign(record->figures.begin() + static_cast<int64_t>(count), record->figures.end());
    cost.probe = std::min<size_t>(1, count - 1);
    return cost;
  }
  TRY(cost, cost_of(team, source, slot, importance, judge, options));
  JournalRecord made = {.what = what, .figures = cost.errors, .changes = {}};
  made.figures.insert(made.figures.end(), cost.kl.begin(), cost.kl.end());
  TRY_VOID(journal->add(made));
  return cost;
}

// Matrices that a format is chosen for; the rest is counted as fixed.
std::vector<Slot> count(const ModelSpec& spec, Allocation& out) {
  std::vector<Slot> chosen;
  for (const Slot& slot : slots(spec)) {
    out.values += slot.values();
    const bool choice = slot.kind == SlotKind::matrix && slot.weight && !slot.float32 && slot.name != "position_embd" &&
                        !ladder(slot.cols).empty();
    if (choice) {
      chosen.push_back(slot);
      if (slot.bias) out.fixed += slot.bias_size() * static_cast<int64_t>(sizeof(float));
    } else {
      out.fixed += slot.values() * static_cast<int64_t>(sizeof(float));
    }
  }
  return chosen;
}

}  // namespace

std::map<std::string, DType> Allocation::types() const {
  std::map<std::string, DType> out;
  for (const TensorCost& each : tensors) out[each.slot] = each.types[each.chosen];
  return out;
}

Result<Allocation> measure_costs(Team& team, const ModelSource& source, const ColumnWeights& importance, Judge& judge,
                                 const StudentOptions& options,
                                 const std::function<bool(size_t done, size_t total)>& tried, Journal* journal) {
  Allocation out;
  const std::vector<Slot> chosen = count(source.spec(), out);
  for (size_t i = 0; i < chosen.size(); ++i) {
    TRY(TensorCost cost, known_cost(team, source, chosen[i], importance, judge, options, journal));
    out.tensors.push_back(std::move(cost));
    if (tried && !tried(i + 1, chosen.size())) return error(Code::cancelled, "measuring was stopped");
  }
  return out;
}

Result<void> check_budget(const ModelSpec& spec, double bits) {
  Allocation least;
  for (const Slot& slot : count(spec, least)) {
    const DType type = ladder(slot.cols).front();
    least.tensors.push_back({.slot = slot.name,
                             .types = {type},
                             .bytes = {slot.matrices() * bytes_of(type, slot.rows * slot.cols)},
                             .errors = {},
                             .kl = {0}});
  }
  return allocate(least, bits);
}

Result<void> allocate(Allocation& allocation, double bits) {
  int64_t least = allocation.fixed;
  for (TensorCost& each : allocation.tensors) {
    each.chosen = 0;
    least += each.bytes.front();
  }
  const auto budget = static_cast<int64_t>(bits * static_cast<double>(allocation.values) / 8);
  const auto as_bits = [&](int64_t bytes) {
    return static_cast<double>(bytes) * 8 / static_cast<double>(allocation.values);
  };
  if (budget < least) {
    return error(Code::invalid,
                 "{} bits a number are too few: with every matrix in its smallest format the model takes {:.2f}", bits,
                 as_bits(least));
  }
  allocation.bytes = least;
  // Each time the step up that saves the most KL a byte, of those that fit; a step may skip formats that save less.
  for (;;) {
    TensorCost* best = nullptr;
    size_t best_to = 0;
    double best_gain = 0;
    for (TensorCost& each : allocation.tensors) {
      for (size_t to = each.chosen + 1; to < each.types.size(); ++to) {
        const int64_t more = each.bytes[to] - each.bytes[each.chosen];
        if (allocation.bytes + more > budget) break;
        const double gain = (each.kl[each.chosen] - each.kl[to]) / static_cast<double>(std::max<int64_t>(more, 1));
        if (gain > best_gain) best = &each, best_to = to, best_gain = gain;
      }
    }
    if (best == nullptr) break;
    allocation.bytes += best->bytes[best_to] - best->bytes[best->chosen];
    best->chosen = best_to;
  }
  allocation.kl = 0;
  for (const TensorCost& each : allocation.tensors) allocation.kl += each.kl[each.chosen];
  return {};
}

}  // namespace millrace
