// Model: a spec with its weights on a backend, ready for forward(). Made on one thread, then immutable and read by the
// engine thread. Its memory belongs to the backend, which must outlive it. Nothing of it lies in the files it came
// from: they may change once it is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/backend.h"
#include "backend/ranks/ranks.h"
#include "cache/identity.h"
#include "model/source.h"
#include "model/spec.h"
#include "model/weights.h"

namespace millrace {

struct LoadOptions {
  int64_t context = 0;                 // longest sequence that will be run; 0: as long as the model says
  Keep keep = Keep::small;             // how weights that are stored as codes and scales are kept
  KvKeep forget = {};                  // what its cache keeps; of Model::load from a checkpoint
  int64_t weight_limit = 0;            // bytes the weights may take; 0: whatever the backend's own limit allows
  bool digest = false;                 // take Model::content(), a third of a second for each gigabyte that is not known
  std::filesystem::path digests = {};  // the folder where digests taken before are known (known_digests.h); or empty
  std::function<bool(int64_t done, int64_t total)> progress;  // bytes of weights; false stops the loading
};

// What the weights of a model take on a backend, known before anything is taken. Loading charges exactly this.
struct WeightPlan {
  int64_t matrices = 0;  // as the backend packs them
  int64_t vectors = 0;   // norms, biases, rotary frequencies
  int64_t parameters = 0;

  int64_t bytes() const { return matrices + vectors; }
};

WeightPlan plan_weights(const ModelSource& source, const Backend& backend);
WeightPlan plan_weights(const ModelSpec& spec, DType type, const Backend& backend);  // every matrix in one format
// The format of a matrix, and the order of its inputs (HostMatrix::order).
using FormOf = std::function<MatrixForm(const Slot& slot)>;
WeightPlan plan_weights(const ModelSpec& spec, const FormOf& form_of, const Backend& backend);

class Model {
 public:
  static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, Backend& backend,
                                             const LoadOptions& options = {});
  static Result<std::unique_ptr<Model>> load(const ModelSource& source, Backend& backend,
                                             const LoadOptions& options = {});
  // A model of that shape without a file, for benchmarks: weights that keep activations in range, the same for a seed.
  static Result<std::unique_ptr<Model>> random(const ModelSpec& spec, DType type, uint64_t seed, Backend& backend);
  static Result<std::unique_ptr<Model>> random(const ModelSpec& spec, const FormOf& form_of, uint64_t seed,
                                               Backend& backend);
  // Shapes only, for the trace backend: weights without numbers.
  static Result<std::unique_ptr<Model>> outline(const ModelSpec& spec, DType type, Backend& trace);
  static Result<std::unique_ptr<Model>> outline(const ModelSpec& spec, const FormOf& form_of, Backend& trace);

  const ModelSpec& spec() const { return spec_; }
  const ModelWeights& weights() const { return weights_; }
  const std::optional<Stage>& stage() const { return stage_; }  // what it has of the layers; none: all
  int64_t weight_bytes() const { return plan_.bytes(); }
  int64_t parameters() const { return plan_.parameters; }
  // What was loaded: the settings as the file has them, and every tensor's name, format, shape and bytes. None unless
  // LoadOptions asked for it.
  const std::optional<Identity>& content() const { return content_; }
  const std::optional<Identity>& weights_digest() const { return weights_digest_; }  // of the weights alone

 private:
  Model(ModelSpec spec, const Backend& backend)
      : spec_(std::move(spec)), stage_(stage_of(backend, spec_.layers.size())) {}
  Result<void> fill(Backend& backend, const std::function<Result<HostMatrix>(const Slot& slot)>& make);
  Result<void> upload_constants(Backend& backend);

  ModelSpec spec_;
  ModelWeights weights_;
  std::optional<Stage> stage_;
  WeightPlan plan_;
  std::optional<Identity> content_, weights_digest_;
};

}  // namespace millrace
