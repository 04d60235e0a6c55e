#include "apps/shrink/tensor_types.h"

#include <regex>

#include "model/convert.h"

namespace millrace::apps {
namespace {

struct Rule {
  std::string text;
  std::regex names;
  DType type = DType::f16;
  int matched = 0;
};

Result<Rule> parse(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0)
    return error(Code::invalid, "--tensor-type {}: expected REGEX=TYPE, such as ffn_down=Q6_K", text);
  const std::string name = text.substr(at + 1);
  const std::optional<DType> type = dtype_from_name(name);
  if (!type || format(*type).ggml < 0 || format(*type).from_float == nullptr)
    return error(Code::invalid, "--tensor-type {}: '{}' is not a format that can be written", text, name);
  Rule rule = {.text = text, .names = {}, .type = *type};
  try {
    rule.names = std::regex(text.substr(0, at), std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    return error(Code::invalid, "--tensor-type {}: '{}' is no regular expression", text, text.substr(0, at));
  }
  return rule;
}

Result<bool> fits(const Rule& rule, const std::string& name) {
  try {
    return std::regex_search(name, rule.names);
  } catch (const std::regex_error&) {
    return error(Code::invalid, "--tensor-type {}: the expression takes too long; use a plainer one", rule.text);
  }
}

}  // namespace

Result<std::vector<std::optional<DType>>> tensor_types(const ModelSource& source, const std::vector<Slot>& slots,
                                                       const std::vector<std::string>& rules) {
  std::vector<Rule> parsed;
  for (const std::string& text : rules) {
    TRY(Rule rule, parse(text));
    parsed.push_back(std::move(rule));
  }
  std::vector<std::optional<DType>> out(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.kind != SlotKind::matrix || !slot.weight || slot.float32) continue;
    const std::string name = file_tensor(source, slot);
    for (Rule& rule : parsed) {
      TRY(const bool named, fits(rule, name));
      if (!named) continue;
      ++rule.matched;
      if (out[i]) continue;  // an earlier rule holds
      const Format& f = format(rule.type);
      if (slot.cols % f.group != 0) {
        return error(Code::invalid, "--tensor-type {}: {} has rows of {} numbers, and {} takes multiples of {}",
                     rule.text, name, slot.cols, f.name, f.group);
      }
      out[i] = rule.type;
    }
  }
  for (const Rule& rule : parsed) {
    if (rule.matched == 0)
      return error(Code::invalid,
                   "--tensor-type {}: no matrix of the model has such a name; `millrace inspect "
                   "--tensors` lists them",
                   rule.text);
  }
  return out;
}

}  // namespace millrace::apps
