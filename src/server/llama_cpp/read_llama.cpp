#include "server/llama_cpp/read_llama.h"

#include <algorithm>

#include "server/asked_bound.h"
#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/openai/read_request.h"
#include "server/read_sampling.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

Failure read_prompt(const JsonObject& body, RequestBody& out) {
  out.prompts = prompts_of(*find(body, "prompt"));
  if (out.prompts.size() == 1) return {};
  return bad_field("prompt", fmt::format("'prompt' has {} prompts; here one is answered at a time, several by "
                                         "/v1/completions",
                                         out.prompts.size()));
}

// What belongs to the text comes before it, each file under its name.
Failure read_infill(const JsonObject& body, RequestBody& out) {
  const FieldReader read(body);
  std::string before;
  if (const Json* extras = find(body, "input_extra")) {
    for (const Json& extra : extras->get_array()) {
      const FieldReader file(extra.get_object());
      if (file.has("filename")) before += file.text("filename") + "\n";
      before += file.text("text") + "\n";
    }
  }
  out.prompts = {before + read.text("input_prefix") + read.text("prompt")};
  out.suffix = read.text("input_suffix");
  return {};
}

// Clients send the order they know, which is ours.
Failure check_samplers(const JsonObject& body) {
  constexpr std::string_view kOrder[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                         "top_p",     "min_p", "xtc",         "temperature"};
  const Json* samplers = find(body, "samplers");
  if (samplers == nullptr || samplers->get_array().empty()) return {};
  const auto& list = samplers->get_array();
  const bool same =
      std::equal(list.begin(), list.end(), std::begin(kOrder), std::end(kOrder),
                 [](const Json& one, std::string_view name) { return std::string_view(one.get_string()) == name; });
  if (same) return {};
  return not_built("samplers", fmt::format("another order of 'samplers' is not built; there is {}: set what is not "
                                           "wanted to its neutral value",
                                           fmt::join(kOrder, ", ")));
}

Failure read_bounds(const JsonObject& body, RequestBody& out) {
  if (const Json* schema = find(body, "json_schema")) {
    if (!schema->is_object() && !schema->is_bool() && !schema->is_string())
      return bad_field("json_schema", "'json_schema' must be a JSON Schema: an object, true or false");
    if (auto failure = add_bound(out, schema_source(*schema), "json_schema")) return failure;
  }
  const std::string grammar = FieldReader(body).text("grammar");
  if (!grammar.empty()) {  // empty is how these clients say none
    if (auto failure = add_bound(out, rules_source(grammar), "grammar")) return failure;
  }
  if (out.bound && out.ignore_end)
    return bad_field("ignore_eos", fmt::format("'ignore_eos' does not go with '{}', which says where the answer ends",
                                               out.bound->field));
  return {};
}

}  // namespace

std::optional<ApiError> read_llama(std::string_view body, LlamaBody kind, const BodyLimits& limits, RequestBody& out,
                                   const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_checked(body, llama_bodies(), kind, limits, object, out.ignored)) return failure;
  const FieldReader read(object);
  out.chat = false;
  out.model = read.text("model");
  out.stream = read.flag("stream", false);
  out.max_tokens = std::max(0, read.integer("n_predict", read.integer("max_tokens", 0)));
  out.up_to = true;
  out.stops = read.texts("stop");
  out.ignore_end = read.flag("ignore_eos", false);
  out.return_ids = read.flag("return_tokens", false);
  const int32_t probabilities = read.integer("n_probs", 0);
  out.request.logprobs = probabilities > 0 ? probabilities : -1;
  if (auto failure = kind == kLlamaInfill ? read_infill(object, out) : read_prompt(object, out)) return failure;
  if (auto failure = check_samplers(object)) return failure;
  if (auto failure = read_bounds(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace
