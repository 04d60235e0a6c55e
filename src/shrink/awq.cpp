#include "shrink/awq.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "shrink/layer_reader.h"

namespace millrace {
namespace {

constexpr int64_t kSampled = 128;  // rows of a matrix that alphas are compared by
constexpr double kLeast = 1e-4;

// Numbers of columns, as numbers of factors: the mean of columns that share one.
std::vector<double> by_factor(const FoldGroup& group, std::span<const double> columns) {
  std::vector<double> sums(static_cast<size_t>(group.size)), counts(sums.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    const size_t f = group.factor_of(static_cast<int64_t>(c));
    sums[f] += columns[c], counts[f] += 1;
  }
  for (size_t f = 0; f < sums.size(); ++f) sums[f] /= std::max(1.0, counts[f]);
  return sums;
}

// Some rows of a matrix that reads the group's columns, and what is known of its inputs.
struct Sample {
  Slot slot;
  std::vector<float> rows;        // [.., cols]
  std::vector<float> importance;  // [cols] or empty
  const SlotSums* sums = nullptr;
  int64_t expert = 0;
};

// The search for one group's factors.
class Search {
 public:
  Search(Team& team, const FoldGroup& group, int64_t expert, const Rounding& rounding, InputSums& sums)
      : team_(team), group_(group), expert_(expert), rounding_(rounding), sums_(sums) {}

  Result<std::vector<float>> run(const ModelSource& wide, const Folds& folds, const ColumnWeights* importance) {
    const SlotSums* first = sums_.find(group_.readers.front().name);
    CHECK(first != nullptr, "{} was watched", group_.readers.front().name);
    const auto rows = static_cast<double>(first->counts[static_cast<size_t>(expert_)]);
    if (!(rows > 0)) return std::vector<float>(static_cast<size_t>(group_.size), 1.0f);  // an expert nobody asked
    const auto cols = static_cast<size_t>(group_.readers.front().cols);
    std::vector<double> inputs(first->sizes + static_cast<size_t>(expert_) * cols,
                               first->sizes + (static_cast<size_t>(expert_) + 1) * cols);
    for (double& each : inputs) each /= rows;
    TRY_VOID(take_samples(wide, folds, importance));
    const std::vector<double> by_inputs = by_factor(group_, inputs), by_weights = by_factor(group_, weight_shares());
    std::vector<float> best(static_cast<size_t>(group_.size), 1.0f);
    double least = lost(best);
    for (int step = 1; step <= 20; ++step) {
      const bool both = step > 10;
      const double alpha = both ? 0.1 * (step - 11) : 0.1 * step;
      std::vector<float> factors = fold_factors(by_inputs, both ? by_weights : std::vector<double>(), alpha);
      const double error = lost(factors);
      if (!(error < least)) continue;
      least = error;
      best = std::move(factors);
    }
    return best;
  }

 private:
  Result<void> take_samples(const ModelSource& wide, const Folds& folds, const ColumnWeights* importance) {
    for (const Slot& reader : group_.readers) {
      if (!rounding_.takes(reader)) continue;
      const bool own = group_.giver.experts > 0;  // each expert has factors of its own
      for (int64_t e = own ? expert_ : 0; e < (own ? expert_ + 1 : reader.matrices()); ++e) {
        TRY(const std::vector<float> all, folds.matrix(wide, reader, e));
        Sample sample = {.slot = reader, .rows = {}, .importance = {}, .sums = sums_.find(reader.name), .expert = e};
        const int64_t wanted = std::max<int64_t>(1, own ? kSampled : kSampled / reader.matrices());
        const int64_t stride = std::max<int64_t>(1, reader.rows / wanted);
        for (int64_t r = 0; r < reader.rows; r += stride)
          sample.rows.insert(sample.rows.end(), all.begin() + r * reader.cols, all.begin() + (r + 1) * reader.cols);
        if (importance != nullptr) {
          const auto given = importance->of(reader, e);
          sample.importance.assign(given.begin(), given.end());
        }
        samples_.push_back(std::move(sample));
      }
    }
    return {};
  }

  std::vector<double> weight_shares() const {
    std::vector<double> mean(static_cast<size_t>(group_.readers.front().cols));
    for (const Sample& each : samples_) {
      const auto rows = static_cast<int64_t>(each.rows.size()) / each.slot.cols;
      const auto shares = shares_of_groups(each.rows, rows, each.slot.cols, rounding_.group(each.slot));
      for (size_t c = 0; c < mean.size(); ++c) mean[c] += shares[c] / static_cast<double>(samples_.size());
    }
    return mean;
  }

