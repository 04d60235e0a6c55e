// The tables themselves. One field a line; their order is the order of the documentation.
#include "server/openai/bodies.h"

#include "server/sampling_fields.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;
using enum Shape;

constexpr double kMostCalls = 4096;  // of one message
constexpr double kMostTools = 1024;

// What a client that sends our answers back has in its messages, beside what we look at.
constexpr Field kPart[] = {
    {"type", kInside, text, 0, 64, "", "`text`", Standing::used, kInside, nullptr, "text"},
    {"text", kInside, text, 0, 0, "", "the text", Standing::used, kInside},
    {"cache_control", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
};
constexpr Table kParts = {kPart};

constexpr Field kCalledFunction[] = {
    {"name", kInside, text, 0, 512, "", "of the function", Standing::used, kInside},
    {"arguments", kInside, any, 0, 0, "", "as JSON text, or as an object"},
};
constexpr Table kCalledFunctions = {kCalledFunction};

constexpr Field kToolCall[] = {
    {"id", kInside, text, 0, 512, "", "of the call; the tool's answer names it"},
    {"type", kInside, text, 0, 64, "", "`function`", Standing::used, 0, nullptr, "function"},
    {"function", kInside, object, 0, 0, "", "what was called", Standing::used, kInside, &kCalledFunctions},
    {"index", kInside, any, 0, 0, "", "their order is the list's", Standing::ignored},
};
constexpr Table kToolCalls = {kToolCall};

constexpr Field kMessage[] = {
    {"role", kInside, role, 0, 0, "", "system, developer, user, assistant or tool; function is tool's older name",
     Standing::used, kInside},
    {"content", kInside, content, 0, 0, "", "a text, or parts of type text; may be left out beside calls",
     Standing::used, 0, &kParts},
    {"tool_calls", kInside, objects, 0, kMostCalls, "", "calls the assistant made", Standing::used, 0, &kToolCalls},
    {"tool_call_id", kInside, text, 0, 512, "", "the call a message of role tool answers"},
    {"reasoning_content", kInside, text, 0, 0, "", "what the assistant thought before it answered"},
    {"reasoning", kInside, text, 0, 0, "", "another name of `reasoning_content`"},
    {"name", kInside, text, 0, 512, "", "of the speaker or the tool; few templates look at it"},
    {"function_call", kInside, object, 0, 0, "", "the older way to say `tool_calls`", Standing::used, 0,
     &kCalledFunctions},
    {"refusal", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"annotations", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"reasoning_details", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"audio", kInside, any, 0, 0, "", "speech", Standing::absent},
};
constexpr Table kMessages = {kMessage};

constexpr Field kStreamOption[] = {
    {"include_usage", kInside, boolean, 0, 0, "false", "one more event at the end, with the counts of tokens"},
    {"include_obfuscation", kInside, any, 0, 0, "", "nothing is added to events", Standing::ignored},
};
constexpr Table kStreamOptions = {kStreamOption};

constexpr Field kPredicted[] = {
    {"type", kInside, text, 0, 64, "", "`content`", Standing::used, kInside, nullptr, "content"},
    {"content", kInside, content, 0, 0, "", "the text, or parts of type text", Standing::used, kInside, &kParts},
};
constexpr Table kPrediction = {kPredicted};

// What an answer may call.
constexpr Field kFunction[] = {
    {"name", kInside, text, 0, 128, "", "letters, digits and `_ - . : /`", Standing::used, kInside},
    {"description", kInside, text, 0, 0, "", "what it does, for the model"},
    {"parameters", kInside, any, 0, 0, "", "a JSON Schema of its arguments; without it, it takes none"},
    {"strict", kInside, boolean, 0, 0, "false", "arguments are kept to the schema, or the request is refused"},
};
constexpr Table kFunctions = {kFunction};

constexpr Field kTool[] = {
    {"type", kInside, text, 0, 64, "", "`function`", Standing::used, kInside, nullptr, "function"},
    {"function", kInside, object, 0, 0, "", "the tool", Standing::used, kInside, &kFunctions},
    {"cache_control", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
};
constexpr Table kTools = {kTool};

// What an answer must be.
constexpr double kMostChoices = 1'000'000;
constexpr Field kJsonSchema[] = {
    {"name", kInside, text, 0, 512, "", "what the client calls it"},
    {"description", kInside, any, 0, 0, "", "the model is not told", Standing::ignored},
    {"schema", kInside, any, 0, 0, "", "the schema: JSON Schema 2020-12 or draft-07", Standing::used, kInside},
    {"strict", kInside, boolean, 0, 0, "", "the schema holds either way"},
};
constexpr Table kJsonSchemas = {kJsonSchema};

constexpr Field kResponseFormat[] = {
    {"type", kInside, text, 0, 64, "", "`text`: anything; `json_object`: any object; `json_schema`: as the schema says",
     Standing::used, kInside, nullptr, "text|json_object|json_schema"},
    {"json_schema", kInside, object, 0, 0, "", "with `type` json_schema", Standing::used, 0, &kJsonSchemas},
    {"schema", kInside, any, 0, 0, "", "a schema for `type` json_object or json_schema, as llama.cpp takes it"},
};
constexpr Table kResponseFormats = {kResponseFormat};

constexpr Field kStructuredOutput[] = {
    {"json", kInside, any, 0, 0, "", "a JSON Schema, or the text of one"},
    {"regex", kInside, text, 0, 0, "", "a regular expression for the whole answer"},
    {"choice", kInside, strings, 1, kMostChoices, "", "the texts of which the answer is one"},
    {"grammar", kInside, text, 0, 0, "", "rules in GBNF or Lark"},
    {"json_object", kInside, boolean, 0, 0, "", "any JSON object"},
    {"disable_any_whitespace", kInside, boolean, 0, 0, "false", "JSON without white space between its tokens"},
    {"structural_tag", kInside, any, 0, 0, "", "structural tags", Standing::absent},
    {"whitespace_pattern", kInside, any, 0, 0, "", "another white space", Standing::absent},
    {"disable_additional_properties", kInside, any, 0, 0, "", "another default of additionalProperties",
     Standing::absent},
};
constexpr Table kStructuredOutputs = {kStructuredOutput};

// Of llama.cpp's interface.
constexpr Field kLora[] = {
    {"id", kInside, integer, 0, 1000, "", "its place in the list of /lora-adapters", Standing::used, kInside},
    {"scale", kInside, number, -1000, 1000, "1", "its changes are multiplied with it; 0: it is not used"},
};
constexpr Table kLoras = {kLora};

constexpr auto kFirst = std::to_array<Field>({
    {"model", kGenerate | kTokenize | kDetokenize | kTemplate | kEncode, text, 0, 512, "",
     "name of the model or of an adapter, as /v1/models lists them; without it, the model that is loaded"},
    {"messages", kChat | kTokenize | kTemplate, objects, 1, 4096, "", "the conversation so far", Standing::used,
     kChat | kTemplate, &kMessages},
    {"prompt", kCompletion | kTokenize, prompt, 0, 0, "",
     "the text to continue, or token ids, or a list of either; every entry gets its own answers", Standing::used,
     kCompletion},
    {"content", kTokenize, text, 0, 0, "", "the text to cut into tokens; another name of `prompt`"},
    {"tokens", kDetokenize, tokens, 0, kMany, "", "token ids to turn into text", Standing::used, kDetokenize},
    {"suffix", kCompletion, text, 0, 0, "",
     "what stands after the answer, which fills in what is missing between; the model must be made for it"},
    {"add_special", kTokenize, boolean, 0, 0, "true", "add the begin and end tokens the model wants"},
    {"with_pieces", kTokenize, boolean, 0, 0, "false", "give the text of every token beside its id"},

    {"input", kEmbed, any, 0, 0, "", "a text, a list of texts, token ids, or a list of such lists; at most 2048",
     Standing::used, kEmbed},
    {"encoding_format", kEmbed, text, 0, 16, "\"float\"", "base64: the float32 numbers as they lie in memory",
     Standing::used, 0, nullptr, "float|base64"},
    {"dimensions", kEmbed, integer, 1, kMany, "", "the first so many numbers, brought to length 1; without it, all"},
    {"query", kRerank, text, 0, 0, "", "what the documents are to answer", Standing::used, kRerank},
    {"documents", kRerank, any, 0, 0, "", "a list of texts, or of objects with a `text`; at most 2048", Standing::used,
     kRerank},
    {"top_n", kRerank, integer, 1, kMany, "", "only the best so many; without it, all"},
    {"return_documents", kRerank, boolean, 0, 0, "false", "give each result's text too"},
    {"text_1", kScore, any, 0, 0, "", "a text, or a list of as many as `text_2` has", Standing::used, kScore},
    {"text_2", kScore, any, 0, 0, "", "a text or a list of texts, each scored with its partner", Standing::used,
     kScore},
    {"truncate", kEncode, boolean, 0, 0, "false", "cut texts that are too long; else they are refused"},

    {"stream", kGenerate, boolean, 0, 0, "false", "send the answer as it comes, as server-sent events"},
    {"stream_options", kGenerate, object, 0, 0, "", "what a stream tells besides", Standing::used, 0, &kStreamOptions},
    {"max_tokens", kGenerate, integer, 1, kMany, "",
     "most tokens of each answer; without it 16 for a completion, and what the context has room for in a chat"},
    {"max_completion_tokens", kChat, integer, 1, kMany, "",
     "the newer name of `max_tokens`; it wins if both are given"},
    {"min_tokens", kGenerate, integer, 0, kMany, "0", "no end before so many tokens"},
    {"n", kGenerate, integer, 1, 128, "1", "answers to the one prompt; they share its cache"},
    {"best_of", kCompletion, integer, 1, 128, "",
     "make so many answers and give the `n` likeliest, token for token; not as a stream"},
    {"echo", kCompletion, boolean, 0, 0, "false", "put the prompt in front of the answer"},
    {"stop", kGenerate, texts, 0, 16, "", "up to 16 texts that end an answer and are not part of it"},
    {"stop_token_ids", kGenerate, tokens, 0, 1024, "", "tokens that end an answer"},
    {"ignore_eos", kGenerate, boolean, 0, 0, "false", "never choose the model's own end tokens"},
    {"return_token_ids", kGenerate, boolean, 0, 0, "false",
     "`token_ids` beside the text of each choice; always so where the model has no tokenizer"},
});

constexpr auto kLater = std::to_array<Field>({
    {"logprobs", kChat, boolean, 0, 0, "false", "report the log-probability of each token"},
    {"logprobs", kCompletion, integer, 0, 20, "", "report log-probabilities of each token and of so many others there"},
    {"top_logprobs", kChat, integer, 0, 20, "0", "with `logprobs`: how many likely tokens to report at each place"},

    {"prompt_logprobs", kGenerate, integer, 0, 20, "",
     "report log-probabilities of the prompt's tokens and of so many others at each; one answer, not as a stream"},

    {"prediction", kChat, object, 0, 0, "",
     "what the answer will probably be: changes no answer, and makes it faster where it is right and the server "
     "guesses "
     "(`--speculate`)",
     Standing::used, 0, &kPrediction},
    {"chat_template_kwargs", kChat | kTokenize | kTemplate, object, 0, 0, "",
     "further variables for the model's chat template, such as enable_thinking"},
    {"add_generation_prompt", kChat | kTokenize | kTemplate, boolean, 0, 0, "true",
     "let the template begin the assistant's answer"},
    {"continue_final_message", kChat | kTokenize | kTemplate, boolean, 0, 0, "false",
     "go on with the text of the last message, which is the assistant's; with `add_generation_prompt` false"},

    {"tools", kChat | kTokenize | kTemplate, objects, 0, kMostTools, "", "what the answer may call", Standing::used, 0,
     &kTools},
    {"tool_choice", kChat | kTokenize | kTemplate, any, 0, 0, "\"auto\"",
     "`none`: no call, and the model is not shown the tools; `auto`: calls or text; `required`: at least one call; "
     "`{\"type\": \"function\", \"function\": {\"name\"}}`: a call of this one; `{\"type\": \"allowed_tools\", "
     "\"allowed_tools\": {\"mode\", \"tools\"}}`: `auto` or `required` with some of the tools"},
    {"parallel_tool_calls", kChat, boolean, 0, 0, "true", "false: at most one call"},
    {"functions", kChat | kTokenize | kTemplate, objects, 0, kMostTools, "",
     "the older way to say `tools`; the answer then has `function_call`", Standing::used, 0, &kFunctions},
    {"function_call", kChat | kTokenize | kTemplate, any, 0, 0, "\"auto\"",
     "the older way to say `tool_choice`: `none`, `auto` or `{\"name\"}`"},
    {"reasoning_effort", kChat | kTokenize | kTemplate, text, 0, 64, "",
     "for templates that know it; `none` switches reasoning off, anything else on", Standing::used, 0, nullptr,
     "none|minimal|low|medium|high|xhigh|max"},
    {"thinking_budget", kChat | kTokenize | kTemplate, integer, -1, kMany, "-1",
     "tokens of reasoning at most, after which its end is written; 0: none; -1: as many as it likes"},
    {"thinking_token_budget", kChat | kTokenize | kTemplate, integer, -1, kMany, "-1", "vLLM's name of it"},
    {"thinking_budget_tokens", kChat | kTokenize | kTemplate, integer, -1, kMany, "-1", "llama.cpp's name of it"},
    {"reasoning_budget", kChat | kTokenize | kTemplate, integer, -1, kMany, "-1", "another name of it"},
    {"reasoning_budget_tokens", kChat | kTokenize | kTemplate, integer, -1, kMany, "-1", "another name of it"},

    {"response_format", kGenerate, object, 0, 0, "", "what the answer must be", Standing::used, 0, &kResponseFormats},
    {"structured_outputs", kGenerate, object, 0, 0, "", "the same in vLLM's words; one of its fields", Standing::used,
     0, &kStructuredOutputs},
    {"guided_json", kGenerate, any, 0, 0, "", "vLLM's older name of `structured_outputs.json`"},
    {"guided_regex", kGenerate, text, 0, 0, "", "vLLM's older name of `structured_outputs.regex`"},
    {"guided_choice", kGenerate, strings, 1, kMostChoices, "", "vLLM's older name of `structured_outputs.choice`"},
    {"guided_grammar", kGenerate, text, 0, 0, "", "vLLM's older name of `structured_outputs.grammar`"},
    {"json_schema", kGenerate, any, 0, 0, "", "llama.cpp's name of `structured_outputs.json`"},
    {"grammar", kGenerate, text, 0, 0, "", "llama.cpp's name of `structured_outputs.grammar`"},

    {"lora", kGenerate, objects, 0, 64, "", "the adapter to use, as llama.cpp takes it; one at most with a scale",
     Standing::used, 0, &kLoras},
    {"lora_name", kLoadAdapter | kUnloadAdapter, text, 0, 256, "", "what requests call the adapter", Standing::used,
     kLoadAdapter | kUnloadAdapter},
    {"lora_path", kLoadAdapter, text, 0, 4096, "",
     "its PEFT directory or GGUF file, in the folder that --lora-dir names", Standing::used, kLoadAdapter},
    {"lora_scale", kLoadAdapter, number, -1000, 1000, "1", "its changes are multiplied with it"},
    {"lora_int_id", kUnloadAdapter, any, 0, 0, "", "the name says it", Standing::ignored},
    {"base_model_name", kLoadAdapter, any, 0, 0, "", "there is one", Standing::ignored},

    {"model_path", kUpdateWeights, text, 0, 4096, "",
     "a GGUF file or a Hugging Face directory, in the folder that --weights-dir names", Standing::used, kUpdateWeights},
    {"mode", kUpdateWeights, text, 0, 0, "\"wait\"",
     "what becomes of open answers: they end with the old weights, with an error, or go on with the new ones",
     Standing::used, 0, nullptr, "wait|abort|keep"},
    {"abort_all_requests", kUpdateWeights, boolean, 0, 0, "false", "the mode abort, by SGLang's name"},
    {"weight_version", kUpdateWeights, text, 0, 256, "", "what /v1/models calls these weights"},
    {"load_format", kUpdateWeights, any, 0, 0, "", "told from the files", Standing::ignored},
    {"flush_cache", kUpdateWeights, any, 0, 0, "", "prefixes of other weights are never found", Standing::ignored},
    {"is_async", kUpdateWeights, any, 0, 0, "", "answers never wait for a file", Standing::ignored},

    {"priority", kGenerate, integer, -1000000, 1000000, "0", "the larger first, with --policy priority"},
    {"ttft_ms", kGenerate, number, 0, 1e9, "0",
     "time wanted until the first token; with --policy slo a request that cannot have it is refused with 429 at once"},
    {"tpot_ms", kGenerate, number, 0, 1e9, "0", "time wanted from token to token"},
    {"cache_salt", kGenerate, text, 0, 256, "", "prompts share cached prefixes only with those of the same salt"},
    {"user", kGenerate | kEncode, text, 0, 512, "",
     "who it is for; where there are no keys, users take turns by tokens served"},

    {"store", kChat, any, 0, 0, "", "nothing is stored", Standing::ignored},
    {"metadata", kGenerate, any, 0, 0, "", "kept by nobody", Standing::ignored},
    {"service_tier", kGenerate, any, 0, 0, "", "there is one", Standing::ignored},
    {"safety_identifier", kGenerate, any, 0, 0, "", "not looked at", Standing::ignored},
    {"prompt_cache_key", kGenerate, any, 0, 0, "", "the cache finds equal prefixes by itself", Standing::ignored},
    {"prompt_cache_retention", kGenerate, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"modalities", kChat, any, 0, 0, "", "answers other than text", Standing::absent},
    {"audio", kChat, any, 0, 0, "", "spoken answers", Standing::absent},
    {"verbosity", kChat, any, 0, 0, "", "verbosity", Standing::absent},
    {"web_search_options", kChat, any, 0, 0, "", "web search", Standing::absent},
    // Of other servers' interfaces: they change an answer, so they are not passed over.
    {"n_predict", kGenerate, any, 0, 0, "", "another name of `max_tokens`", Standing::absent},
    {"guided_decoding_backend", kGenerate, any, 0, 0, "", "there is one", Standing::ignored},
    {"guided_whitespace_pattern", kGenerate, any, 0, 0, "", "another white space", Standing::absent},
    {"use_beam_search", kGenerate, any, 0, 0, "", "beam search", Standing::absent},
    {"length_penalty", kGenerate, any, 0, 0, "", "beam search", Standing::absent},
    {"n_probs", kGenerate, any, 0, 0, "", "another name of `logprobs`", Standing::absent},
    {"samplers", kGenerate, any, 0, 0, "", "another order of samplers", Standing::absent},
    {"tfs_z", kGenerate, any, 0, 0, "", "tail-free sampling", Standing::absent},
});
constexpr auto kFields = joined(kFirst, sampling_fields(kGenerate), kLater);
constexpr Table kTable = {kFields};

}  // namespace

const Table& openai_bodies() { return kTable; }

}  // namespace millrace
