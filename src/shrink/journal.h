// Journal: what a long job has decided so far, in a file beside its target, so that a run which was interrupted or
// killed goes on where it was and ends with the same bytes. Records stand in the order in which steps are taken; a run
// asks for each step whether it was taken before. A record that was cut short by the end of the process is dropped. One
// thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/source.h"

namespace millrace {

struct JournalRecord {
  struct Change {
    std::string slot;
    int64_t expert = 0;
    DType type = DType::f32;
    std::vector<std::byte> bytes;
  };
  std::string what;
  std::vector<double> figures;
  std::vector<Change> changes;
};

// What a journal's bytes say: the records that are whole, and where they end. Refused: what is no journal, or one of
// something else than `of`.
struct JournalBytes {
  std::vector<JournalRecord> records;
  size_t end = 0;
};
Result<JournalBytes> read_journal(std::string_view bytes, std::string_view of);

class Journal {
 public:
  // `of` says what the job is made of: model, text, flags. A file of another job is refused; none is made before the
  // first record.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& path, std::string_view of);
  ~Journal();

  size_t found() const { return found_; }  // records of an earlier run
  const std::filesystem::path& path() const { return path_; }
  // The step's record, if an earlier run made it. A step of another name than the record's is refused.
  Result<std::optional<JournalRecord>> next(std::string_view what);
  Result<void> add(const JournalRecord& record);
  void remove();  // the job is done
  bool is_there() const { return fd_ >= 0; }

 private:
  Journal(std::filesystem::path path, std::string head) : path_(std::move(path)), head_(std::move(head)) {}

  std::filesystem::path path_;
  std::string head_;
  int fd_ = -1;
  std::vector<JournalRecord> records_;  // that were not asked for yet, the last first
  size_t found_ = 0;
};

// A change as a record keeps it: the slot's matrix as the source has it now; and put back.
Result<JournalRecord::Change> change_of(const ModelSource& source, const Slot& slot, int64_t expert);
Result<void> put_change(ModelSource& source, const JournalRecord::Change& change);

}  // namespace millrace
