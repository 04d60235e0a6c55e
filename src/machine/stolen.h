// StolenTime: how much processor time somebody else's virtual machine got that this one wanted, since it was made.
// Shown beside figures, where the system tells it. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace millrace {

struct ProcessorTimes {
  uint64_t all = 0, stolen = 0;  // in ticks, of all processors together
};

// Of the text of /proc/stat; nothing if it does not tell.
std::optional<ProcessorTimes> read_processor_times(std::string_view stat);

class StolenTime {
 public:
  StolenTime();
  std::optional<double> share() const;  // 0 .. 1, of all time that passed; nothing if the system does not tell

 private:
  std::optional<ProcessorTimes> begin_;
};

// The line beside figures that were measured meanwhile; nothing if next to nothing was stolen, or nobody tells.
std::optional<std::string> stolen_text(std::optional<double> share);
Json stolen_json(std::optional<double> share);  // null if nobody tells

}  // namespace millrace
