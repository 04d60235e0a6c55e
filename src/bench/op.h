// Speed of one operation by itself, beside the least time the machine could take for it: a product with weights of one
// format and shape, attention over a cache, or one of the small ones. Weights and cache are larger than the caches of
// the machine, as they are in a model. One thread calls it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "plan/roofline.h"

namespace millrace {

struct OpTest {
  enum class Kind : uint8_t { linear, experts, heads, attend, norm, glu };
  Kind kind = Kind::linear;
  DType type = DType::f32;                   // of weights or cache
  int32_t rows = 1;                          // tokens: of one sequence in attention, of any otherwise
  int64_t outputs = 0, inputs = 0;           // linear; norm and glu work on rows of `inputs`
  int32_t experts = 0, chosen = 0;           // experts: of them, and of a token
  int32_t heads = 0, kv_heads = 0, dim = 0;  // attend; heads: each has a product of its own
  int32_t value_dim = 0;                     // attend: values are the first so many numbers of keys; 0: of their own
  int32_t own_dim = 0;                       // attend: width of values of their own; 0: that of keys
  int32_t depth = 0;                         // attend: positions in the cache before
  KvForm kv;                                 // attend

  std::string name() const;  // "linear 2048x8192, 1 row"
};

struct OpResult {
  OpTest test;
  std::vector<double> seconds;       // of one call, one per repetition
  std::vector<TraceRecord> records;  // of one call
  Floor floor;                       // of them
  double median_seconds() const;
};

struct OpBenchOptions {
  int repetitions = 5;
  double least_seconds = 0.05;    // of calls in a repetition
  int64_t footprint = 256 << 20;  // bytes of weights or cache to go through before any is met again
  bool fast = true;               // which arithmetic the floor assumes
  std::function<bool()> go_on;    // false stops
};

// Takes memory from the backend that stays taken until the backend goes.
Result<OpResult> run_op_test(Backend& backend, const OpTest& test, const Machine& machine,
                             const OpBenchOptions& options);

}  // namespace millrace