  // What the products would lose, squared, if columns were rounded with these factors.
  double lost(std::span<const float> factors) const {
    double sum = 0;
    for (const Sample& each : samples_) {
      const auto cols = static_cast<size_t>(each.slot.cols);
      std::vector<float> scaled = each.rows, importance = each.importance, columns(cols);
      for (size_t c = 0; c < cols; ++c) columns[c] = factors[group_.factor_of(static_cast<int64_t>(c))];
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= columns[i % cols];
      for (size_t c = 0; c < importance.size(); ++c) importance[c] /= columns[c] * columns[c];
      std::vector<float> rounded = rounding_.rounded(team_, each.slot, scaled, importance);
      for (size_t i = 0; i < rounded.size(); ++i) rounded[i] /= columns[i % cols];
      sum += error_of(each, rounded);
    }
    return sum;
  }

  // With x x^T where it was measured (of the group's first reader, whose inputs are the others' too), else by squares.
  double error_of(const Sample& sample, std::span<const float> rounded) const {
    const SlotSums* first = sums_.find(group_.readers.front().name);
    const auto cols = static_cast<size_t>(sample.slot.cols);
    const auto rows = static_cast<int64_t>(sample.rows.size() / cols);
    if (sample.slot.experts == 0 && first->products != nullptr)
      return output_error(team_, sample.rows, rounded, rows, {first->products, cols * cols}, sample.slot.cols,
                          first->rows());
    const double* squares = sample.sums->squares + static_cast<size_t>(sample.expert) * cols;
    double sum = 0;
    for (size_t i = 0; i < rounded.size(); ++i) {
      const double each = static_cast<double>(sample.rows[i]) - static_cast<double>(rounded[i]);
      sum += each * each * squares[i % cols];
    }
    return sum / static_cast<double>(std::max<int64_t>(1, first->rows()));
  }

