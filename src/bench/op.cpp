#include "bench/op.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/checked.h"
#include "base/rng.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

Tensor rows_of(std::vector<float>& values, int64_t rows, int64_t cols) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::f32, rows, cols, cols * 4};
}

std::vector<float> noise(int64_t count, uint32_t choice) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(uniform({.seed = 11, .choice = choice, .position = static_cast<uint32_t>(i)}) - 0.5);
  return values;
}

// What is called again and again: `call(i)` is the i-th call, on the i-th copy of what does not fit the caches.
struct Work {
  std::function<void(Ops&, int64_t)> call;
  int64_t copies = 1;
  Step step;
};

int64_t copies_for(int64_t bytes, int64_t footprint) {
  return std::clamp<int64_t>(footprint / std::max<int64_t>(bytes, 1) + 1, 1, 4096);
}

// Everything a test needs stays here while it runs.
class Bench {
 public:
  Bench(Backend& backend, const OpTest& test, const OpBenchOptions& options)
      : backend_(backend), test_(test), options_(options) {}

  Result<Work> prepare() {
    switch (test_.kind) {
      case OpTest::Kind::linear:
        return linear();
      case OpTest::Kind::experts:
        return experts();
      case OpTest::Kind::heads:
        return heads();
      case OpTest::Kind::attend:
        return attend();
      case OpTest::Kind::norm:
        return norm();
      case OpTest::Kind::glu:
        return glu();
    }
    return error(Code::invalid, "no such operation");
  }

