// Block Influence: how much a layer turns the stream.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "shrink/prune.h"

namespace millrace {
namespace {

// The stream after every layer: after the addition that follows its last product. The stream before the first layer is
// what stands there when its first addition is made, less what was added.
class LayerEnds final : public Watcher {
 public:
  explicit LayerEnds(const Model& model) : sums_(model.spec().layers.size()), counts_(sums_.size()) {
    ModelWeights weights = model.weights();
    visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
      if (place.matrix == nullptr || slot.layer < 0) return;
      const auto layer = static_cast<size_t>(slot.layer);
      if (slot.name.ends_with(".attn_output")) of_[place.matrix->data] = {layer, false};
      if (slot.name.ends_with(".ffn_down")) of_[place.matrix->data] = {layer, true};
    });
  }

  void product(const Weight& weight, Tensor, Tensor out) override {
    const auto found = of_.find(weight.data);
    if (found == of_.end()) return;
    now_ = found->second;
    added_ = out.data;
  }
  void product_of_experts(const Weight&, const Routing&, ExpertInput, Tensor) override {}
  void added(Tensor in, Tensor sum) override {
    if (added_ == nullptr || in.data != added_) return;
    added_ = nullptr;
    if (!now_.last) {
      keep(sum, in);
    } else {
      compare(sum);
    }
  }

  std::vector<double> influence() const {
    std::vector<double> out;
    for (size_t i = 0; i < sums_.size(); ++i)
      out.push_back(1 - sums_[i] / static_cast<double>(std::max<int64_t>(counts_[i], 1)));
    return out;
  }

 private:
  struct Of {
    size_t layer = 0;
    bool last = false;
  };

  // The stream as it was before the first half added to it.
  void keep(Tensor sum, Tensor in) {
    before_.clear();
    for (int64_t r = 0; r < sum.rows; ++r) {
      for (int64_t c = 0; c < sum.cols; ++c) before_.push_back(sum.row(r)[c] - in.row(r)[c]);
    }
  }
  void compare(Tensor sum) {
    if (before_.size() != static_cast<size_t>(sum.rows * sum.cols)) return;
    for (int64_t r = 0; r < sum.rows; ++r) {
      double ab = 0, aa = 0, bb = 0;
      for (int64_t c = 0; c < sum.cols; ++c) {
        const double a = before_[static_cast<size_t>(r * sum.cols + c)], b = sum.row(r)[c];
        ab += a * b, aa += a * a, bb += b * b;
      }
      sums_[now_.layer] += aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
      ++counts_[now_.layer];
    }
  }

  std::unordered_map<const std::byte*, Of> of_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
  std::vector<float> before_;
  const std::byte* added_ = nullptr;
  Of now_;
};

}  // namespace

Result<std::vector<double>> layer_influence(const Loaded& model, std::span<const ScoredText> texts,
                                            const PassProgress& progress) {
  LayerEnds ends(*model.model);
  ObservedBackend observed(*model.backend, ends);
  TRY(auto executor, Executor::create(*model.model, observed, scoring_options(texts, model.model->spec().vocab)));
  TRY_VOID(run_pass(*executor, texts, progress));
  return ends.influence();
}

std::vector<int32_t> kept_by_influence(const std::vector<double>& influence, int32_t remove) {
  std::vector<int32_t> order(influence.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return influence[static_cast<size_t>(a)] < influence[static_cast<size_t>(b)];
  });
  order.erase(order.begin(), order.begin() + std::min<int64_t>(remove, static_cast<int64_t>(order.size())));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace millrace