  Team& team_;
  const FoldGroup& group_;
  int64_t expert_;
  const Rounding& rounding_;
  InputSums& sums_;
  std::vector<Sample> samples_;
};

int64_t expert_count(const FoldGroup& group) { return std::max(1, group.giver.experts); }

// Factors of a layer's groups, in the order of groups and experts, from what the student's layers before it give.
using Factors = std::vector<std::vector<float>>;
Result<Factors> choose_factors(Team& team, const ModelSource& wide, const Folds& before,
                               std::span<const FoldGroup> groups, const Rounding& rounding,
                               const ColumnWeights* importance, InputSums& sums) {
  if (!sums.broken().empty())
    return error(Code::corrupt, "{}: what it reads is not finite; the model or its format is broken", sums.broken());
  for (const FoldGroup& group : groups) {
    SlotSums* first = sums.find(group.readers.front().name);
    if (first != nullptr && first->products != nullptr) mirror(first->products, first->slot.cols);
  }
  Folds folds = before;
  Factors out;
  for (const FoldGroup& group : groups) {
    for (int64_t e = 0; e < expert_count(group); ++e) {
      TRY(std::vector<float> factors, Search(team, group, e, rounding, sums).run(wide, folds, importance));
      folds.set(group, e, factors);
      out.push_back(std::move(factors));
    }
  }
  return out;
}

void set_factors(std::span<const FoldGroup> groups, const Factors& factors, Folds& folds) {
  auto next = factors.begin();
  for (const FoldGroup& group : groups) {
    for (int64_t e = 0; e < expert_count(group); ++e) folds.set(group, e, *next++);
  }
}

// Groups of one layer after another.
std::vector<std::span<const FoldGroup>> by_layer(const FoldPlan& plan) {
  std::vector<std::span<const FoldGroup>> out;
  for (auto first = plan.groups.begin(); first != plan.groups.end();) {
    const int32_t layer = first->giver.layer;
    const auto end =
        std::find_if(first, plan.groups.end(), [&](const FoldGroup& each) { return each.giver.layer != layer; });
    out.emplace_back(first, end);
    first = end;
  }
  return out;
}

std::string step_name(std::span<const FoldGroup> groups) {
  return fmt::format("layer {} folded", groups.front().giver.layer);
}

// What a step is written down as: both figures, and if it was kept the factors.
Result<void> write_down(Journal* journal, const std::string& what, const StepReport& report, const Factors& factors) {
  if (journal == nullptr) return {};
  JournalRecord record = {.what = what, .figures = {report.before, report.after}, .changes = {}};
  for (size_t i = 0; report.kept && i < factors.size(); ++i)
    record.figures.insert(record.figures.end(), factors[i].begin(), factors[i].end());
  return journal->add(record);
}

// Factors that an earlier run kept; none if it did not keep the step.
Result<Factors> read_factors(const JournalRecord& record, std::span<const FoldGroup> groups) {
  Factors out;
  if (record.figures.size() <= 2) return out;
  std::span<const double> left = std::span(record.figures).subspan(2);
  for (const FoldGroup& group : groups) {
    for (int64_t e = 0; e < expert_count(group); ++e) {
      const auto size = static_cast<size_t>(group.size);
      if (left.size() < size) return error(Code::corrupt, "the journal's {} has too few factors", record.what);
      out.emplace_back();
      for (const double factor : left.first(size)) {
        if (!(factor > 0) || !std::isfinite(factor))
          return error(Code::corrupt, "the journal's {} has a factor of {}", record.what, factor);
        out.back().push_back(static_cast<float>(factor));
      }
      left = left.subspan(size);
    }
  }
  if (!left.empty()) return error(Code::corrupt, "the journal's {} has too many factors", record.what);
  return out;
}

// Takes the steps again that an earlier run took. How many these were.
Result<size_t> fold_again(Team& team, const ModelSource& wide, std::span<const std::span<const FoldGroup>> steps,
                          const Rounding& rounding, const ColumnWeights* importance, const StepOptions& options,
                          Student& student, Folds& folds) {
  size_t done = 0;
  for (; options.journal != nullptr && done < steps.size(); ++done) {
    TRY(const std::optional<JournalRecord> record, options.journal->next(step_name(steps[done])));
    if (!record) break;
    TRY(const Factors factors, read_factors(*record, steps[done]));
    if (!factors.empty()) set_factors(steps[done], factors, folds);
  }
  if (folds.empty()) return done;
  TRY_VOID(round_matrices(
      team, wide, folds, rounding, importance, [&](const Slot& slot) { return folds.changes(slot); }, student));
  return done;
}

// Columns' largest |w| over all readers of a group.
Result<std::vector<double>> largest_weights(const ModelSource& wide, const FoldGroup& group) {
  std::vector<double> most(static_cast<size_t>(group.size));
  for (const Slot& reader : group.readers) {
    for (int64_t e = 0; e < reader.matrices(); ++e) {
      TRY(const std::vector<float> numbers, read_matrix(wide, reader, e));
      for (size_t i = 0; i < numbers.size(); ++i) {
        double& place = most[group.factor_of(static_cast<int64_t>(i) % reader.cols)];
        place = std::max(place, std::abs(static_cast<double>(numbers[i])));
      }
    }
  }
  return most;
}

// Rounded anew with these folds, judged.
Result<Trial> refold(Team& team, const ModelSource& wide, Student student, const Folds& folds, const Rounding& rounding,
                     const ColumnWeights* importance, Judge& judge, const StepOptions& options) {
  TRY_VOID(round_matrices(
      team, wide, folds, rounding, importance, [&](const Slot& slot) { return folds.changes(slot); }, student));
  return try_out(std::move(student), judge, options);
}

}  // namespace

std::vector<float> fold_factors(std::span<const double> inputs, std::span<const double> weights, double alpha) {
  std::vector<double> factors(inputs.size(), 1.0);
  double most = 0, least = INFINITY;
  for (size_t j = 0; j < factors.size(); ++j) {
    if (!(inputs[j] > 0)) continue;
    const double below = weights.empty() ? 1 : std::pow(std::max(weights[j], kLeast), 1 - alpha);
    factors[j] = std::clamp(std::pow(inputs[j], alpha) / below, kLeast, 1 / kLeast);
    most = std::max(most, factors[j]), least = std::min(least, factors[j]);
  }
  std::vector<float> out(factors.size(), 1.0f);
  for (size_t j = 0; j < factors.size(); ++j) {
    if (inputs[j] > 0) out[j] = static_cast<float>(factors[j] / std::sqrt(most * least));
  }
  return out;
}

std::vector<double> shares_of_groups(std::span<const float> weights, int64_t rows, int64_t cols, int64_t group) {
  std::vector<double> mean(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t from = 0; from < cols; from += group) {
      const auto part =
          weights.subspan(static_cast<size_t>(r * cols + from), static_cast<size_t>(std::min(group, cols - from)));
      double most = 0;
      for (const float each : part) most = std::max(most, std::abs(static_cast<double>(each)));
      for (size_t i = 0; i < part.size() && most > 0; ++i)
        mean[static_cast<size_t>(from) + i] +=
            std::abs(static_cast<double>(part[i])) / most / static_cast<double>(rows);
    }
  }
  return mean;
}

