#include "tensor/hugging_face.h"

#include "tensor/identify.h"

namespace millrace {
namespace {

constexpr size_t kMaxConfig = size_t{64} << 20;

const Json* quantisation_config(const Json& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (const Json* found = find(config, key)) return found;
    // Models that also see or hear keep the language model's settings one level down.
    if (const Json* text = find(config, "text_config")) {
      if (const Json* found = find(*text, key)) return found;
    }
  }
  return nullptr;
}

}  // namespace

Result<Json> parse_config(std::string_view text) {
  if (is_lfs_pointer(text)) return unknown_file(std::as_bytes(std::span(text.data(), text.size())));
  TRY(Json json, parse_json(text, {.max_bytes = kMaxConfig, .python_numbers = true}));
  if (!json.is_object()) return error(Code::invalid, "should hold a JSON object");
  return json;
}

std::optional<std::string> chat_template_of(const Json& tokenizer_config) {
  const Json* found = find(tokenizer_config, "chat_template");
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return std::string(found->get_string());
  if (!found->is_array()) return std::nullopt;
  const Json* first = nullptr;
  for (const Json& item : found->get_array()) {
    const Json* text = find(item, "template");
    if (text == nullptr || !text->is_string()) continue;
    const Json* name = find(item, "name");
    if (name != nullptr && name->is_string() && name->get_string() == "default") return std::string(text->get_string());
    if (first == nullptr) first = text;
  }
  return first == nullptr ? std::nullopt : std::optional<std::string>(first->get_string());
}

std::optional<std::string> quantisation_of(const Json& config) {
  const Json* found = quantisation_config(config);
  if (found == nullptr || !found->is_object()) return std::nullopt;
  std::string method = "an unnamed method";
  for (const std::string_view key : {"quant_method", "quant_algo", "format"}) {
    const Json* name = find(*found, key);
    if (name == nullptr || !name->is_string()) continue;
    method.clear();
    for (const char c : std::string_view(name->get_string()).substr(0, 40)) {
      method += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
    }
    break;
  }
  for (const std::string_view key : {"bits", "w_bit"}) {
    const Json* bits = find(*found, key);
    if (bits != nullptr && bits->is_int64()) return fmt::format("{}, {} bits", method, bits->get_int64());
  }
  const Json* four = find(*found, "load_in_4bit");
  if (four != nullptr && four->is_bool()) return method + (four->get_bool() ? ", 4 bits" : ", 8 bits");
  return method;
}

WeightBlock weight_block_of(const Json& config) {
  WeightBlock block;
  const Json* found = quantisation_config(config);
  const Json* sizes = found != nullptr && found->is_object() ? find(*found, "weight_block_size") : nullptr;
  if (sizes == nullptr || !sizes->is_array() || sizes->get_array().size() != 2) return block;
  const Json &rows = sizes->get_array()[0], &cols = sizes->get_array()[1];
  if (rows.is_int64() && rows.get_int64() > 0) block.rows = rows.get_int64();
  if (cols.is_int64() && cols.get_int64() > 0) block.cols = cols.get_int64();
  return block;
}

}  // namespace millrace
