#include "shrink/trial.h"

#include <cstring>

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

// A matrix of codes with scales is written down as these, under a name that no slot has.
constexpr std::string_view kCodes = "codes of ";

Result<JournalRecord::Change> change_of(const Student& student, const Slot& slot) {
  const auto found = student.codes.find(code_name(slot, 0));
  if (found == student.codes.end()) return change_of(student.source, slot, 0);
  const GroupedCodes& codes = *found->second;
  JournalRecord::Change out = {.slot = std::string(kCodes) + slot.name, .expert = 0, .type = DType::f32, .bytes = {}};
  for (const auto bytes : {std::as_bytes(std::span(codes.codes)), std::as_bytes(std::span(codes.zeros)),
                           std::as_bytes(std::span(codes.scales))})
    out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
  return out;
}

Result<void> put_again(Student& student, const JournalRecord::Change& change) {
  if (!change.slot.starts_with(kCodes)) return put_change(student.source, change);
  const std::string name = change.slot.substr(kCodes.size());
  const std::vector<Slot> all = slots(student.source.spec());
  const Slot* slot = find_slot(all, name);
  const auto found = student.codes.find(name);  // rounded before, to the same grid
  if (slot == nullptr || found == student.codes.end())
    return error(Code::corrupt, "the journal has {}, which the model has not; remove it to begin anew", change.slot);
  auto codes = std::make_shared<GroupedCodes>(*found->second);
  const size_t many = codes->codes.size(), zeros = codes->zeros.size(), scales = codes->scales.size() * sizeof(float);
  if (change.bytes.size() != many + zeros + scales)
    return error(Code::corrupt, "the journal's {} are {} bytes instead of {}; remove it to begin anew", change.slot,
                 change.bytes.size(), many + zeros + scales);
  std::memcpy(codes->codes.data(), change.bytes.data(), many);
  std::memcpy(codes->zeros.data(), change.bytes.data() + many, zeros);
  std::memcpy(codes->scales.data(), change.bytes.data() + many + zeros, scales);
  put_codes(student, *slot, 0, std::move(codes));
  return {};
}

}  // namespace

Result<void> say_step(const StepReport& report, const Student& student, const std::vector<Slot>* changed,
                      const StepOptions& options) {
  if (options.journal != nullptr && changed != nullptr) {
    JournalRecord record = {.what = report.what, .figures = {report.before, report.after}, .changes = {}};
    for (size_t i = 0; report.kept && i < changed->size(); ++i) {
      TRY(JournalRecord::Change change, change_of(student, (*changed)[i]));
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
    for (const JournalRecord::Change& change : record->changes) TRY_VOID(put_again(student, change));
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
