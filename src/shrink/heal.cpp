#include "shrink/heal.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"
#include "shrink/solve.h"
#include "shrink/sums.h"

namespace millrace {
namespace {

// Keeps what one product read in a step, and the stream after its result was added, or the result itself.
class Capture {
 public:
  Capture(const std::byte* data, bool outputs) : data_(data), outputs_(outputs) {}

  void product(const Weight& weight, Tensor in, Tensor out) {
    if (weight.data != data_) return;
    keep(in, inputs_);
    if (outputs_) return keep(out, given_);
    added_ = out.data;
  }
  void added(Tensor in, Tensor sum) {
    if (added_ == nullptr || in.data != added_) return;
    keep(sum, given_);
    added_ = nullptr;
  }

  Tensor inputs() { return view(inputs_); }
  Tensor given() { return view(given_); }
  // What was given, in a stream of fewer numbers.
  Tensor given(Team& team, std::span<const float> rows) {
    const auto wide = static_cast<size_t>(given_.cols);
    Rows next = {.numbers = {}, .rows = given_.rows, .cols = static_cast<int64_t>(rows.size() / wide)};
    next.numbers.resize(static_cast<size_t>(next.rows * next.cols));
    team.each(next.rows, [&](int64_t r, int) {
      const float* x = &given_.numbers[static_cast<size_t>(r) * wide];
      for (int64_t c = 0; c < next.cols; ++c) {
        const float* y = &rows[static_cast<size_t>(c) * wide];
        double sum = 0;
        for (size_t k = 0; k < wide; ++k) sum += static_cast<double>(x[k]) * static_cast<double>(y[k]);
        next.numbers[static_cast<size_t>(r * next.cols + c)] = static_cast<float>(sum);
      }
    });
    given_ = std::move(next);
    return view(given_);
  }

 private:
  struct Rows {
    std::vector<float> numbers;
    int64_t rows = 0, cols = 0;
  };
  static void keep(Tensor from, Rows& to) {
    to.rows = from.rows, to.cols = from.cols;
    to.numbers.resize(static_cast<size_t>(from.rows * from.cols));
    for (int64_t r = 0; r < from.rows; ++r)
      std::memcpy(&to.numbers[static_cast<size_t>(r * from.cols)], from.row(r),
                  static_cast<size_t>(from.cols) * sizeof(float));
  }
  static Tensor view(Rows& rows) {
    return {reinterpret_cast<std::byte*>(rows.numbers.data()), DType::f32, rows.rows, rows.cols,
            rows.cols * static_cast<int64_t>(sizeof(float))};
  }

  const std::byte* data_ = nullptr;
  bool outputs_ = false;
  const std::byte* added_ = nullptr;  // the result that is yet to be added
  Rows inputs_, given_;
};

// Several of them watch one pass.
class Captures final : public Watcher {
 public:
  void product(const Weight& weight, Tensor in, Tensor out) override {
    for (Capture& each : all) each.product(weight, in, out);
  }
  void product_of_experts(const Weight&, const Routing&, ExpertInput, Tensor) override {}
  void added(Tensor in, Tensor sum) override {
    for (Capture& each : all) each.added(in, sum);
  }

  std::vector<Capture> all;
};

struct Found {
  Slot slot;
  const std::byte* data = nullptr;
};

Found find_matrix(const Model& model, std::string_view name) {
  Found found;
  ModelWeights weights = model.weights();
  visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
    if (place.matrix != nullptr && slot.name == name) found = {slot, place.matrix->data};
  });
  // A head that is the table has no slot of its own.
  if (found.data == nullptr && name == "output")
    found = {{.name = "output", .rows = model.spec().vocab, .cols = model.spec().head_width()}, weights.head.data};
  CHECK(found.data != nullptr, "no matrix {}", name);
  return found;
}

}  // namespace

Result<void> check_healable(const ModelSpec& spec) {
  std::string_view why;
  if (spec.streams || spec.layer_input) why = "it has several streams or inputs of layers' own";
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mixer_post_norm || layer.ffn_post_norm || layer.stream_norms)
      why = "norms stand between halves and stream";
    if (layer.parallel || layer.beside || layer.shared || layer.laurel > 0 || layer.scaled)
      why = "halves are not added one by one";
    if (layer.residual_scale != 1 || layer.mixer_keep != 1 || layer.ffn_keep != 1) why = "what is added is scaled";
    const auto* dense = std::get_if<DenseSpec>(&layer.ffn);
    const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    if ((dense != nullptr && dense->out_scale != 1) || (gqa != nullptr && gqa->out_scale != 1))
      why = "what is added is scaled";
  }
  if (why.empty()) return {};
  return error(Code::unsupported, "{} cannot be healed: {}; use --no-heal", spec.architecture, why);
}

std::vector<HealPair> heal_order(const ModelSpec& student, std::span<const int32_t> layers, int32_t teacher_layers) {
  std::vector<HealPair> out;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int32_t reaches = i + 1 < layers.size() ? layers[i + 1] - 1 : teacher_layers - 1;
    const LayerSpec& layer = student.layers[i];
    if (std::holds_alternative<GqaSpec>(layer.mixer)) {
      out.push_back({fmt::format("blk.{}.attn_output", i), fmt::format("blk.{}.attn_output", layers[i])});
    }
    if (std::holds_alternative<DenseSpec>(layer.ffn)) {
      out.push_back({fmt::format("blk.{}.ffn_down", i), fmt::format("blk.{}.ffn_down", reaches)});
    }
  }
  return out;
}

