// ModelSource: a checkpoint read as a model. It knows the architecture, the spec, and where the file keeps each slot:
// under which name, in which fused or transposed tensor, in which order of rows. Everything is found and checked when
// it is opened; afterwards it only hands out numbers. The checkpoint must outlive it. Any thread, once open.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "model/architecture.h"
#include "model/kv_keep.h"
#include "model/slots.h"
#include "tensor/checkpoint.h"
#include "tensor/stored_matrix.h"

namespace millrace {

class ModelSource {
 public:
  // `context` is the longest sequence that will be run; 0: as long as the model says. Errors name the tensor or key,
  // what was expected and what was found: missing, unexpected and misshapen tensors, keys out of range, unknown
  // architectures.
  // `keep` says how weights that are stored as codes and scales are handed out.
  static Result<ModelSource> open(const Checkpoint& checkpoint, int64_t context = 0, Keep keep = Keep::exact);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const Architecture& architecture() const { return *architecture_; }
  const Config& config() const { return config_; }
  const ModelSpec& spec() const { return spec_; }
  // Layers of the file that predict further tokens and are left out.
  int32_t layers_ahead() const { return ahead_; }

  // The slot's weight, or that of one of its experts, as [rows, cols], out of the mapped file where it lies so, else
  // put into `room`.
  Result<HostMatrix> matrix(const Slot& slot, int64_t expert, std::vector<std::byte>& room) const;
  // Where the slot's weight lies in the mapped files, or most of it.
  std::vector<std::span<const std::byte>> places(const Slot& slot) const;
  // The slot's weight was copied and its place in the file will not be read soon: the system may have the memory back.
  void done_with(const Slot& slot) const;
  Result<std::vector<float>> vector(const Slot& slot) const;
  Result<std::vector<float>> norm_weight(const Slot& slot) const;
  Result<std::vector<float>> bias(const Slot& slot) const;    // empty if the slot has none
  DType type_of(const Slot& slot) const;                      // of its weight, as matrix() hands it out
  std::span<const int32_t> order_of(const Slot& slot) const;  // of its weight's inputs (HostMatrix::order)
  MatrixForm form_of(const Slot& slot) const { return {type_of(slot), order_of(slot)}; }

  // ---- changes: what is put stands for what the file has. To be made before the source is shared between threads.
  // A slot's weight, or that of one of its experts, as rows of the model's order. Experts are put all, in one format.
  void put_matrix(const Slot& slot, int64_t expert, DType type, std::vector<std::byte> bytes);
  void put_numbers(const Slot& slot, std::vector<float> numbers);  // of a norm's weight or a vector, as they are used
  void put_bias(const Slot& slot, std::vector<float> numbers);
  // The layers that stay, ascending. Refused where a layer's place says what it is.
  Result<void> keep_layers(std::span<const int32_t> layers);
  // Other sizes, for which every slot that changed has been put.
  Result<void> reshape(ModelSpec spec);
  // A cache that forgets (model/kv_keep.h).
  Result<void> forget(const KvKeep& keep) { return millrace::forget(spec_, keep); }
  bool reshaped() const { return reshaped_; }  // the settings in the file no longer describe it

  // What becomes of weights that are stored as codes and scales, in one line with bytes; empty if there are none.
  std::string kept_as() const;

 private:
  // Where a slot's numbers are.
  struct Location {
    std::string name;  // in the file; taken per head or expert, {} stands for its number
    Take take = Take::whole;
    bool bare = false, transposed = false;
    Change change = Change::none;
    const StoredTensor* tensor = nullptr;  // the first of several if taken per head or expert
    // Of weights that are several tensors each, of which `tensor` has the codes: one for each expert, or for all.
    std::vector<StoredMatrixPtr> stored;

    bool several() const { return take == Take::per_head || take == Take::per_expert; }
    bool latent() const { return take == Take::latent_k || take == Take::latent_v; }
  };

  // What was put instead of a tensor: bytes of each expert, or numbers.
  struct Edit {
    DType type = DType::f32;
    std::vector<std::vector<std::byte>> parts;
    std::vector<float> numbers;
  };
  const Edit* edit(const Slot& slot, std::string_view suffix) const;

  const StoredTensor* find(const std::string& name) const;
  const StoredTensor* find_codes(const std::string& name) const;  // of a weight that is not there under its own name
  Result<Location> locate(const Slot& slot, std::string_view suffix) const;
  std::vector<Location> candidates(const Slot& slot) const;  // stems, the likeliest first
  void settle_prefix();
  Result<void> settle_head();
  void settle_biases();
  Result<void> check_shape(const Slot& slot, const Location& part, bool bias) const;
  Result<void> check_tensor(const Slot& slot, const Location& part, bool bias) const;
  Result<Location> check_part(const Slot& slot, bool bias, std::unordered_map<const StoredTensor*, int>& used) const;
  Result<void> check_all();
  std::set<std::string> unread_names() const;
  Result<void> check_unexpected(const std::unordered_map<const StoredTensor*, int>& used) const;
  std::vector<int64_t> rows_of(const Slot& slot, Take take) const;  // of it, or of each expert; empty: all in order
  HostMatrix unpacked(const Slot& slot, const Location& part, int64_t expert, std::vector<int64_t> rows,
                      std::vector<std::byte>& room) const;
  // Keys or values of one head out of those that come out of a latent.
  Result<HostMatrix> latent(const Slot& slot, const Location& part, int64_t head, std::vector<std::byte>& room) const;
  Result<std::vector<float>> floats(const Slot& slot, const Location& part, int64_t size) const;
  const Location& part(const Slot& slot, std::string_view suffix) const;
  bool predicts_ahead(std::string_view name) const;
  bool is_gguf() const { return checkpoint_->kind() == Checkpoint::Kind::gguf; }
  bool is_transposed(const Slot& slot, const Location& part) const;

  const Checkpoint* checkpoint_ = nullptr;
  Keep keep_ = Keep::exact;
  const Architecture* architecture_ = nullptr;
  Config config_;
  ModelSpec spec_;
  int32_t ahead_ = 0;
  std::string strip_, put_;                          // what stands before names in this file: `put` instead of `strip`
  bool head_is_table_ = false;                       // tied, and the file has only the head
  std::unordered_map<std::string, Location> parts_;  // by tensor name: slot + .weight or .bias
  std::unordered_map<std::string, std::shared_ptr<Edit>> edits_;  // likewise
  bool reshaped_ = false;
};

}  // namespace millrace
