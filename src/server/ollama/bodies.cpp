#include "server/ollama/bodies.h"

#include "server/sampling_fields.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;
using enum Shape;

constexpr auto kOption = std::to_array<Field>({
    {"num_predict", kInside, integer, -2, kMany, "-1",
     "most tokens of the answer, where the context has room for them; below 1: as many as it has room for"},
    {"stop", kInside, texts, 0, 64, "", "up to 64 texts that end the answer and are not part of it"},
    {"num_ctx", kInside, any, 0, 0, "", "the context is set when the server starts", Standing::ignored},
    {"num_keep", kInside, any, 0, 0, "", "no prompt is ever cut", Standing::ignored},
    {"num_batch", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"num_gpu", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"main_gpu", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"num_thread", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"use_mmap", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"use_mlock", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"low_vram", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"numa", kInside, any, 0, 0, "", "set when the server starts", Standing::ignored},
    {"penalize_newline", kInside, any, 0, 0, "", "penalties are for all tokens", Standing::ignored},
    {"tfs_z", kInside, any, 0, 0, "", "tail-free sampling", Standing::absent},
});
constexpr auto kOptionFields = joined(kOption, sampling_fields(kInside));
constexpr Table kOptions = {kOptionFields};

constexpr Field kFunction[] = {
    {"name", kInside, text, 0, 512, "", "its name", Standing::used, kInside},
    {"description", kInside, text, 0, 0, "", "what it does"},
    {"parameters", kInside, object, 0, 0, "", "its arguments: a JSON Schema"},
    {"strict", kInside, boolean, 0, 0, "false", "answers are kept to its schema"},
};
constexpr Table kFunctions = {kFunction};

constexpr Field kTool[] = {
    {"type", kInside, text, 0, 64, "\"function\"", "what it is", Standing::used, 0, nullptr, "function"},
    {"function", kInside, object, 0, 0, "", "the function", Standing::used, kInside, &kFunctions},
};
constexpr Table kTools = {kTool};

constexpr Field kCalled[] = {
    {"name", kInside, text, 0, 512, "", "its name", Standing::used, kInside},
    {"arguments", kInside, object, 0, 0, "", "its arguments"},
    {"index", kInside, any, 0, 0, "", "calls are in order", Standing::ignored},
    {"description", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
};
constexpr Table kCalledFunctions = {kCalled};

constexpr Field kCall[] = {
    {"id", kInside, text, 0, 512, "", "what its answer refers to"},
    {"type", kInside, any, 0, 0, "", "there is one", Standing::ignored},
    {"function", kInside, object, 0, 0, "", "what was called", Standing::used, kInside, &kCalledFunctions},
};
constexpr Table kCalls = {kCall};

constexpr Field kMessage[] = {
    {"role", kInside, text, 0, 64, "", "whose it is", Standing::used, kInside, nullptr, "system|user|assistant|tool"},
    {"content", kInside, text, 0, 0, "", "the text"},
    {"thinking", kInside, text, 0, 0, "", "of the assistant: the template is told where it asks for it"},
    {"images", kInside, any, 0, 0, "", "images", Standing::absent},
    {"tool_calls", kInside, objects, 0, 1024, "", "of the assistant: what it called", Standing::used, 0, &kCalls},
    {"tool_name", kInside, text, 0, 512, "", "of a tool's answer"},
    {"tool_call_id", kInside, text, 0, 512, "", "of a tool's answer: the call it answers"},
};
constexpr Table kMessages = {kMessage};

constexpr unsigned kAll = kOllamaText | kOllamaVectors | kOllamaShow;

constexpr Field kFields[] = {
    {"model", kAll, text, 0, 512, "", "name of the model, as /api/tags lists it, with or without `:latest`"},
    {"name", kOllamaShow, text, 0, 512, "", "the older name of `model`"},
    {"messages", kOllamaChat, objects, 0, 4096, "", "the conversation so far; none: the model is loaded, which it is",
     Standing::used, 0, &kMessages},
    {"prompt", kOllamaGenerate | kOllamaEmbeddings, text, 0, 0, "",
     "what the user says, or with `raw` the text to continue; none: the model is loaded, which it is"},
    {"suffix", kOllamaGenerate, text, 0, 0, "",
     "what stands after the answer, which fills in what is missing between; the model must be made for it"},
    {"system", kOllamaGenerate, text, 0, 0, "", "what comes before the prompt"},
    {"raw", kOllamaGenerate, boolean, 0, 0, "false", "the prompt goes to the model as it is, without its template"},
    {"input", kOllamaEmbed, any, 0, 0, "", "a text or a list of texts; at most 2048", Standing::used, kOllamaEmbed},
    {"truncate", kOllamaEmbed, boolean, 0, 0, "true", "cut texts that are too long; else they are refused"},
    {"dimensions", kOllamaEmbed, integer, 1, kMany, "",
     "the first so many numbers, brought to length 1; without it, all"},

    {"stream", kOllamaText, boolean, 0, 0, "true", "send the answer as it comes, a line of JSON each time"},
    {"format", kOllamaText, any, 0, 0, "", "what the answer must be: `json`, or a JSON Schema"},
    {"think", kOllamaText, any, 0, 0, "",
     "whether the model thinks first: true and false are the template's enable_thinking, low, medium and high its "
     "reasoning_effort"},
    {"tools", kOllamaChat, objects, 0, 1024, "", "what the answer may call", Standing::used, 0, &kTools},
    {"logprobs", kOllamaText, boolean, 0, 0, "false", "report the log-probability of each token"},
    {"top_logprobs", kOllamaText, integer, 0, 20, "0",
     "with `logprobs`: how many likely tokens to report at each place"},
    {"options", kOllamaText, object, 0, 0, "", "how tokens are chosen", Standing::used, 0, &kOptions},
    {"options", kOllamaVectors | kOllamaShow, any, 0, 0, "", "there is nothing to choose", Standing::ignored},
    {"keep_alive", kOllamaText | kOllamaVectors, any, 0, 0, "", "the model stays", Standing::ignored},
    {"verbose", kOllamaShow, any, 0, 0, "", "all is shown", Standing::ignored},
    {"shift", kOllamaText, any, 0, 0, "", "no prompt is ever cut", Standing::ignored},

    // Of other interfaces: they change an answer, so they are not passed over.
    {"max_tokens", kOllamaText, any, 0, 0, "", "another name of `options.num_predict`", Standing::absent},
    {"temperature", kOllamaText, any, 0, 0, "", "another name of `options.temperature`", Standing::absent},
    {"stop", kOllamaText, any, 0, 0, "", "another name of `options.stop`", Standing::absent},
    {"response_format", kOllamaText, any, 0, 0, "", "another name of `format`", Standing::absent},
    {"images", kOllamaGenerate, any, 0, 0, "", "images", Standing::absent},
    {"template", kOllamaGenerate, any, 0, 0, "", "another template", Standing::absent},
    {"context", kOllamaGenerate, any, 0, 0, "", "going on from a list of tokens", Standing::absent},
};
constexpr Table kTable = {kFields};

}  // namespace

const Table& ollama_bodies() { return kTable; }

}  // namespace millrace
