#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/json.h"
#include "model/heads/gguf.h"
#include "model/heads/head.h"
#include "model/rope.h"

namespace millrace {
namespace {

constexpr int64_t kMostGuesses = 16;

int64_t config_integer(const Json& config, std::string_view key, int64_t otherwise) {
  const Json* value = find(config, key);
  return value != nullptr && value->is_int64() ? value->get_int64() : otherwise;
}

double config_number(const Json& config, std::string_view key, double otherwise) {
  const Json* value = find(config, key);
  if (value == nullptr) return otherwise;
  if (value->is_double()) return value->get_double();
  return value->is_int64() ? static_cast<double>(value->get_int64()) : otherwise;
}

bool config_bool(const Json& config, std::string_view key, bool otherwise) {
  const Json* value = find(config, key);
  return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

bool is_medusa(const Checkpoint& checkpoint) { return checkpoint.find("0.0.linear.weight") != nullptr; }
bool is_eagle(const Checkpoint& checkpoint) {
  if (gguf_head(checkpoint) == GgufHead::eagle) return true;
  return checkpoint.find("fc.weight") != nullptr && checkpoint.find("lm_head.weight") != nullptr;
}
// A file with the extra layer alone; one that has the whole model too is loaded as that.
bool is_mtp(const Checkpoint& checkpoint) {
  if (checkpoint.find("model.embed_tokens.weight") != nullptr || checkpoint.find("token_embd.weight") != nullptr)
    return false;
  if (gguf_head(checkpoint) == GgufHead::mtp) return true;
  const auto tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const StoredTensor& tensor) { return tensor.name.ends_with(".eh_proj.weight"); });
}

}  // namespace

Result<void> check_target(const ModelSpec& target) {
  const bool fits = target.embed_width == 0 && target.positions == 0 && target.final_norm && !target.streams &&
                    target.layers.size() >= 3;
  if (fits) return {};
  return error(Code::unsupported, "heads go with models of rotary positions and one width");
}

// Reads one head. Every tensor is looked for by name and checked for its shape before it is taken.
class HeadLoader {
 public:
  HeadLoader(const Checkpoint& checkpoint, const Model& target, Backend& backend)
      : checkpoint_(checkpoint),
        target_(target),
        backend_(backend),
        gguf_(gguf_head(checkpoint)),
        config_(checkpoint.config()) {}
  Result<std::unique_ptr<Head>> load();
  // The layer behind the model's own, whatever else the file has.
  Result<std::unique_ptr<Head>> load_own() {
    own_ = true;
    return load_mtp_alone();
  }

 private:
  Result<std::unique_ptr<Head>> begin();
  Result<std::unique_ptr<Head>> load_mtp_alone();
  Result<void> check_used(const std::string& prefix) const;
  // By its name in the Hugging Face layout; null: there is none.
  const StoredTensor* stored(const std::string& name) const { return checkpoint_.find(gguf_head_name(gguf_, name)); }
  Result<double> rope_theta() const;
  Result<const StoredTensor*> tensor(const std::string& name, int64_t rows, int64_t cols) const;
  Result<Weight> matrix(const std::string& name, int64_t rows, int64_t cols, std::span<const float> bias = {});
  Result<Weight> table(const std::string& name);  // of embeddings
  Result<Norm> norm(const std::string& name);
  Result<void> load_medusa(Head& head);
  Result<void> load_layer(Head& head, const std::string& prefix, int64_t inputs);
  Result<void> load_mtp(Head& head);
  Result<void> load_eagle(Head& head);
  Result<void> read_taps(HeadSpec& spec) const;
  Result<void> read_tokens(Head& head) const;
  Result<void> check_width(int64_t found) const;

  const Checkpoint& checkpoint_;
  const Model& target_;
  Backend& backend_;
  const GgufHead gguf_;
  bool own_ = false;                    // the file is the target's
  mutable std::set<std::string> used_;  // tensors by their names in the file
  Json config_;
};