struct HealBench::Side {
  explicit Side(Backend& backend) : observed(backend, captures) {}
  Captures captures;
  ObservedBackend observed;
  std::unique_ptr<Executor> executor;
};

HealBench::HealBench(Team& team, const Model& teacher, std::span<const ScoredText> texts)
    : team_(team), teacher_(teacher), texts_(texts) {}
HealBench::~HealBench() = default;

Result<std::unique_ptr<HealBench>> HealBench::make(Team& team, const Model& teacher, Backend& backend,
                                                   std::span<const ScoredText> texts) {
  std::unique_ptr<HealBench> out(new HealBench(team, teacher, texts));
  out->side_ = std::make_unique<Side>(backend);
  TRY(out->side_->executor,
      Executor::create(teacher, out->side_->observed, scoring_options(texts, teacher.spec().vocab)));
  return out;
}

namespace {

// What a step of both models adds to the sums of a pair.
void add_step(Team& team, Tensor inputs, Tensor have, Tensor want, HealSums& sums) {
  CHECK(have.rows == want.rows && have.cols == want.cols && inputs.rows == have.rows, "rows side by side");
  for (int64_t r = 0; r < have.rows; ++r) {
    for (int64_t c = 0; c < have.cols; ++c) {
      want.row(r)[c] -= have.row(r)[c];
      sums.lost += static_cast<double>(want.row(r)[c]) * static_cast<double>(want.row(r)[c]);
    }
  }
  add_products(team, inputs, inputs, true, sums.products.data());
  add_products(team, want, inputs, false, sums.error.data());
  sums.tokens += inputs.rows;
}

}  // namespace

Result<HealSums> HealBench::measure(const Loaded& student, const HealPair& pair, const PassProgress& progress) {
  TRY(std::vector<HealSums> sums, measure(student, std::span(&pair, 1), progress));
  return std::move(sums.front());
}

Result<std::vector<HealSums>> HealBench::measure(const Loaded& student, std::span<const HealPair> pairs,
                                                 const PassProgress& progress) {
  Side own(*student.backend);
  side_->captures.all.clear();
  std::vector<HealSums> out;
  for (const HealPair& pair : pairs) {
    const Found mine = find_matrix(*student.model, pair.slot), wanted = find_matrix(teacher_, pair.target);
    own.captures.all.emplace_back(mine.data, pair.outputs);
    side_->captures.all.emplace_back(wanted.data, pair.outputs);
    const auto cols = static_cast<size_t>(mine.slot.cols), rows = static_cast<size_t>(mine.slot.rows);
    out.push_back(
        {.slot = mine.slot, .products = std::vector<double>(cols * cols), .error = std::vector<double>(rows * cols)});
  }
  TRY(own.executor, Executor::create(*student.model, own.observed, side_->executor->options()));
  TextPass one(*own.executor, texts_), two(*side_->executor, texts_);
  while (!one.done()) {
    one.step(), two.step();
    for (size_t i = 0; i < out.size(); ++i) {
      Capture &mine = own.captures.all[i], &theirs = side_->captures.all[i];
      const bool turns = !narrowing_.empty() && !pairs[i].outputs;
      add_step(team_, mine.inputs(), mine.given(), turns ? theirs.given(team_, narrowing_) : theirs.given(), out[i]);
    }
    const int64_t tokens = out.front().tokens;
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  for (HealSums& sums : out) {
    mirror(sums.products.data(), sums.slot.cols);
    sums.lost /= static_cast<double>(std::max<int64_t>(sums.tokens, 1));
    if (!std::isfinite(sums.lost)) return error(Code::corrupt, "{}: the stream is not finite", sums.slot.name);
  }
  return out;
}

Result<std::vector<float>> healed(Team& team, const HealSums& sums, std::span<const float> weights, double& ridge) {
  const int64_t cols = sums.slot.cols, rows = sums.slot.rows;
  const auto n = static_cast<size_t>(cols);
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += sums.products[i * n + i] / static_cast<double>(cols);
  // Fewer tokens than inputs leave directions open: a larger ridge keeps the matrix as it is there.
  if (sums.tokens < cols) ridge = std::max(ridge, 0.1);
  for (; ridge <= 100; ridge *= 10) {
    std::vector<double> factor = sums.products;
    for (size_t i = 0; i < n; ++i) factor[i * n + i] += ridge * mean + 1e-30;
    if (!cholesky(team, factor.data(), cols)) continue;
    std::vector<double> change = sums.error;
    solve_rows(team, factor.data(), cols, change.data(), rows);
    std::vector<float> out(weights.begin(), weights.end());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(static_cast<double>(out[i]) + change[i]);
      if (!std::isfinite(out[i]))
        return error(Code::corrupt, "{}: healing gives numbers that are not finite", sums.slot.name);
    }
    return out;
  }
  return error(Code::corrupt, "{}: inputs have no curvature that can be inverted", sums.slot.name);
}

}  // namespace millrace
