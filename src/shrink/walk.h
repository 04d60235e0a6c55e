// A walk through a model layer by layer: what enters a layer is kept for every token of the texts, one layer is loaded
// and run over all of them, and what leaves it enters the next. A method that changes layer after layer so computes
// each of them once or twice, not the whole model once a layer. Every number is the one a whole pass computes, bit for
// bit: a layer runs as a rank that has that layer alone does (backend/ranks). Memory is counted and taken before
// anything runs. One thread.
#pragma once

#include <memory>
#include <span>

#include "backend/memory.h"
#include "backend/observe/observe.h"
#include "model/model.h"
#include "shrink/passes.h"
#include "shrink/student.h"

namespace millrace {

class CarryComm;

// One layer of a model, loaded alone; the last with the head.
class LoneLayer {
 public:
  static Result<std::unique_ptr<LoneLayer>> load(const ModelSource& source, int32_t layer,
                                                 const StudentOptions& options);
  ~LoneLayer();
  const Model& model() const { return *model_; }
  Backend& backend() { return *backend_; }
  int32_t layer() const { return layer_; }
  void watch(Watcher* watcher) { shown_.to = watcher; }  // from now on; null: nobody

 private:
  friend class LayerWalk;
  // Whoever watches now.
  struct Shown final : Watcher {
    void product(const Weight& weight, Tensor in, Tensor out) override {
      if (to != nullptr) to->product(weight, in, out);
    }
    void product_of_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in) override {
      if (to != nullptr) to->product_of_experts(weight, routing, input, in);
    }
    void added(Tensor in, Tensor sum) override {
      if (to != nullptr) to->added(in, sum);
    }
    Watcher* to = nullptr;
  };
  LoneLayer() = default;

  int32_t layer_ = 0;
  Shown shown_;
  std::shared_ptr<CarryComm> comm_;
  std::unique_ptr<Backend> inner_, backend_;
  std::unique_ptr<Model> model_;
};

// One layer on its way over all texts, step by step.
class LayerPass {
 public:
  ~LayerPass();
  bool done() const { return pass_.done(); }
  void step() { pass_.step(); }
  std::span<const TextPass::Row> rows() const { return pass_.rows(); }

 private:
  friend class LayerWalk;
  LayerPass(CarryComm& comm, std::unique_ptr<Executor> executor, std::span<const ScoredText> texts)
      : comm_(comm), executor_(std::move(executor)), pass_(*executor_, texts) {}

  CarryComm& comm_;
  std::unique_ptr<Executor> executor_;
  TextPass pass_;
};

class LayerWalk {
 public:
  // Whether layers of such a model can run one by one: rows of the stream must be all that goes between them.
  static Result<void> check(const ModelSpec& spec);
  // What it takes for texts of so many tokens.
  static int64_t bytes(int64_t tokens, int64_t width);
  // The texts outlive it. Refused with the numbers if it does not fit options.memory_limit.
  static Result<std::unique_ptr<LayerWalk>> make(const ModelSpec& spec, std::span<const ScoredText> texts,
                                                 const StudentOptions& options);

  int32_t layer() const { return layer_; }  // whose turn it is
  // Runs that layer over what enters it, and keeps what leaves it instead of what an earlier run of it gave.
  Result<std::unique_ptr<LayerPass>> begin(LoneLayer& layer);
  Result<void> run(LoneLayer& layer, const PassProgress& progress);
  // What left the layer enters the next.
  void advance();
  // Until it is the turn of that layer, with layers of the source as they are now; from the first on if it is past.
  Result<void> reach(int32_t layer, const ModelSource& source, const PassProgress& progress);

 private:
  LayerWalk(std::span<const ScoredText> texts, int64_t width, const StudentOptions& options)
      : texts_(texts), width_(width), options_(options) {}

  std::span<const ScoredText> texts_;
  int64_t width_;
  StudentOptions options_;
  int32_t layer_ = 0;
  Memory memory_;
  std::vector<int64_t> first_;            // row of each text
  float *in_ = nullptr, *out_ = nullptr;  // [tokens, width]
};

}  // namespace millrace