Result<const StoredTensor*> HeadLoader::tensor(const std::string& name, int64_t rows, int64_t cols) const {
  const StoredTensor* found = stored(name);
  if (found != nullptr) used_.insert(found->name);
  if (found == nullptr) return error(Code::corrupt, "{}: tensor {} is missing", checkpoint_.path().string(), name);
  if (found->rows() != rows || found->cols() != cols)
    return error(Code::corrupt, "{}: {} is {} x {}, it should be {} x {} for this target", checkpoint_.path().string(),
                 name, found->rows(), found->cols(), rows, cols);
  if (format(found->type).to_float == nullptr)
    return error(Code::unsupported, "{}: {} is kept as {}, which heads cannot be", checkpoint_.path().string(), name,
                 format(found->type).name);
  return found;
}

Result<Weight> HeadLoader::matrix(const std::string& name, int64_t rows, int64_t cols, std::span<const float> bias) {
  TRY(const StoredTensor* found, tensor(name, rows, cols));
  return backend_.upload({.type = found->type, .rows = rows, .cols = cols, .bytes = found->bytes}, WeightUse::linear,
                         bias);
}

Result<Norm> HeadLoader::norm(const std::string& name) {
  const int64_t width = target_.spec().width;
  TRY(const StoredTensor* found, tensor(name, 1, width));
  TRY(const std::vector<float> values, read_floats(*found));
  Norm norm{.kind = NormKind::rms,
            .epsilon = static_cast<float>(config_number(config_, "rms_norm_eps", 1e-5)),
            .weight = nullptr,
            .bias = nullptr,
            .width = width};
  TRY(norm.weight, backend_.upload_vector(values));
  return norm;
}

Result<void> HeadLoader::check_width(int64_t found) const {
  if (found == target_.spec().width) return {};
  return error(Code::invalid,
               "{}: a head for streams of {} numbers, the model's have {}: it was made for another model",
               checkpoint_.path().string(), found, target_.spec().width);
}

Result<void> HeadLoader::load_medusa(Head& head) {
  const int64_t width = target_.spec().width;
  HeadSpec& spec = head.spec_;
  spec.kind = HeadSpec::Kind::medusa;
  spec.vocab = target_.spec().vocab;
  spec.taps = {static_cast<int32_t>(target_.spec().layers.size())};
  TRY_VOID(check_width(checkpoint_.find("0.0.linear.weight")->cols()));
  if (checkpoint_.find("0.1.linear.weight") != nullptr)
    return error(Code::unsupported, "{}: heads of several layers are not there yet", checkpoint_.path().string());
  for (int64_t i = 0; checkpoint_.find(fmt::format("{}.0.linear.weight", i)) != nullptr; ++i) {
    if (i == kMostGuesses)
      return error(Code::invalid, "{}: more than {} heads", checkpoint_.path().string(), kMostGuesses);
    TRY(const StoredTensor* bias, tensor(fmt::format("{}.0.linear.bias", i), 1, width));
    TRY(const std::vector<float> values, read_floats(*bias));
    HeadWeights::Guess guess;
    TRY(guess.change, matrix(fmt::format("{}.0.linear.weight", i), width, width, values));
    TRY(guess.out, matrix(fmt::format("{}.1.weight", i), spec.vocab, width));
    head.weights_.guesses.push_back(guess);
  }
  spec.guesses = static_cast<int32_t>(head.weights_.guesses.size());
  return {};
}

// The base of the rotation, which newer configurations have in an object of its own.
Result<double> HeadLoader::rope_theta() const {
  const Json* newer = find(config_, "rope_parameters");
  const Json* kind = newer != nullptr ? find(*newer, "rope_type") : nullptr;
  const bool plain = kind == nullptr || (kind->is_string() && kind->get_string() == "default");
  if (find(config_, "rope_scaling") != nullptr || !plain)
    return error(Code::unsupported, "{}: a head with scaled rotation", checkpoint_.path().string());
  return config_number(newer != nullptr ? *newer : config_, "rope_theta", 10000);
}

