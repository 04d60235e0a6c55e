// Rows of flag tables, by kind, and the values that several verbs read from theirs in the same way. Main thread.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "apps/cli/cli.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace millrace::apps {

Flag integer_flag(std::string_view name, std::string_view alias, std::string_view otherwise, double least, double most,
                  std::string_view help);
Flag number_flag(std::string_view name, std::string_view alias, std::string_view otherwise, double least, double most,
                 std::string_view help);
// `choices` as in Flag; empty: anything.
Flag text_flag(std::string_view name, std::string_view value, std::string_view otherwise, std::string_view choices,
               std::string_view help);
Flag path_flag(std::string_view name, std::string_view value, std::string_view help);
// The same flag, taking several values by comma.
Flag by_commas(Flag flag);

std::vector<Flag> joined(std::initializer_list<std::vector<Flag>> lists);

// --activations --threads --repetitions --remeasure: how something is timed.
std::vector<Flag> timing_flags();
// The threads to time with, one number after another.
std::vector<int> thread_counts(const Arguments& arguments);

// A format weights may have, by its name.
Result<DType> weight_format(std::string_view name);
// --memory-limit, or what the machine has free.
int64_t memory_limit(const Arguments& arguments);

}  // namespace millrace::apps