 private:
  Result<Work> linear() {
    if (test_.outputs < 1 || test_.inputs < 1 || test_.inputs % format(test_.type).group != 0)
      return error(Code::invalid, "a product of {}x{}: {} needs inputs in groups of {}", test_.outputs, test_.inputs,
                   format(test_.type).name, format(test_.type).group);
    if (!(Checked(test_.outputs) * Checked(test_.inputs)).within(uint64_t{1} << 36))
      return error(Code::invalid, "a product of {}x{} is too large to try", test_.outputs, test_.inputs);
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(test_.type, test_.outputs * test_.inputs)));
    fill(bytes);
    Work work;
    int64_t each = backend_.weight_bytes(test_.type, test_.outputs, test_.inputs, WeightUse::linear);
    work.copies = copies_for(each, options_.footprint);
    for (int64_t i = 0; i < work.copies; ++i) {
      TRY(Weight weight, backend_.upload({test_.type, test_.outputs, test_.inputs, bytes}, WeightUse::linear, {}));
      weights_.push_back(weight);
    }
    in_ = noise(test_.rows * test_.inputs, 1);
    out_.resize(static_cast<size_t>(test_.rows * test_.outputs));
    work.call = [this](Ops& ops, int64_t i) {
      ops.linear(weights_[static_cast<size_t>(i)], rows_of(in_, test_.rows, test_.inputs),
                 rows_of(out_, test_.rows, test_.outputs));
    };
    return work;
  }

  // So many matrices of one shape, alike.
  Result<void> upload_many(int32_t matrices) {
    if (!(Checked(test_.outputs) * Checked(test_.inputs) * Checked(matrices)).within(uint64_t{1} << 36))
      return error(Code::invalid, "{} matrices of {}x{} are too large to try", matrices, test_.outputs, test_.inputs);
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(test_.type, test_.outputs * test_.inputs)));
    fill(bytes);
    const HostExperts host = {.experts = matrices,
                              .type = test_.type,
                              .rows = test_.outputs,
                              .cols = test_.inputs,
                              .part = [&](int64_t) -> Result<HostMatrix> {
                                return HostMatrix{test_.type, test_.outputs, test_.inputs, bytes};
                              }};
    TRY(const Weight weight, backend_.upload_experts(host, {}));
    weights_.push_back(weight);
    return {};
  }

  // A product for each head's own numbers, as latent attention has them.
  Result<Work> heads() {
    if (test_.outputs < 1 || test_.inputs < 1 || test_.inputs % format(test_.type).group != 0 || test_.heads < 1 ||
        test_.heads > 1024)
      return error(Code::invalid, "{} heads of {}x{}: {} needs inputs in groups of {}", test_.heads, test_.outputs,
                   test_.inputs, format(test_.type).name, format(test_.type).group);
    TRY_VOID(upload_many(test_.heads));
    const int64_t inputs = test_.heads * test_.inputs, outputs = test_.heads * test_.outputs;
    in_ = noise(test_.rows * inputs, 1);
    out_.resize(static_cast<size_t>(test_.rows * outputs));
    Work work;
    work.call = [this, inputs, outputs](Ops& ops, int64_t) {
      ops.linear_heads(weights_[0], rows_of(in_, test_.rows, inputs), rows_of(out_, test_.rows, outputs));
    };
    return work;
  }

  // Tokens choose at random, so experts have about as many each.
  Result<Work> experts() {
    if (test_.outputs < 1 || test_.inputs < 1 || test_.inputs % format(test_.type).group != 0 || test_.chosen < 1 ||
        test_.experts < test_.chosen || test_.experts > 1024)
      return error(Code::invalid, "{} of {} experts of {}x{}: {} needs inputs in groups of {}", test_.chosen,
                   test_.experts, test_.outputs, test_.inputs, format(test_.type).name, format(test_.type).group);
    TRY_VOID(upload_many(test_.experts));
    in_ = noise(int64_t{test_.rows} * test_.inputs, 1);
    gain_ = noise(int64_t{test_.rows} * test_.experts, 8);
    out_.resize(static_cast<size_t>(int64_t{test_.rows} * test_.chosen * test_.outputs));
    Work work;
    work.call = [this](Ops& ops, int64_t) {
      const int64_t start = ops.mark();
      const Router router = {.experts = test_.experts, .chosen = test_.chosen, .normalise = true};
      const Routing routing = ops.scratch_routing(router, test_.rows);
      ops.route(router, rows_of(gain_, test_.rows, test_.experts), routing);
      ops.linear_experts(weights_[0], routing, ExpertInput::rows, rows_of(in_, test_.rows, test_.inputs),
                         rows_of(out_, int64_t{test_.rows} * test_.chosen, test_.outputs));
      ops.restore(start);
    };
    return work;
  }

  // Random codes are as good as any: time does not depend on values, as long as they are finite.
  void fill(std::vector<std::byte>& bytes) {
    const Format& f = format(test_.type);
    std::vector<float> values = noise(f.group == 1 ? 4096 : f.group * 64, 2);
    std::vector<std::byte> pattern(static_cast<size_t>(bytes_of(test_.type, static_cast<int64_t>(values.size()))));
    if (f.from_float != nullptr) f.from_float(values.data(), pattern.data(), static_cast<int64_t>(values.size()));
    for (size_t at = 0; at < bytes.size(); at += pattern.size())
      std::memcpy(bytes.data() + at, pattern.data(), std::min(pattern.size(), bytes.size() - at));
  }

  Result<Work> attend() {
    constexpr int32_t kPageTokens = 16;
    if (test_.kv_heads < 1 || test_.heads % test_.kv_heads != 0 || test_.dim < 1)
      return error(Code::invalid, "{} heads do not share {} heads of keys and values evenly", test_.heads,
                   test_.kv_heads);
    int32_t length = test_.depth + test_.rows, pages = (length + kPageTokens - 1) / kPageTokens;
    const int64_t heads = int64_t{test_.kv_heads} * kPageTokens;
    if (test_.value_dim < 0 || test_.value_dim > test_.dim)
      return error(Code::invalid, "values of {} numbers are no part of keys of {}", test_.value_dim, test_.dim);
    const int32_t own = test_.value_dim > 0 ? 0 : test_.own_dim > 0 ? test_.own_dim : test_.dim;
    const int32_t v_dim = own > 0 ? own : test_.value_dim;
    int64_t half = heads * std::max(kv_bytes(test_.kv.k, test_.dim), kv_bytes(test_.kv.v, v_dim));
    Work work;
    work.copies = copies_for(2 * half * pages, options_.footprint);
    TRY(std::byte * base, backend_.allocate(Purpose::kv, work.copies * pages * 2 * half));
    view_ = {base, 2 * half, 0, half, kPageTokens, test_.kv_heads, test_.dim, own, test_.kv, 0};
    // Pages of one sequence lie all over the pool, as they do after a while.
    int64_t all = work.copies * pages;
    for (int64_t i = 0; i < all; ++i) page_ids_.push_back(static_cast<int32_t>(i));
    for (size_t i = page_ids_.size(); i > 1; --i) {
      double draw = uniform({.seed = 13, .position = static_cast<uint32_t>(i)});
      std::swap(page_ids_[i - 1], page_ids_[static_cast<size_t>(draw * static_cast<double>(i))]);
    }
    for (int32_t i = 0; i < test_.rows; ++i) {
      positions_.push_back(test_.depth + i);
      visible_.push_back(test_.depth + i + 1);
      sequence_.push_back(0);
    }
    first_row_ = {0, test_.rows};
    in_ = noise(int64_t{test_.rows} * test_.heads * test_.dim, 3);
    out_.resize(static_cast<size_t>(int64_t{test_.rows} * test_.heads * v_dim));
    tables_ = {page_ids_.data(), pages};
    work.step = step();
    work.call = [this, pages, v_dim](Ops& ops, int64_t i) {
      tables_ = {page_ids_.data() + i * pages, pages};
      Step now = step();
      ops.begin(now);
      Attention attention = {.heads = test_.heads, .scale = 0.125f, .value_dim = test_.value_dim};
      ops.attend(attention, rows_of(in_, test_.rows, int64_t{test_.heads} * test_.dim), view_,
                 rows_of(out_, test_.rows, int64_t{test_.heads} * v_dim));
    };
    return work;
  }

  Result<Work> norm() {
    in_ = noise(test_.rows * test_.inputs, 4);
    out_.resize(in_.size());
    gain_ = noise(test_.inputs, 5);
    Work work;
    work.call = [this](Ops& ops, int64_t) {
      Norm norm = {NormKind::rms, 1e-5f, gain_.data(), nullptr, test_.inputs};
      ops.norm(norm, 1, rows_of(in_, test_.rows, test_.inputs), rows_of(out_, test_.rows, test_.inputs));
    };
    return work;
  }

  Result<Work> glu() {
    in_ = noise(test_.rows * test_.inputs, 6);
    gain_ = noise(test_.rows * test_.inputs, 7);
    out_.resize(in_.size());
    Work work;
    work.call = [this](Ops& ops, int64_t) {
      ops.glu(Activation::silu, rows_of(in_, test_.rows, test_.inputs), rows_of(gain_, test_.rows, test_.inputs),
              rows_of(out_, test_.rows, test_.inputs));
    };
    return work;
  }

  Step step() const {
    return {.rows = test_.rows,
            .sequences = 1,
            .positions = positions_.data(),
            .visible = visible_.data(),
            .sequence = sequence_.data(),
            .first_row = first_row_.data(),
            .groups = {&tables_, 1}};
  }

  Backend& backend_;
  OpTest test_;
  OpBenchOptions options_;
  std::vector<Weight> weights_;
  std::vector<float> in_, out_, gain_;
  std::vector<int32_t> page_ids_, positions_, visible_, sequence_, first_row_;
  PageTables tables_;
  KvView view_;
};

}  // namespace

