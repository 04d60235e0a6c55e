// Capacity: what a model needs on a machine and how fast it could run there. Memory is what the executor itself plans;
// work is what forward() does under trace; time is the roofline's floor, a bound that no engine passes. A deployment
// may be cut over several devices (tensor parallel): each then holds and computes a model with fewer heads, a narrower
// ffn and a part of the vocabulary, and pays for reducing. Pure but for what create() traces; one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "plan/hardware.h"

namespace millrace {

struct DeployOptions {
  KvForm kv;
  int32_t chunk = 2048;  // prompt tokens of one pass
  int32_t page_tokens = 16;
  int32_t ranks = 1;  // devices a model is cut over
};

// Of one device.
struct MemoryPlan {
  int64_t weights = 0, kv = 0, workspace = 0, staging = 0, reserve = 0;
  int64_t limit = 0;
  int64_t total() const { return weights + kv + workspace + staging + reserve; }
  bool fits() const { return total() <= limit; }
};

// One pass, as one device sees it.
struct PassPlan {
  Floor floor;
  double reduce_bytes = 0;  // that a device sends
  double reduce_seconds = 0;
  double seconds() const { return floor.seconds + reduce_seconds; }
};

// The records of a pass that are the same op, summed.
struct OpPlan {
  std::string op;
  Cost cost;
  Floor floor;
};

// A point of the frontier: so many sequences at once, each with a prompt and an answer.
struct LoadPlan {
  int32_t batch = 0;
  double first_token = 0;  // seconds: the prompt alone on the machine
  double token = 0;        // seconds a decode step, half way through the answer
  double decode_rate = 0;  // tokens a second while decoding
  double served_rate = 0;  // answer tokens a second if prompts are computed in between
  MemoryPlan memory;       // when every sequence is at its end
  Bound bound = Bound::memory;
};

class Planner {
 public:
  // The model is real or an outline and belongs to one rank; so does the backend it lies on. Both outlive the planner.
  static Result<Planner> create(const Model& model, const Backend& backend, Hardware hardware,
                                const DeployOptions& options);

  const Model& model() const { return *model_; }
  const Hardware& hardware() const { return hardware_; }
  const DeployOptions& options() const { return options_; }

  // So many sequences that may each grow to so many tokens.
  Result<MemoryPlan> memory(int32_t batch, int32_t context);
  // The most sequences of so many tokens that fit; 0 if none does.
  Result<int32_t> sequences_that_fit(int32_t context);
  // The longest context that fits for so many sequences, at most what the model was made for; 0 if none does.
  Result<int32_t> context_that_fits(int32_t batch);

  PassPlan decode(int32_t batch, int32_t context) const;  // one token each, seeing `context` positions with itself
  // So many tokens of each sequence at once, all with logits, as where guesses are checked.
  PassPlan check(int32_t batch, int32_t tokens, int32_t context) const;
  PassPlan prefill(int32_t prompt) const;  // one sequence, in chunks
  std::vector<OpPlan> decode_ops(int32_t batch, int32_t context) const;
  std::vector<OpPlan> prefill_ops(int32_t prompt) const;

  // The least batch whose products of a decode step take longer to compute than to read; 0 if none up to 65536.
  int32_t compute_bound_batch() const;

  // Operations a second that the products of a step have, taken together.
  double product_rate() const;

  // 1, 2, 4 ... sequences up to what fits.
  Result<std::vector<LoadPlan>> frontier(int32_t prompt, int32_t output);
  Result<LoadPlan> load(int32_t batch, int32_t prompt, int32_t output);

 private:
  Planner(const Model& model, const Backend& backend, Hardware hardware, const DeployOptions& options)
      : model_(&model), backend_(&backend), hardware_(std::move(hardware)), options_(options) {}
  PassPlan pass(std::span<const PassRows> rows) const;
  std::vector<std::vector<PassRows>> chunks(int32_t prompt) const;
  std::vector<OpPlan> ops(std::span<const std::vector<PassRows>> passes) const;

  const Model* model_;
  const Backend* backend_;
  Hardware hardware_;
  DeployOptions options_;
  CacheLayout layout_;
  std::map<std::pair<int32_t, int32_t>, int64_t> workspaces_;  // by rows and wanted
};

// The part one of `ranks` devices has: heads, ffn width and vocabulary are divided; key/value heads down to one.
Result<ModelSpec> shard_spec(const ModelSpec& spec, int32_t ranks);

// Bytes of keys and values of a batch, as the cache lays them out.
Result<int64_t> kv_bytes(const ModelSpec& spec, const KvForm& form, int32_t batch, int32_t context,
                         int32_t page_tokens = 16);

// The same model with other attention, for comparison: many heads, shared heads, one head, a latent, keys shared by
// neighbouring layers, windows. Empty if the model's own is not of keys and values.
struct AttentionVariant {
  std::string name;
  ModelSpec spec;
  bool own = false;  // as the model is
};
std::vector<AttentionVariant> attention_variants(const ModelSpec& spec);
// With that many key/value heads in every layer.
Result<ModelSpec> with_kv_heads(const ModelSpec& spec, int32_t kv_heads);

// What storing all scores of one layer would take, and what a running maximum and sum take instead.
struct ScoreMemory {
  double stored = 0, running = 0;  // bytes
};
ScoreMemory score_memory(const ModelSpec& spec, int32_t batch, int32_t tokens, int32_t score_bytes = 4);

}  // namespace millrace
