// Fit: from the floor, which no engine reaches, to what this engine takes here. Calls of the running model are timed
// (backend/timed), and for every op and format, at each number of rows that was timed, a line is laid through them:
// seconds = fixed + slope x floor. The fixed part is waking the team and walking the op, the slope is how far above its
// limit the kernel runs. Between timed numbers of rows both are interpolated. Predictions for other depths, batches and
// prompt lengths follow from their traces. Pure but for what it is given; one thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/timed/timed.h"
#include "plan/roofline.h"

namespace millrace {

// The least a call could take: moving weights, cache and activations, or computing.
double work_seconds(std::span<const TraceRecord> records, const Ceilings& ceilings);

class OpFit {
 public:
  explicit OpFit(const Ceilings& ceilings) : ceilings_(ceilings) {}

  // Calls of passes that ran on a model, each with its time; `sequences` took part in every step. Several runs of the
  // same pass count by their median.
  void add(const CallOps& calls, int32_t sequences);
  // Lays the lines. `between` is the time of a step that belongs to no call.
  void settle();

  // Seconds of a pass that is traced now.
  double predict(const Model& model, const KvForm& kv, std::span<const PassRows> sequences) const;
  // Of calls that were counted, with their records, on one part of so many of the machine; without between().
  double predict(std::span<const OpCall> calls, std::span<const TraceRecord> records, int32_t sequences,
                 int parts) const;

  struct Line {
    double fixed = 0, slope = 1;
    int64_t samples = 0;
  };
  // By op, format and rows (of attention: rows of a sequence).
  struct Key {
    std::string op;
    DType type = DType::f32;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  const std::map<Key, std::map<int64_t, Line>>& lines() const { return lines_; }
  double between() const { return between_; }

 private:
  struct Sample {
    double work = 0, seconds = 0;
  };
  double seconds(const Key& key, int64_t rows, double work) const;

  Ceilings ceilings_;
  std::map<Key, std::map<int64_t, std::vector<Sample>>> samples_;
  std::map<Key, std::map<int64_t, Line>> lines_;
  std::vector<double> gaps_;
  double between_ = 0;
};

}  // namespace millrace
