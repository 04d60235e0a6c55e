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

// Keeps what one product read in a step, and the stream after its result was added.
class Capture final : public Watcher {
 public:
  void watch(const std::byte* data) { data_ = data, added_ = nullptr; }

  void product(const Weight& weight, Tensor in, Tensor out) override {
    if (weight.data != data_) return;
    keep(in, inputs_);
    added_ = out.data;
  }
  void product_of_experts(const Weight&, const Routing&, ExpertInput, Tensor) override {}
  void added(Tensor in, Tensor sum) override {
    if (added_ == nullptr || in.data != added_) return;
    keep(sum, stream_);
    added_ = nullptr;
  }

  Tensor inputs() { return view(inputs_); }
  Tensor stream() { return view(stream_); }

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
  const std::byte* added_ = nullptr;  // the result that is yet to be added
  Rows inputs_, stream_;
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
    if (layer.parallel || layer.beside || layer.laurel > 0 || layer.scaled) why = "halves are not added one by one";
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
  explicit Side(Backend& backend) : observed(backend, capture) {}
  Capture capture;
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

Result<HealSums> HealBench::measure(const Loaded& student, const HealPair& pair, const PassProgress& progress) {
  const Found mine = find_matrix(*student.model, pair.slot), wanted = find_matrix(teacher_, pair.target);
  Side own(*student.backend);
  own.capture.watch(mine.data);
  side_->capture.watch(wanted.data);
  TRY(own.executor, Executor::create(*student.model, own.observed, side_->executor->options()));
  HealSums sums = {.slot = mine.slot};
  const auto cols = static_cast<size_t>(mine.slot.cols), rows = static_cast<size_t>(mine.slot.rows);
  sums.products.resize(cols * cols);
  sums.error.resize(rows * cols);
  TextPass one(*own.executor, texts_), two(*side_->executor, texts_);
  while (!one.done()) {
    one.step(), two.step();
    const Tensor inputs = own.capture.inputs(), have = own.capture.stream(), want = side_->capture.stream();
    CHECK(have.rows == want.rows && have.cols == want.cols && inputs.rows == have.rows, "rows side by side");
    for (int64_t r = 0; r < have.rows; ++r) {
      for (int64_t c = 0; c < have.cols; ++c) {
        want.row(r)[c] -= have.row(r)[c];
        sums.lost += static_cast<double>(want.row(r)[c]) * static_cast<double>(want.row(r)[c]);
      }
    }
    add_products(team_, inputs, inputs, true, sums.products.data());
    add_products(team_, want, inputs, false, sums.error.data());
    sums.tokens += inputs.rows;
    if (progress && !progress(sums.tokens)) return error(Code::cancelled, "stopped after {} tokens", sums.tokens);
  }
  mirror(sums.products.data(), mine.slot.cols);
  sums.lost /= static_cast<double>(std::max<int64_t>(sums.tokens, 1));
  if (!std::isfinite(sums.lost)) return error(Code::corrupt, "{}: the stream is not finite", pair.slot);
  return sums;
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