Result<Comparison> quantise_by_awq(Team& team, const ModelSource& wide, const FoldPlan& plan, Student& student,
                                   Folds& folds, const Rounding& rounding, const ColumnWeights* importance,
                                   std::span<const ScoredText> texts, Judge& judge, const StepOptions& options) {
  const std::vector<std::span<const FoldGroup>> steps = by_layer(plan);
  TRY(const size_t before, fold_again(team, wide, steps, rounding, importance, options, student, folds));
  TRY(Trial now, try_out(student, judge, options));
  TRY(LayerReader reader, LayerReader::make(wide.spec(), texts, options));
  for (size_t step = before; step < steps.size(); ++step) {
    const std::span<const FoldGroup> groups = steps[step];
    const int32_t layer = groups.front().giver.layer;
    const auto watched = [&](const Slot& slot) {
      return std::any_of(groups.begin(), groups.end(), [&](const FoldGroup& group) {
        return group.readers.front().name == slot.name && group.readers.front().layer == slot.layer;
      });
    };
    Factors factors;
    TRY_VOID(reader.read(team, now, layer, watched, [&](InputSums& sums) -> Result<void> {
      TRY(factors, choose_factors(team, wide, folds, groups, rounding, importance, sums));
      return {};
    }));
    now.loaded = {};
    Folds next = folds;
    set_factors(groups, factors, next);
    Student changed = now.student;
    TRY_VOID(round_matrices(
        team, wide, next, rounding, importance,
        [&](const Slot& slot) { return slot.layer == layer && next.changes(slot); }, changed));
    TRY(Trial candidate, try_out(std::move(changed), judge, options));
    candidate.loaded = {};
    StepReport report = {.what = step_name(groups)};
    report.before = now.judged.kl_mean(), report.after = candidate.judged.kl_mean();
    report.kept = report.after < report.before;
    TRY_VOID(write_down(options.journal, report.what, report, factors));
    TRY(const bool kept, settle(now, std::move(candidate), report, options));
    if (kept) folds = std::move(next);
    TRY_VOID(reader.settled(now.student, layer, kept));
  }
  student = std::move(now.student);
  return now.judged;
}

Result<Comparison> quantise_by_smoothing(Team& team, const Model& teacher, Backend& backend, const ModelSource& wide,
                                         Student& student, const FoldPlan& plan, Folds& folds, const Rounding& rounding,
                                         const ColumnWeights* importance, std::span<const ScoredText> texts,
                                         Judge& judge, StepOptions options) {
  options.rounded_inputs = true;
  TRY(auto sums, InputSums::make(teacher, backend, team, nullptr));
  ObservedBackend observed(backend, *sums);
  TRY(auto executor, Executor::create(teacher, observed, scoring_options(texts, wide.spec().vocab)));
  TRY_VOID(run_pass(*executor, texts, options.progress));
  if (!sums->broken().empty())
    return error(Code::corrupt, "{}: what it reads is not finite; the model or its format is broken", sums->broken());
  const Student unfolded = student;
  TRY(Trial now, try_out(student, judge, options));
  for (const double alpha : {0.4, 0.5, 0.6, 0.7, 0.8}) {
    Folds next = folds;
    for (const FoldGroup& group : plan.groups) {
      if (!group.by_norm()) continue;
      const SlotSums* read = sums->find(group.readers.front().name);
      TRY(const std::vector<double> weights, largest_weights(wide, group));
      next.set(group, 0, fold_factors({read->most, static_cast<size_t>(group.size)}, weights, alpha));
    }
    now.loaded = {};
    TRY(Trial candidate, refold(team, wide, unfolded, next, rounding, importance, judge, options));
    TRY(const bool kept, settle(now, std::move(candidate), {.what = fmt::format("folds, alpha {}", alpha)}, options));
    if (kept) folds = std::move(next);
  }
  student = std::move(now.student);
  return now.judged;
}

}  // namespace millrace
