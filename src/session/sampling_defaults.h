// SamplingDefaults: how tokens are chosen when nobody says otherwise. There is one set of defaults for every verb, the
// server and its page: our own values, above them those that the model's makers wrote into its files (GGUF keys
// general.sampling.*, or generation_config.json), above them the flags of a command, above all a request's fields.
// Made once when a model is loaded, then immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/fill.h"
#include "engine/sampling.h"
#include "tensor/checkpoint.h"
#include "tensor/gguf_writer.h"

namespace millrace {

struct SamplingDefaults {
  SamplingDefaults();  // our own

  Sampling sampling;  // dry_breakers are empty: they are token ids, made for a request that needs them
  FillAsk fill;       // of models that fill masks
  std::vector<std::string> dry_breakers;  // the texts they are made from
  std::vector<std::string> of_model;      // names of the values that the model's files gave
  std::vector<std::string> ignored;       // sentences about values in the files that are outside their range
};

// One value that has a default.
struct SamplingValue {
  std::string_view name;  // as requests have it: "top_k"
  std::string_view gguf;  // after "general.sampling."; empty: there is no such key
  std::string_view file;  // in generation_config.json; empty: it has none
  double least, most;
  double Sampling::*number;  // one of the two
  int32_t Sampling::*integer;
};
std::span<const SamplingValue> sampling_values();

// Our own values and above them what the files say.
SamplingDefaults sampling_defaults(const Checkpoint& checkpoint);

// What the files say and is used, as keys of a GGUF file: read there, it gives the same defaults.
Result<void> put_sampling(GgufWriter& writer, const Checkpoint& checkpoint);

// Where masks are filled there is one choice at a time and nothing before it: the likeliest token, and no rule that
// looks back.
void suit_filling(SamplingDefaults& defaults);

JsonObject sampling_json(const SamplingDefaults& defaults);  // every value under its name
// What differs from leaving the model's distribution alone, in a line: "temperature 0.8, top_k 40 (model) ...".
std::string sampling_text(const SamplingDefaults& defaults);

}  // namespace millrace
