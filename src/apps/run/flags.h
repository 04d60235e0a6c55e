// What `run`, `chat` and their kin share on the command line: how the model is loaded and how tokens are chosen. The
// names are the ones llama.cpp made familiar. Main thread.
#pragma once

#include <vector>

#include "apps/cli/flags.h"
#include "base/result.h"
#include "engine/sampling.h"
#include "session/bound.h"
#include "session/generator.h"
#include "session/loaded_model.h"
#include "session/sampling_defaults.h"
#include "tensor/dtype.h"

namespace millrace::apps {

// --device: which machine computes.
Flag device_flag();
Flag ranks_flag();
Flag pipeline_flag();
Flag whole_experts_flag();
Result<RankCut> rank_cut(const Arguments& arguments);  // as these two say, where the verb has them
Flag transport_flag();                                 // for verbs that `mpirun` may start
bool over_mpi(const Arguments& arguments);
int ranks_of(const Arguments& arguments);  // 1 where the verb has no such flag
// --kv-type and, for one of both, --cache-type-k and --cache-type-v: kv_type() understands them. And kv_keep_flag().
std::vector<Flag> kv_flags();
// The last two.
std::vector<Flag> kv_apart_flags();
// --kv-keep, under another name if need be: what a cache that forgets keeps; and what that comes to, everything if it
// is not given or the verb has no such flag. One of kv_flags().
Flag kv_keep_flag(std::string_view name = "kv-keep");
Result<KvKeep> kv_keep(const Arguments& arguments, std::string_view name = "kv-keep");
// The context where none is asked for: the model's, at most `usual`; with a cache that forgets, a million tokens, since
// they take no more.
int32_t usual_context(const LoadedModel& model, int32_t usual);
// Warns if rows will see further back than the model was made for.
void warn_of_length(const Terminal& terminal, const LoadedModel& model, int32_t context);

// Tokens of a step, as a flag says or, if that is 0, as suits the device: a GPU needs many to be busy.
int32_t step_rows(const Arguments& arguments, std::string_view flag, int32_t on_cpu);

// --device --threads, kv_flags(), --ubatch-size --memory-limit: where and how the model runs.
std::vector<Flag> machine_flags();
// --temp, --top-k ...: the values that have a default (session/sampling_defaults.h).
std::vector<Flag> default_flags();
// The same, and what is said of one answer only: --logit-bias, --ban-token-ids, --seed.
std::vector<Flag> sampling_flags();
// --predict, --min-tokens, --ignore-eos, --stop, --stop-token-ids.
std::vector<Flag> stopping_flags();

// Loads the model that --model names, or the shipped one, saying so on stderr.
Result<std::unique_ptr<LoadedModel>> load_model(const Arguments& arguments, int64_t context);

// What a format of keys and values by name comes to; `auto` is the fastest that costs no more than the weights have
// lost already: bf16 where the machine multiplies matrices of it, unless the weights are F16 or F32; else f16.
inline constexpr std::string_view kKvForms = "f16|bf16|f32|q8|q8_0|int8|fp8|fp8_e4m3|q4|q4_0|q4-plain";
inline constexpr std::string_view kKvTypes = "auto|f16|bf16|f32|q8|q8_0|int8|fp8|fp8_e4m3|q4|q4_0|q4-plain";
KvForm kv_type(const std::string& name, const Model& model, const Backend& backend);
KvForm kv_type(const Arguments& arguments, const LoadedModel& loaded);  // of kv_flags()
// Of --kv-type and --cache-type-k, --cache-type-v above it, where there is no `auto`.
KvForm kv_form(const Arguments& arguments, std::string_view both = "kv-type");

// Our values and the model's above them; those that a registry gave with it above both.
SamplingDefaults model_defaults(const Checkpoint& checkpoint);

// What holds where nobody says otherwise: our values, the model's above them, default_flags() above all. Values in the
// model's files that cannot be used are warned about.
SamplingDefaults defaults_of(const Arguments& arguments, const LoadedModel& model);

// A seed of -1 becomes a random one. Needs the model for token ids and for the texts DRY breaks at.
Result<Sampling> sampling_of(const Arguments& arguments, const LoadedModel& model);

// What stopping_flags() and the sampling come to.
GenerateOptions generate_options(const Arguments& arguments, const LoadedModel& model, const Sampling& sampling);

// --json-schema, --regex, --grammar, --choice: what the answer must be; and what they come to, null if none is given.
std::vector<Flag> bound_flags();
Result<std::shared_ptr<Constraint>> constraint_of(const Arguments& arguments, Bounds& bounds,
                                                  const BoundOptions& options);

// Token, then + - or =, then the bias: "15043+1.5", "15043-2", "15043=-inf" (which bans it).
Result<void> add_bias(std::string_view text, Sampling& sampling);

}  // namespace millrace::apps
