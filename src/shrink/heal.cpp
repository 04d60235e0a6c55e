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

// A head that is the table has no slot of its own.
Slot find_slot_of(const ModelSpec& spec, std::string_view name) {
  const std::vector<Slot> all = slots(spec);
  if (const Slot* slot = find_slot(all, name)) return *slot;
  CHECK(name == "output", "no matrix {}", name);
  return {.name = "output", .rows = spec.vocab, .cols = spec.head_width()};
}

const std::byte* find_matrix(const Model& model, std::string_view name) {
  const std::byte* data = nullptr;
  ModelWeights weights = model.weights();
  visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
    if (place.matrix != nullptr && slot.name == name) data = place.matrix->data;
  });
  if (data == nullptr && name == "output") data = weights.head.data;
  CHECK(data != nullptr, "no matrix {}", name);
  return data;
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

// What a pass over both models fills.
struct HealBench::Step {
  std::span<const HealPair> pairs;
  Captures mine, theirs;
  std::vector<HealSums> sums;
};

int64_t healing_bytes(const Slot& slot) {
  // x x^T, its factor and that turned; the error, and the change that becomes of it.
  return static_cast<int64_t>(sizeof(double)) * (3 * slot.cols * slot.cols + 2 * slot.rows * slot.cols);
}

// Finds the matrices, and takes the sums once it is known that they fit.
Result<HealBench::Step> HealBench::begin(const Model& student, std::span<const HealPair> pairs,
                                         int64_t memory_limit) const {
  Step step = {.pairs = pairs, .mine = {}, .theirs = {}, .sums = {}};
  Memory room;
  if (memory_limit > 0) room.set_limit(memory_limit);
  std::vector<Slot> found;
  for (const HealPair& pair : pairs) {
    found.push_back(find_slot_of(student.spec(), pair.slot));
    const auto charged = room.charge(Purpose::workspace, healing_bytes(found.back()));
    if (!charged.ok())
      return within(
          fmt::format("no room for the sums that heal {} ({} by {})", pair.slot, found.back().rows, found.back().cols),
          charged.error());
  }
  for (const Slot& slot : found) {
    const auto cols = static_cast<size_t>(slot.cols), rows = static_cast<size_t>(slot.rows);
    step.sums.push_back(
        {.slot = slot, .products = std::vector<double>(cols * cols), .error = std::vector<double>(rows * cols)});
  }
  return step;
}

void HealBench::add(Step& step) const {
  for (size_t i = 0; i < step.sums.size(); ++i) {
    Capture &mine = step.mine.all[i], &theirs = step.theirs.all[i];
    const bool turns = !narrowing_.empty() && !step.pairs[i].outputs;
    add_step(team_, mine.inputs(), mine.given(), turns ? theirs.given(team_, narrowing_) : theirs.given(),
             step.sums[i]);
  }
}

namespace {

Result<std::vector<HealSums>> finished(std::vector<HealSums> all) {
  for (HealSums& sums : all) {
    mirror(sums.products.data(), sums.slot.cols);
    sums.lost /= static_cast<double>(std::max<int64_t>(sums.tokens, 1));
    if (!std::isfinite(sums.lost)) return error(Code::corrupt, "{}: the stream is not finite", sums.slot.name);
  }
  return all;
}

void watch(const Model& model, std::span<const HealPair> pairs, bool teacher, Captures& captures) {
  for (const HealPair& pair : pairs)
    captures.all.emplace_back(find_matrix(model, teacher ? pair.target : pair.slot), pair.outputs);
}

}  // namespace

Result<std::vector<HealSums>> HealBench::measure(const Loaded& student, std::span<const HealPair> pairs,
                                                 const PassProgress& progress) {
  TRY(Step step, begin(*student.model, pairs, options_.memory_limit));
  Side own(*student.backend);
  watch(*student.model, pairs, false, own.captures);
  side_->captures.all.clear();
  watch(teacher_, pairs, true, side_->captures);
  TRY(own.executor, Executor::create(*student.model, own.observed, side_->executor->options()));
  TextPass one(*own.executor, texts_), two(*side_->executor, texts_);
  while (!one.done()) {
    one.step(), two.step();
    step.mine.all.swap(own.captures.all), step.theirs.all.swap(side_->captures.all);
    add(step);
    step.mine.all.swap(own.captures.all), step.theirs.all.swap(side_->captures.all);
    const int64_t tokens = step.sums.front().tokens;
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  return finished(std::move(step.sums));
}

Result<void> HealBench::walk(const ModelSource& teacher, const StudentOptions& options) {
  TRY_VOID(LayerWalk::check(teacher.spec()));
  TRY(theirs_, LayerWalk::make(teacher.spec(), texts_, options));
  source_ = &teacher;
  options_ = options;
  return {};
}

Result<std::vector<HealSums>> HealBench::measure(const ModelSource& student, std::span<const HealPair> pairs,
                                                 const PassProgress& progress) {
  CHECK(source_ != nullptr && !pairs.empty(), "walk() first");
  if (mine_ == nullptr) {
    TRY(mine_, LayerWalk::make(student.spec(), texts_, options_));
  }
  auto layer_of = [](const ModelSpec& spec, const std::string& name) {
    const int32_t layer = find_slot_of(spec, name).layer;
    return layer >= 0 ? layer : static_cast<int32_t>(spec.layers.size()) - 1;
  };
  const int32_t at = layer_of(student.spec(), pairs.front().slot),
                wanted = layer_of(source_->spec(), pairs.front().target);
  for (const HealPair& pair : pairs)
    CHECK(layer_of(student.spec(), pair.slot) == at && layer_of(source_->spec(), pair.target) == wanted,
          "{} is of another layer than {}", pair.slot, pairs.front().slot);
  TRY_VOID(mine_->reach(at, student, progress));
  TRY_VOID(theirs_->reach(wanted, *source_, progress));
  TRY(const auto own, LoneLayer::load(student, at, options_));
  TRY(const auto other, LoneLayer::load(*source_, wanted, options_));
  TRY(Step step, begin(own->model(), pairs, options_.memory_limit));
  watch(own->model(), pairs, false, step.mine);
  watch(other->model(), pairs, true, step.theirs);
  own->watch(&step.mine), other->watch(&step.theirs);
  TRY(const auto one, mine_->begin(*own));
  TRY(const auto two, theirs_->begin(*other));
  while (!one->done()) {
    one->step(), two->step();
    add(step);
    const int64_t tokens = step.sums.front().tokens;
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  return finished(std::move(step.sums));
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