// Attention and ffn as Llama has them; the attention reads `inputs` numbers.
Result<void> HeadLoader::load_layer(Head& head, const std::string& prefix, int64_t inputs) {
  const int64_t width = target_.spec().width;
  HeadSpec& spec = head.spec_;
  GqaSpec& attention = spec.attention;
  attention.heads = static_cast<int32_t>(config_integer(config_, "num_attention_heads", 0));
  attention.kv_heads = static_cast<int32_t>(config_integer(config_, "num_key_value_heads", attention.heads));
  if (attention.heads < 1 || attention.heads > 1024 || attention.kv_heads < 1 ||
      attention.heads % attention.kv_heads != 0)
    return error(Code::corrupt, "{}: {} heads and {} of keys", checkpoint_.path().string(), attention.heads,
                 attention.kv_heads);
  const int64_t head_dim = config_integer(config_, "head_dim", width / attention.heads);
  const int64_t inner = config_integer(config_, "intermediate_size", 0);
  if (head_dim < 2 || head_dim > 1024 || head_dim % 2 != 0 || inner < 1 || inner > 1 << 20)
    return error(Code::corrupt, "{}: heads of {} numbers and an ffn of {}", checkpoint_.path().string(), head_dim,
                 inner);
  attention.head_dim = static_cast<int32_t>(head_dim);
  attention.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  spec.ffn = {.width = static_cast<int32_t>(inner)};
  HeadWeights& weights = head.weights_;
  const int64_t q = attention.heads * head_dim, kv = attention.kv_heads * head_dim;
  TRY(weights.attention.q, matrix(prefix + "self_attn.q_proj.weight", q, inputs));
  TRY(weights.attention.k, matrix(prefix + "self_attn.k_proj.weight", kv, inputs));
  TRY(weights.attention.v, matrix(prefix + "self_attn.v_proj.weight", kv, inputs));
  TRY(weights.attention.out, matrix(prefix + "self_attn.o_proj.weight", width, q));
  TRY(weights.ffn.gate, matrix(prefix + "mlp.gate_proj.weight", inner, width));
  TRY(weights.ffn.up, matrix(prefix + "mlp.up_proj.weight", inner, width));
  TRY(weights.ffn.down, matrix(prefix + "mlp.down_proj.weight", width, inner));
  TRY(weights.ffn_norm, norm(prefix + "post_attention_layernorm.weight"));
  if (own_) {  // a layer of the model itself turns as the others do
    const auto* last = std::get_if<GqaWeights>(&target_.weights().layers.back().mixer);
    if (last == nullptr)
      return error(Code::unsupported,
                   "{}: its layers are not as Llama's are, and neither can the one for further "
                   "tokens be read",
                   checkpoint_.path().string());
    weights.attention.rope = last->rope;
    return {};
  }
  TRY(const double theta, rope_theta());
  const std::vector<float> powers = rotary_powers(theta, static_cast<int32_t>(head_dim));
  weights.attention.rope.neighbours = gguf_ != GgufHead::none && gguf_turns_neighbours(gguf_, checkpoint_.metadata());
  weights.attention.rope.dims = static_cast<int32_t>(head_dim);
  TRY(weights.attention.rope.frequencies, backend_.upload_vector(powers));
  return {};
}

Result<void> HeadLoader::load_mtp(Head& head) {
  HeadSpec& spec = head.spec_;
  spec.kind = HeadSpec::Kind::mtp;
  spec.vocab = target_.spec().vocab;
  spec.taps = {static_cast<int32_t>(target_.spec().layers.size())};
  const std::string prefix = fmt::format("model.layers.{}.", target_.spec().layers.size());
  const StoredTensor* fuse = stored(prefix + "eh_proj.weight");
  if (fuse == nullptr)
    return error(Code::invalid, "{}: no {}eh_proj.weight: the head was made for a model with another number of layers",
                 checkpoint_.path().string(), prefix);
  TRY_VOID(check_width(fuse->rows()));
  const int64_t width = target_.spec().width;
  HeadWeights& weights = head.weights_;
  TRY(weights.fuse, matrix(prefix + "eh_proj.weight", width, 2 * width));
  TRY(weights.token_norm, norm(prefix + "enorm.weight"));
  TRY(weights.feature_norm, norm(prefix + "hnorm.weight"));
  TRY(weights.mixer_norm, norm(prefix + "input_layernorm.weight"));
  TRY(weights.final_norm, norm(prefix + "shared_head.norm.weight"));
  if (stored(prefix + "shared_head.head.weight") != nullptr) {
    TRY(weights.out, matrix(prefix + "shared_head.head.weight", spec.vocab, width));
  }
  if (stored(prefix + "embed_tokens.weight") != nullptr) {
    TRY(weights.embedding, table(prefix + "embed_tokens.weight"));
  }
  TRY_VOID(load_layer(head, prefix, width));
  return check_used(prefix);
}

