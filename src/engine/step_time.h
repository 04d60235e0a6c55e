// StepTime: how long a step takes, learnt from the steps that ran: seconds = fixed + token * tokens + context * context
// + sequence * sequences, none of them negative, fitted by least squares in which older steps count less and less.
// Plain arithmetic on values given to it; engine thread only.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

struct StepShape {
  int tokens = 0;       // computed
  int64_t context = 0;  // cached tokens read, summed over them
  int sequences = 0;
};

class StepTime {
 public:
  void observe(const StepShape& shape, double seconds);
  double predict(const StepShape& shape) const;

  // Seconds for each: a step at all, a token, a token of context read by a token, a sequence.
  struct Coefficients {
    double fixed = 0, token = 0, context = 0, sequence = 0;
  };
  const Coefficients& coefficients() const { return coefficients_; }
  int64_t observations() const { return observations_; }
  bool trained() const { return observations_ >= 8; }  // before that a prediction is a guess

 private:
  static constexpr int kTerms = 4;
  void solve();
  std::array<std::array<double, kTerms>, kTerms> products_ = {};  // weighted sums of term * term
  std::array<double, kTerms> targets_ = {};                       // and of term * seconds
  Coefficients coefficients_;
  int64_t observations_ = 0;
};

}  // namespace millrace
