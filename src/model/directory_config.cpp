#include "model/directory_config.h"

#include <system_error>

#include "base/file.h"
#include "tensor/side_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Names as regular expressions.
std::string as_pattern(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '.') out += '\\';
    out += c;
  }
  return out;
}

JsonArray listed(std::span<const std::string> names) {
  JsonArray out;
  for (const std::string& name : names) out.emplace_back(std::string_view(name));
  return out;
}

Json gptq_config(const PackedAs& how) {
  JsonObject out = {{"quant_method", "gptq"},
                    {"bits", how.grid.bits},
                    {"group_size", how.grid.group > 0 ? how.grid.group : -1},
                    {"desc_act", false},
                    {"sym", how.grid.symmetric},
                    {"lm_head", false},
                    {"damp_percent", 0.01},
                    {"true_sequential", true},
                    {"static_groups", false},
                    {"pack_dtype", "int32"},
                    {"meta", JsonObject{{"quantizer", JsonArray{std::string_view(how.maker)}}}},
                    {"checkpoint_format", "gptq"}};
  JsonObject apart;
  for (const std::string& name : how.kept) apart["-:^" + as_pattern(name) + "$"] = JsonObject();
  if (!apart.empty()) out["dynamic"] = std::move(apart);
  return out;
}

Json awq_config(const PackedAs& how) {
  Json kept;
  if (!how.kept.empty()) kept = listed(how.kept);
  return JsonObject{
      {"quant_method", "awq"}, {"bits", how.grid.bits}, {"group_size", how.grid.group > 0 ? how.grid.group : -1},
      {"version", "gemm"},     {"zero_point", true},    {"modules_to_not_convert", std::move(kept)}};
}

JsonObject integers(int bits) {
  return {{"actorder", nullptr},
          {"block_structure", nullptr},
          {"dynamic", false},
          {"group_size", nullptr},
          {"num_bits", bits},
          {"observer", "minmax"},
          {"observer_kwargs", JsonObject()},
          {"strategy", "channel"},
          {"symmetric", true},
          {"type", "int"}};
}

Json compressed_config(const PackedAs& how) {
  const bool int8 = how.layout == PackLayout::int8;
  const std::string_view called = int8 ? "int-quantized" : "pack-quantized";
  JsonObject weights = integers(how.grid.bits);
  weights["symmetric"] = how.grid.symmetric;
  if (how.grid.group > 0) {
    weights["group_size"] = how.grid.group;
    weights["strategy"] = "group";
  }
  Json inputs;
  if (int8) {
    JsonObject each = integers(8);
    each["dynamic"] = true;
    each["observer"] = nullptr;
    each["strategy"] = "token";
    inputs = std::move(each);
  }
  std::vector<std::string> ignored = {"lm_head"};
  ignored.insert(ignored.end(), how.kept.begin(), how.kept.end());
  return JsonObject{{"quant_method", "compressed-tensors"},
                    {"ignore", listed(ignored)},
                    {"kv_cache_scheme", nullptr},
                    {"global_compression_ratio", nullptr},
                    {"quantization_status", "compressed"},
                    {"version", "0.12.2"},
                    {"config_groups", JsonObject{{"group_0", JsonObject{{"weights", std::move(weights)},
                                                                        {"input_activations", std::move(inputs)},
                                                                        {"output_activations", nullptr},
                                                                        {"targets", JsonArray{"Linear"}},
                                                                        {"format", called}}}}},
                    {"format", called}};
}

Result<void> write_text(const fs::path& path, std::string_view text) {
  TRY(AtomicFile file, AtomicFile::create(path));
  TRY_VOID(file.write(text));
  return file.commit();
}

}  // namespace

Json quantisation_config(const PackedAs& how) {
  if (how.layout == PackLayout::gptq) return gptq_config(how);
  return how.layout == PackLayout::awq ? awq_config(how) : compressed_config(how);
}

Result<void> write_side_files(const Checkpoint& from, const fs::path& folder, const PackedAs& how) {
  Json config = from.config();
  JsonObject& all = config.as_object();
  all["quantization_config"] = quantisation_config(how);
  // These two are computed in float16 elsewhere.
  if (how.layout == PackLayout::gptq || how.layout == PackLayout::awq)
    all[all.contains("torch_dtype") ? "torch_dtype" : "dtype"] = "float16";
  TRY_VOID(write_text(folder / "config.json", to_pretty_text(config) + "\n"));
  static constexpr std::string_view kBeside[] = {"tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "vocab.txt",
                                                 "merges.txt",
                                                 "tokenizer.model",
                                                 "spiece.model",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "generation_config.json"};
  for (const std::string_view name : kBeside) {
    std::error_code absent;
    if (!fs::exists(from.path() / name, absent)) continue;
    TRY(const std::string text, read_side_file(from.path(), from.path() / name, size_t{256} << 20));
    TRY_VOID(write_text(folder / name, text));
  }
  return {};
}

}  // namespace millrace