// A layer with more than was read is another kind of layer: experts, norms of heads, biases.
Result<void> HeadLoader::check_used(const std::string& prefix) const {
  const std::string begins = gguf_head_name(gguf_, prefix);
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    if (!tensor.name.starts_with(begins) || used_.contains(tensor.name) || tensor.name.ends_with("inv_freq")) continue;
    return error(Code::unsupported,
                 "{}: its layer for further tokens has a tensor {}; such layers can be as Llama's are so far",
                 checkpoint_.path().string(), tensor.name);
  }
  return {};
}

Result<Weight> HeadLoader::table(const std::string& name) {
  const int64_t width = target_.spec().width;
  TRY(const StoredTensor* found, tensor(name, target_.spec().vocab, width));
  return backend_.upload({.type = found->type, .rows = found->rows(), .cols = width, .bytes = found->bytes},
                         WeightUse::table, {});
}

Result<void> HeadLoader::read_taps(HeadSpec& spec) const {
  const auto layers = static_cast<int64_t>(target_.spec().layers.size());
  const Json* listed = find(config_, "eagle_aux_hidden_state_layer_ids");
  if (const Json* inside = find(config_, "eagle_config"); listed == nullptr && inside != nullptr)
    listed = find(*inside, "eagle_aux_hidden_state_layer_ids");
  std::vector<int64_t> taps = {2, layers / 2, layers - 3};
  if (listed != nullptr && listed->is_array()) {
    taps.clear();
    for (const Json& one : listed->get_array()) taps.push_back(one.is_int64() ? one.get_int64() : -1);
  }
  if (taps.empty() || taps.size() > 8)
    return error(Code::invalid, "{}: reads {} streams", checkpoint_.path().string(), taps.size());
  for (int64_t tap : taps) {
    if (tap < 0 || tap > layers)
      return error(Code::invalid, "{}: reads the stream entering layer {}, the model has {}",
                   checkpoint_.path().string(), tap, layers);
    spec.taps.push_back(static_cast<int32_t>(tap));
  }
  return {};
}

// d2t: what to add to the head's id to get the target's; in a GGUF file the target's itself.
Result<void> HeadLoader::read_tokens(Head& head) const {
  const StoredTensor* map = checkpoint_.find("d2t");
  const int32_t vocab = head.spec_.vocab, all = target_.spec().vocab;
  if (map == nullptr && vocab == all) return {};
  if (map == nullptr)
    return error(Code::corrupt, "{}: guesses {} of {} tokens, but there is no d2t that says which",
                 checkpoint_.path().string(), vocab, all);
  if (map->type != DType::i64 || map->values() != vocab)
    return error(Code::corrupt, "{}: d2t has {} numbers as {}, it should have {} as I64", checkpoint_.path().string(),
                 map->values(), format(map->type).name, vocab);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < vocab; ++i) {
    int64_t value = 0;
    std::memcpy(&value, map->bytes.data() + i * 8, 8);
    const int64_t from = gguf_ == GgufHead::eagle ? 0 : i;
    if (value < -from || value >= all - from)
      return error(Code::corrupt, "{}: d2t sends token {} outside of the model's {}", checkpoint_.path().string(), i,
                   all);
    if (!seen.insert(from + value).second)
      return error(Code::corrupt, "{}: d2t sends two tokens to {}", checkpoint_.path().string(), from + value);
    head.tokens_.push_back(static_cast<Token>(from + value));
  }
  return {};
}

