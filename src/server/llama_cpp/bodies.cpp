#include "server/llama_cpp/bodies.h"

#include "server/sampling_fields.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;
using enum Shape;

constexpr Field kExtra[] = {
    {"filename", kInside, text, 0, 4096, "", "its name, which stands above it"},
    {"text", kInside, text, 0, 0, "", "what is in it", Standing::used, kInside},
};
constexpr Table kExtras = {kExtra};

constexpr auto kFirst = std::to_array<Field>({
    {"model", kLlamaEither, text, 0, 512, "",
     "name of the model, as /v1/models lists it; without it, the one that is loaded"},
    {"prompt", kLlamaCompletion, prompt, 0, 0, "", "the text to continue, or its token ids; one, not several",
     Standing::used, kLlamaCompletion},
    {"prompt", kLlamaInfill, text, 0, 0, "", "more of what stands before, after `input_prefix`"},
    {"input_prefix", kLlamaInfill, text, 0, 0, "", "what stands before the answer"},
    {"input_suffix", kLlamaInfill, text, 0, 0, "", "what stands after it"},
    {"input_extra", kLlamaInfill, objects, 0, 1024, "", "files that belong to it; they come first", Standing::used, 0,
     &kExtras},
    {"n_predict", kLlamaEither, integer, -2, kMany, "-1",
     "most tokens of the answer, where the context has room for them; below 1: as many as it has room for"},
    {"max_tokens", kLlamaEither, integer, -1, kMany, "", "another name of `n_predict`, which wins"},
    {"stream", kLlamaEither, boolean, 0, 0, "false", "send the answer as it comes, as server-sent events"},
    {"stop", kLlamaEither, texts, 0, 64, "", "up to 64 texts that end the answer and are not part of it"},
    {"ignore_eos", kLlamaEither, boolean, 0, 0, "false", "never choose the model's own end tokens"},
    {"n_probs", kLlamaEither, integer, 0, 20, "0",
     "report log-probabilities of each token and of so many others there"},
    {"return_tokens", kLlamaEither, boolean, 0, 0, "false", "give the ids of the tokens too"},
    {"grammar", kLlamaEither, text, 0, 0, "", "what the answer must be: rules in GBNF or Lark"},
    {"json_schema", kLlamaEither, any, 0, 0, "", "what the answer must be: a JSON Schema"},
    {"samplers", kLlamaEither, strings, 0, 64, "",
     "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature: there is this one order"},
});

constexpr auto kLater = std::to_array<Field>({
    {"cache_prompt", kLlamaEither, any, 0, 0, "", "the cache finds equal prefixes by itself", Standing::ignored},
    {"id_slot", kLlamaEither, any, 0, 0, "", "there are none to choose from", Standing::ignored},
    {"n_keep", kLlamaEither, any, 0, 0, "", "no prompt is ever cut", Standing::ignored},
    {"n_cache_reuse", kLlamaEither, any, 0, 0, "", "only whole prefixes are used again", Standing::ignored},
    {"timings_per_token", kLlamaEither, any, 0, 0, "", "they come at the end", Standing::ignored},
    {"return_progress", kLlamaEither, any, 0, 0, "", "there is none to tell", Standing::ignored},
    {"response_fields", kLlamaEither, any, 0, 0, "", "all are given", Standing::ignored},
    {"min_keep", kLlamaEither, any, 0, 0, "", "one token is always kept", Standing::ignored},

    {"post_sampling_probs", kLlamaEither, any, 0, 0, "", "log-probabilities after sampling", Standing::absent},
    {"t_max_predict_ms", kLlamaEither, any, 0, 0, "", "an end by the clock", Standing::absent},
    {"n_indent", kLlamaEither, any, 0, 0, "", "a least indentation", Standing::absent},
    {"grammar_lazy", kLlamaEither, any, 0, 0, "", "a grammar that waits for a trigger", Standing::absent},
    {"image_data", kLlamaEither, any, 0, 0, "", "images", Standing::absent},
    {"lora", kLlamaEither, any, 0, 0, "", "adapters", Standing::absent},
});
constexpr auto kFields = joined(kFirst, sampling_fields(kLlamaEither), kLater);
constexpr Table kTable = {kFields};

}  // namespace

const Table& llama_bodies() { return kTable; }

}  // namespace millrace
