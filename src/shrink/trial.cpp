#include "shrink/trial.h"

#include "backend/observe/observe.h"
#include "shrink/rounded_inputs.h"

namespace millrace {
namespace {

Result<Comparison> judge_loaded(const Loaded& loaded, Judge& judge, const StepOptions& options) {
  if (!options.rounded_inputs) return judge.judge(*loaded.model, *loaded.backend, options.progress);
  RoundedInputs rounded(*loaded.model);
  ObservedBackend observed(*loaded.backend, rounded);
  return judge.judge(*loaded.model, observed, options.progress);
}

}  // namespace

Result<void> say_step(const StepReport& report, const Student& student, const std::vector<Slot>* changed,
                      const StepOptions& options) {
  if (options.journal != nullptr && changed != nullptr) {
    JournalRecord record = {.what = report.what, .figures = {report.before, report.after}, .changes = {}};
    for (size_t i = 0; report.kept && i < changed->size(); ++i) {
      TRY(JournalRecord::Change change, change_of(student.source, (*changed)[i], 0));
      record.changes.push_back(std::move(change));
    }
    TRY_VOID(options.journal->add(record));
  }
  if (options.listener && !options.listener(report)) return error(Code::cancelled, "stopped after {}", report.what);
  return {};
}

Result<size_t> take_again(Student& student, std::span<const std::string> steps, const StepOptions& options) {
  if (options.journal == nullptr) return size_t{0};
  for (size_t i = 0; i < steps.size(); ++i) {
    TRY(const std::optional<JournalRecord> record, options.journal->next(steps[i]));
    if (!record) return i;
    for (const JournalRecord::Change& change : record->changes) TRY_VOID(put_change(student.source, change));
  }
  return steps.size();
}

Result<Trial> try_out(Student student, Judge& judge, const StepOptions& options) {
  Trial trial = {.student = std::move(student), .loaded = {}, .judged = {}};
  TRY(trial.loaded, load_student(trial.student.source, options.student));
  TRY(trial.judged, judge_loaded(trial.loaded, judge, options));
  return trial;
}

Result<void> load_again(Trial& trial, const StepOptions& options) {
  if (trial.loaded.model != nullptr) return {};
  TRY(trial.loaded, load_student(trial.student.source, options.student));
  return {};
}

Result<bool> settle(Trial& now, Trial candidate, StepReport report, const StepOptions& options,
                    const std::vector<Slot>* changed) {
  report.before = now.judged.kl_mean();
  report.after = candidate.judged.kl_mean();
  report.kept = report.after < report.before;
  if (report.kept) now = std::move(candidate);
  TRY_VOID(say_step(report, now.student, changed, options));
  return report.kept;
}

}  // namespace millrace