Result<void> HeadLoader::load_eagle(Head& head) {
  HeadSpec& spec = head.spec_;
  spec.kind = HeadSpec::Kind::eagle3;
  for (const char* name : {"fc.weight", "lm_head.weight"}) {
    if (stored(name) == nullptr)
      return error(Code::corrupt, "{}: tensor {} is missing", checkpoint_.path().string(), name);
  }
  TRY_VOID(check_width(stored("fc.weight")->rows()));
  const int64_t width = target_.spec().width;
  spec.vocab = static_cast<int32_t>(std::min<int64_t>(stored("lm_head.weight")->rows(), INT32_MAX));
  if (spec.vocab > target_.spec().vocab)
    return error(Code::invalid, "{}: guesses {} tokens, the model has {}", checkpoint_.path().string(), spec.vocab,
                 target_.spec().vocab);
  spec.normed_residual = config_bool(config_, "norm_before_residual", false);
  for (std::string_view key : {"norm_before_fc", "fc_norm", "norm_output"}) {
    if (config_bool(config_, key, false))
      return error(Code::unsupported, "{}: {} is not there yet", checkpoint_.path().string(), key);
  }
  TRY_VOID(read_taps(spec));
  TRY_VOID(read_tokens(head));
  HeadWeights& weights = head.weights_;
  const std::string prefix =
      gguf_ == GgufHead::eagle || stored("midlayer.hidden_norm.weight") != nullptr ? "midlayer." : "layers.0.";
  TRY(weights.fuse, matrix("fc.weight", width, spec.feature()));
  TRY(weights.token_norm, norm(prefix + "input_layernorm.weight"));
  TRY(weights.feature_norm, norm(prefix + "hidden_norm.weight"));
  TRY(weights.final_norm, norm("norm.weight"));
  TRY(weights.out, matrix("lm_head.weight", spec.vocab, width));
  if (stored("embed_tokens.weight") != nullptr) {
    TRY(weights.embedding, table("embed_tokens.weight"));
  }
  return load_layer(head, prefix, 2 * width);
}

Result<std::unique_ptr<Head>> HeadLoader::begin() {
  const ModelSpec& target = target_.spec();
  if (auto fits = check_target(target); !fits.ok()) return within(checkpoint_.path().string(), fits.error());
  if (gguf_ != GgufHead::none) {
    TRY(config_, gguf_head_config(gguf_, checkpoint_.metadata()));
  }
  std::unique_ptr<Head> head(new Head(target_));
  head->spec_.width = target.width;
  return head;
}

Result<std::unique_ptr<Head>> HeadLoader::load_mtp_alone() {
  TRY(std::unique_ptr<Head> head, begin());
  TRY_VOID(load_mtp(*head));
  if (!head->weights_.embedding) head->weights_.embedding = target_.weights().embedding;
  if (!head->weights_.out) head->weights_.out = target_.weights().head;
  return head;
}

Result<std::unique_ptr<Head>> HeadLoader::load() {
  if (!is_medusa(checkpoint_) && !is_eagle(checkpoint_)) return load_mtp_alone();
  TRY(std::unique_ptr<Head> head, begin());
  if (is_medusa(checkpoint_)) {
    TRY_VOID(load_medusa(*head));
  } else {
    TRY_VOID(load_eagle(*head));
  }
  if (!head->weights_.embedding) head->weights_.embedding = target_.weights().embedding;
  if (!head->weights_.out) head->weights_.out = target_.weights().head;
  return head;
}

bool Head::is_head(const Checkpoint& checkpoint) {
  return is_medusa(checkpoint) || is_eagle(checkpoint) || is_mtp(checkpoint);
}

Result<std::unique_ptr<Head>> Head::load(const Checkpoint& checkpoint, const Model& target, Backend& backend) {
  return HeadLoader(checkpoint, target, backend).load();
}

Result<std::unique_ptr<Head>> Head::load_own(const Checkpoint& checkpoint, const Model& target, Backend& backend) {
  return HeadLoader(checkpoint, target, backend).load_own();
}

}  // namespace millrace
