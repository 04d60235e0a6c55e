#include "apps/cli/summary.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/human.h"
#include "tensor/dtype.h"
#include "tensor/stored_matrix.h"

namespace millrace::apps {
namespace {

// Codes count as what they stand for, wherever their tensors fit together.
int64_t parameters_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  for (const std::string_view codes : {".qweight", ".weight_packed", ".weight", "_blocks"}) {
    if (!tensor.name.ends_with(codes)) continue;
    const auto matrix = stored_matrix(checkpoint, tensor.name.substr(0, tensor.name.size() - codes.size()));
    if (matrix.ok() && *matrix != nullptr) return (*matrix)->rows() * (*matrix)->cols();
  }
  return tensor.values();
}

void count_types(const Checkpoint& checkpoint, Summary& summary) {
  std::map<DType, TypeShare> shares;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    TypeShare& share = shares[tensor.type];
    share.type = tensor.type;
    ++share.tensors;
    share.values += tensor.values();
    share.bytes += tensor.bytes.size();
    if (!is_beside_codes(tensor.name)) summary.parameters += parameters_of(checkpoint, tensor);
  }
  for (const auto& [type, share] : shares) summary.types.push_back(share);
  std::stable_sort(summary.types.begin(), summary.types.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
}

// A value that is not stated stays empty; one of the wrong type is as good as not stated here (loading will complain).
std::optional<int64_t> stated(const Metadata& metadata, std::string_view key) {
  const MetaEntry* entry = metadata.find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* array = std::get_if<MetaArray>(&entry->value)) {  // one number per layer: the largest stands for all
    auto numbers = array->integers();
    if (!numbers.ok() || numbers->empty()) return std::nullopt;
    return *std::max_element(numbers->begin(), numbers->end());
  }
  auto value = metadata.get_int(key, 0);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::string stated_text(const Metadata& metadata, std::string_view key) {
  auto value = metadata.get_string(key, "");
  return value.ok() ? *value : std::string();
}

void read_gguf(const Checkpoint& checkpoint, Summary& summary) {
  const Metadata& metadata = checkpoint.metadata();
  summary.format = fmt::format("GGUF v{}", checkpoint.gguf_version());
  summary.architecture = stated_text(metadata, "general.architecture");
  summary.name = stated_text(metadata, "general.name");
  summary.license = stated_text(metadata, "general.license");
  auto of_architecture = [&](std::string_view key) {
    return stated(metadata, fmt::format("{}.{}", summary.architecture, key));
  };
  summary.layers = of_architecture("block_count");
  summary.width = of_architecture("embedding_length");
  summary.heads = of_architecture("attention.head_count");
  summary.kv_heads = of_architecture("attention.head_count_kv");
  summary.ffn_width = of_architecture("feed_forward_length");
  summary.experts = of_architecture("expert_count");
  summary.experts_used = of_architecture("expert_used_count");
  summary.context = of_architecture("context_length");
  summary.vocabulary = of_architecture("vocab_size");
  if (const MetaArray* tokens = metadata.find_array("tokenizer.ggml.tokens")) {
    summary.vocabulary = static_cast<int64_t>(tokens->size());
  }
  std::string model = stated_text(metadata, "tokenizer.ggml.model"), pre = stated_text(metadata, "tokenizer.ggml.pre");
  static const std::map<std::string_view, std::string_view> kKinds = {{"gpt2", "byte-level BPE"},
                                                                      {"llama", "SentencePiece BPE"},
                                                                      {"t5", "unigram"},
                                                                      {"bert", "WordPiece"},
                                                                      {"rwkv", "RWKV"}};
  auto kind = kKinds.find(model);
  summary.tokenizer = kind == kKinds.end() ? model : std::string(kind->second);
  if (!pre.empty()) summary.tokenizer += ", pre-tokenizer " + pre;
  for (std::string_view role : {"bos", "eos", "eot", "eom", "unknown", "padding", "separator", "mask"}) {
    if (auto id = stated(metadata, fmt::format("tokenizer.ggml.{}_token_id", role)))
      summary.special_tokens[std::string(role)] = *id;
  }
}

// The first of several spellings of the same thing that config.json has.
std::optional<int64_t> first_of(const Json& config, std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) {
    const Json* value = find(config, key);
    if (value == nullptr) continue;
    if (value->is_int64()) return value->get_int64();
    if (const auto* list = value->if_array(); list != nullptr && !list->empty() && (*list)[0].is_int64()) {
      return (*list)[0].get_int64();  // several end tokens: the first
    }
  }
  return std::nullopt;
}

