// What `bench`, `bench batch` and `bench op` measured: a row for each test, with the ceilings its floor was made from,
// as JSON, CSV and tables have it. A row that passed its limit says why in every form. Plain values; main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/op.h"
#include "bench/step.h"

namespace millrace::apps {

class Terminal;

struct StepRow {
  std::string model, type, kv, isa, description;
  int threads = 0;
  int64_t bytes = 0, parameters = 0;
  StepResult result;
  Machine machine;
  std::optional<double> stolen;  // of processor time, while it was measured
};

struct OpRow {
  OpResult result;
  std::string isa;
  int threads = 0;
  int64_t footprint = 0;  // bytes that are gone through before any is met again
  Machine machine;
  std::optional<double> stolen;
};

JsonObject row_json(const StepRow& row);
JsonObject row_json(const OpRow& row);

// Why the row's figure is over 100 % of its limit; empty where it is not.
std::string why_over_limit(const StepRow& row);
std::string why_over_limit(const OpRow& row);

// The table, and after it what a reader must know to trust it.
void print_rows(const Terminal& terminal, const std::vector<StepRow>& rows);
void print_rows(const Terminal& terminal, const std::vector<OpRow>& rows);
void print_csv(const Terminal& terminal, const std::vector<StepRow>& rows);

}  // namespace millrace::apps