std::string OpTest::name() const {
  switch (kind) {
    case Kind::linear:
      return fmt::format("linear {}x{}", outputs, inputs);
    case Kind::experts:
      return fmt::format("{} of {} experts {}x{}", chosen, experts, outputs, inputs);
    case Kind::heads:
      return fmt::format("{} heads {}x{}", heads, outputs, inputs);
    case Kind::attend:
      return fmt::format("attend {}/{}x{}{} @ d{}", heads, kv_heads, dim,
                         value_dim > 0 ? fmt::format("x{}", value_dim)
                         : own_dim > 0 ? fmt::format("+{}", own_dim)
                                       : "",
                         depth);
    case Kind::norm:
      return fmt::format("norm {}", inputs);
    case Kind::glu:
      return fmt::format("glu {}", inputs);
  }
  return "?";
}

double OpResult::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Result<OpResult> run_op_test(Backend& backend, const OpTest& test, const Machine& machine,
                             const OpBenchOptions& options) {
  if (test.rows < 1) return error(Code::invalid, "an operation needs at least one row");
  Bench bench(backend, test, options);
  TRY(Work work, bench.prepare());
  TraceOps trace;
  trace.begin(work.step);
  work.call(trace, 0);
  TRY(std::unique_ptr<Ops> ops, backend.make_ops(trace.workspace_bytes()));
  ops->begin(work.step);
  OpResult result = {
      .test = test, .records = trace.records(), .floor = floor_of(trace.records(), machine, options.fast)};
  // As many calls as take long enough to time, after a first round that does not count.
  int64_t calls = 1, next = 0;
  for (int round = -1; round < options.repetitions;) {
    if (options.go_on && !options.go_on()) return error(Code::cancelled, "stopped");
    auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i, next = (next + 1) % work.copies) work.call(*ops, next);
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (round < 0 && seconds < options.least_seconds && calls < int64_t{1} << 24) {
      calls *= 2;
      continue;
    }
    if (round >= 0) result.seconds.push_back(seconds / static_cast<double>(calls));
    ++round;
  }
  return result;
}

}  // namespace millrace