// tokenizer.json states its kind under model.type; byte fallback and decoders tell SentencePiece from byte-level BPE.
Result<std::string> tokenizer_kind(const std::filesystem::path& path) {
  TRY(std::string text, read_file(path));
  auto json = parse_json(text);
  if (!json.ok()) return within(path.string(), std::move(json).error());
  const Json* model = find(*json, "model");
  if (model == nullptr) return std::string("tokenizer.json without a model");
  auto type = get_string(*model, "type", "BPE");
  auto fallback = get_bool(*model, "byte_fallback", false);
  if (!type.ok() || !fallback.ok()) return std::string("unknown");
  if (*type == "Unigram") return std::string("unigram");
  if (*type != "BPE") return *type;
  return std::string(*fallback ? "SentencePiece BPE" : "byte-level BPE");
}

Result<void> read_hugging_face(const Checkpoint& checkpoint, Summary& summary) {
  bool directory = checkpoint.kind() == Checkpoint::Kind::hugging_face;
  summary.format = directory ? "Hugging Face directory" : "safetensors";
  const Json& config = checkpoint.config();
  if (const Json* classes = find(config, "architectures");
      classes != nullptr && classes->is_array() && !classes->get_array().empty()) {
    if (const auto* name = classes->get_array()[0].if_string()) summary.architecture = name->c_str();
  }
  auto type = get_string(config, "model_type", "");
  if (summary.architecture.empty() && type.ok()) summary.architecture = *type;
  // Models that also see or hear keep the language model's numbers one level down.
  const Json* nested = find(config, "text_config");
  const Json& numbers = nested != nullptr ? *nested : config;
  summary.layers = first_of(numbers, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  summary.width = first_of(numbers, {"hidden_size", "n_embd", "d_model"});
  summary.heads = first_of(numbers, {"num_attention_heads", "n_head", "n_heads"});
  summary.kv_heads = first_of(numbers, {"num_key_value_heads", "num_kv_heads", "n_head_kv"});
  summary.ffn_width = first_of(numbers, {"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"});
  summary.experts = first_of(numbers, {"num_local_experts", "num_experts", "n_routed_experts"});
  summary.experts_used = first_of(numbers, {"num_experts_per_tok", "experts_per_token", "moe_topk"});
  summary.context = first_of(numbers, {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"});
  summary.vocabulary = first_of(numbers, {"vocab_size", "padded_vocab_size"});
  for (std::string_view role : {"bos", "eos", "pad"}) {
    std::string key = fmt::format("{}_token_id", role);
    auto id = first_of(checkpoint.generation_config(), {key});
    if (!id) id = first_of(numbers, {key});
    if (!id) id = first_of(config, {key});
    if (id) summary.special_tokens[std::string(role)] = *id;
  }
  if (checkpoint.tokenizer_json()) {
    TRY(summary.tokenizer, tokenizer_kind(*checkpoint.tokenizer_json()));
  }
  return {};
}

}  // namespace

std::optional<std::string> packed_note(const Checkpoint& checkpoint, int64_t packed_bytes) {
  uint64_t stored = 0;
  std::map<DType, uint64_t> by_type;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    stored += tensor.bytes.size();
    by_type[tensor.type] += tensor.bytes.size();
  }
  const double times = stored == 0 ? 1 : static_cast<double>(packed_bytes) / static_cast<double>(stored);
  if (times > 0.9 && times < 1.1) return std::nullopt;
  const auto most =
      std::max_element(by_type.begin(), by_type.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return fmt::format(
      "{} of weights in the file (most of them {}) become {} in memory: they are packed for this machine's "
      "arithmetic",
      human_bytes(stored), format(most->first).name, human_bytes(static_cast<uint64_t>(packed_bytes)));
}

Result<Summary> summarise(const Checkpoint& checkpoint) {
  Summary summary;
  summary.files = checkpoint.files();
  summary.file_bytes = checkpoint.file_bytes();
  count_types(checkpoint, summary);
  if (checkpoint.kind() == Checkpoint::Kind::gguf) {
    read_gguf(checkpoint, summary);
  } else {
    TRY_VOID(read_hugging_face(checkpoint, summary));
  }
  if (checkpoint.chat_template()) summary.chat_template_bytes = checkpoint.chat_template()->size();
  summary.unusable = unsupported_quantisation(checkpoint);
  return summary;
}

}  // namespace millrace::apps
