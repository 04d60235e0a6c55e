#include "apps/cli/flags.h"

#include <algorithm>
#include <optional>

#include "apps/cli/host.h"
#include "base/team.h"
#include "session/device.h"

namespace millrace::apps {

Flag integer_flag(std::string_view name, std::string_view alias, std::string_view otherwise, double least, double most,
                  std::string_view help) {
  return {.name = name,
          .alias = alias,
          .kind = Kind::integer,
          .value = "N",
          .otherwise = otherwise,
          .least = least,
          .most = most,
          .help = help};
}

Flag number_flag(std::string_view name, std::string_view alias, std::string_view otherwise, double least, double most,
                 std::string_view help) {
  Flag flag = integer_flag(name, alias, otherwise, least, most, help);
  flag.kind = Kind::number;
  flag.value = "X";
  return flag;
}

Flag text_flag(std::string_view name, std::string_view value, std::string_view otherwise, std::string_view choices,
               std::string_view help) {
  return {.name = name, .kind = Kind::text, .value = value, .otherwise = otherwise, .choices = choices, .help = help};
}

Flag path_flag(std::string_view name, std::string_view value, std::string_view help) {
  return {.name = name, .kind = Kind::path, .value = value, .help = help};
}

Flag by_commas(Flag flag) {
  flag.many = Many::commas;
  return flag;
}

std::vector<Flag> joined(std::initializer_list<std::vector<Flag>> lists) {
  std::vector<Flag> all;
  for (const std::vector<Flag>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<Flag> timing_flags() {
  return {text_flag("activations", "HOW", "fast", "fast|float32", "arithmetic of products"),
          by_commas(integer_flag("threads", "-t", "0", 0, 1024, "numbers of threads; 0: as many as cores")),
          integer_flag("repetitions", "-r", "5", 1, 1000, "times each test runs"),
          {.name = "remeasure", .help = "measure the machine's ceilings again"}};
}

std::vector<int> thread_counts(const Arguments& arguments) {
  std::vector<int> counts;
  for (int64_t threads : arguments.integers("threads"))
    counts.push_back(threads > 0 ? static_cast<int>(threads) : Team::processors());
  return counts;
}

Result<DType> weight_format(std::string_view name) {
  const std::optional<DType> type = dtype_from_name(name);
  if (!type || !format(*type).readable())
    return error(Code::invalid, "'{}' is no weight format; try Q8_0, Q4_0, Q4_K, BF16, F16 or F32", name);
  return *type;
}

int64_t memory_limit(const Arguments& arguments) {
  if (const int64_t chosen = arguments.integer("memory-limit"); chosen != 0) return chosen;
  if (const int64_t gpu = gpu_memory(arguments.text("device")); gpu > 0) return gpu;
  const Host host = probe_host();
  return static_cast<int64_t>(std::min(host.memory_available, host.memory_limit.value_or(INT64_MAX)));
}

}  // namespace millrace::apps
