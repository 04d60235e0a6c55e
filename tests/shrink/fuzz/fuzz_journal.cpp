// Any bytes as a journal: whole records and where they end, or an error of one line.
#include "base/check.h"
#include "shrink/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto read = read_journal(bytes, "job");
  if (!read.ok()) {
    CHECK(!read.error().message.empty() && read.error().message.find('\n') == std::string::npos);
    return 0;
  }
  CHECK(read->end <= size);
  for (const JournalRecord& record : read->records) {
    for (const JournalRecord::Change& change : record.changes) CHECK(change.expert >= 0 && change.bytes.size() <= size);
  }
  // What was read is all that is read again from the part that is whole.
  const auto again = read_journal(bytes.substr(0, read->end), "job");
  CHECK(again.ok() && again->records.size() == read->records.size() && again->end == read->end);
  return 0;
}
