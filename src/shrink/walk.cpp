#include "shrink/walk.h"

#include <algorithm>
#include <cstring>

#include "backend/ranks/ranks.h"
#include "base/check.h"
#include "base/human.h"
#include "model/check_backend.h"

namespace millrace {

// Stands for the ranks that have the other layers: gives the rows that entered, and takes those that leave.
class CarryComm final : public Comm {
 public:
  CarryComm(int layer, int layers) : layer_(layer), layers_(layers) {}
  int rank() const override { return layer_; }
  int ranks() const override { return layers_; }
  const char* name() const override { return "layer by layer"; }
  void broadcast(std::vector<std::byte>&) override {}  // nobody else is there

  // Where rows of the pass lie.
  const TextPass* pass = nullptr;
  std::span<const int64_t> first;
  const float* in = nullptr;
  float* out = nullptr;
  int64_t width = 0;

 protected:
  void move(const Movement& movement) override {
    if (!movement.columns.empty()) return agree_with(movement);
    const int from = movement.owners.empty() ? -1 : movement.owners.front();
    const bool gives = from + 1 == layer_, takes = from == layer_ && layer_ + 1 < layers_;
    if (!gives && !takes) return;
    const auto bytes = static_cast<size_t>(width) * sizeof(float);
    for (size_t r = 0; r < static_cast<size_t>(movement.rows.rows); ++r) {
      const TextPass::Row& row = pass->rows()[r];
      const int64_t at = (first[row.text] + row.position) * width;
      float* const here = movement.rows.row(static_cast<int64_t>(r));
      if (gives) std::memcpy(here, in + at, bytes);
      if (takes) std::memcpy(out + at, here, bytes);
    }
  }

 private:
  // The others say what this one says.
  void agree_with(const Movement& movement) const {
    for (const SharedColumns& each : movement.columns) {
      float* const row = each.tensor.row(0);
      std::fill_n(row, each.tensor.cols, row[layer_]);
    }
  }

  int layer_, layers_;
};

Result<std::unique_ptr<LoneLayer>> LoneLayer::load(const ModelSource& source, int32_t layer,
                                                   const StudentOptions& options) {
  std::unique_ptr<LoneLayer> out(new LoneLayer);
  const auto layers = static_cast<int>(source.spec().layers.size());
  CHECK(layer >= 0 && layer < layers, "layer {} of {}", layer, layers);
  out->layer_ = layer;
  out->comm_ = std::make_shared<CarryComm>(layer, layers);
  TRY(out->inner_, make_cpu_backend(options.cpu));
  if (options.memory_limit > 0) out->inner_->set_limit(options.memory_limit);
  TRY(out->backend_,
      make_rank_backend(std::make_unique<ObservedBackend>(*out->inner_, out->shown_), out->comm_, RankCut::layers));
  TRY(out->model_, Model::load(source, *out->backend_, {.context = options.context}));
  return out;
}

LoneLayer::~LoneLayer() = default;

LayerPass::~LayerPass() { comm_.pass = nullptr; }

Result<void> LayerWalk::check(const ModelSpec& spec) {
  const auto layers = static_cast<int>(spec.layers.size());
  TRY(auto inner, make_cpu_backend({.threads = 1}));
  TRY(const auto backend, make_rank_backend(std::move(inner), std::make_shared<CarryComm>(0, layers), RankCut::layers));
  return check_backend(spec, *backend);
}

int64_t LayerWalk::bytes(int64_t tokens, int64_t width) {
  return 2 * tokens * width * static_cast<int64_t>(sizeof(float));
}

Result<std::unique_ptr<LayerWalk>> LayerWalk::make(const ModelSpec& spec, std::span<const ScoredText> texts,
                                                   const StudentOptions& options) {
  std::unique_ptr<LayerWalk> out(new LayerWalk(texts, spec.width, options));
  int64_t tokens = 0;
  for (const ScoredText& text : texts) {
    out->first_.push_back(tokens);
    tokens += std::max<int64_t>(0, static_cast<int64_t>(text.tokens.size()) - 1);
  }
  if (options.memory_limit > 0) out->memory_.set_limit(options.memory_limit);
  const int64_t all = bytes(tokens, spec.width);
  auto memory = out->memory_.take(Purpose::workspace, std::max<int64_t>(all, 1));
  if (!memory.ok())
    return within(fmt::format("no room for what enters and leaves a layer, {} tokens of {} numbers each; use less text "
                              "(--limit)",
                              tokens, spec.width),
                  memory.error());
  out->in_ = reinterpret_cast<float*>(*memory);
  out->out_ = out->in_ + tokens * spec.width;
  return out;
}

Result<std::unique_ptr<LayerPass>> LayerWalk::begin(LoneLayer& layer) {
  CHECK(layer.layer() == layer_, "layer {} in the turn of {}", layer.layer(), layer_);
  const ExecutorOptions options = scoring_options(texts_, layer.model().spec().vocab);
  TRY(auto executor, Executor::create(layer.model(), layer.backend(), options));
  CarryComm& comm = *layer.comm_;
  std::unique_ptr<LayerPass> pass(new LayerPass(comm, std::move(executor), texts_));
  comm.pass = &pass->pass_;
  comm.first = first_;
  comm.in = in_, comm.out = out_, comm.width = width_;
  return pass;
}

Result<void> LayerWalk::run(LoneLayer& layer, const PassProgress& progress) {
  TRY(const auto pass, begin(layer));
  int64_t tokens = 0;
  while (!pass->done()) {
    pass->step();
    tokens += static_cast<int64_t>(pass->rows().size());
    if (progress && !progress(tokens)) return error(Code::cancelled, "stopped after {} tokens", tokens);
  }
  return {};
}

void LayerWalk::advance() {
  std::swap(in_, out_);
  ++layer_;
}

Result<void> LayerWalk::reach(int32_t layer, const ModelSource& source, const PassProgress& progress) {
  if (layer < layer_) layer_ = 0;
  while (layer_ < layer) {
    TRY(const auto alone, LoneLayer::load(source, layer_, options_));
    TRY_VOID(run(*alone, progress));
    advance();
  }
  return {};
}

}  // namespace millrace
