#include "server/responses/bodies.h"

#include "server/sampling_fields.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;
using enum Shape;

constexpr Field kPart[] = {
    {"type", kInside, text, 0, 64, "", "what it is", Standing::used, kInside, nullptr,
     "input_text|output_text|text|reasoning_text|summary_text|refusal"},
    {"text", kInside, text, 0, 0, "", "the text"},
    {"refusal", kInside, text, 0, 0, "", "of a refusal"},
    {"annotations", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"logprobs", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"prompt_cache_breakpoint", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
};
constexpr Table kParts = {kPart};

constexpr Field kItem[] = {
    {"type", kInside, text, 0, 64, "\"message\"", "what it is", Standing::used, 0, nullptr,
     "message|reasoning|function_call|function_call_output|custom_tool_call|custom_tool_call_output"},
    {"role", kInside, text, 0, 64, "", "of a message", Standing::used, 0, nullptr, "system|developer|user|assistant"},
    {"content", kInside, parts, 0, kMostParts, "", "of a message or of reasoning", Standing::used, 0, &kParts},
    {"call_id", kInside, text, 0, 512, "", "of a call and of what it gave"},
    {"name", kInside, text, 0, 512, "", "of a call"},
    {"arguments", kInside, text, 0, 0, "", "of a call: JSON as text"},
    {"input", kInside, text, 0, 0, "", "of a custom call"},
    {"output", kInside, parts, 0, kMostParts, "", "what a call gave", Standing::used, 0, &kParts},
    {"id", kInside, any, 0, 0, "", "the client's name for it", Standing::ignored},
    {"status", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"phase", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"namespace", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"summary", kInside, any, 0, 0, "", "the template is not told", Standing::ignored},
    {"encrypted_content", kInside, any, 0, 0, "", "nothing is encrypted here", Standing::ignored},
};
constexpr Table kItems = {kItem};

constexpr Field kFormat[] = {
    {"type", kInside, text, 0, 64, "", "`text`: anything; `json_object`: any object; `json_schema`: as the schema says",
     Standing::used, kInside, nullptr, "text|json_object|json_schema"},
    {"name", kInside, text, 0, 512, "", "what the client calls it"},
    {"schema", kInside, any, 0, 0, "", "the schema: JSON Schema 2020-12 or draft-07"},
    {"strict", kInside, boolean, 0, 0, "", "the schema holds either way"},
    {"description", kInside, any, 0, 0, "", "the model is not told", Standing::ignored},
};
constexpr Table kFormats = {kFormat};

constexpr Field kText[] = {
    {"format", kInside, object, 0, 0, "", "what the answer must be", Standing::used, 0, &kFormats},
    {"verbosity", kInside, any, 0, 0, "", "the model decides", Standing::ignored},
};
constexpr Table kTexts = {kText};

constexpr Field kReason[] = {
    {"effort", kInside, text, 0, 64, "",
     "the template's reasoning_effort; `none` and `minimal` unset its enable_thinking, others set it"},
    {"summary", kInside, any, 0, 0, "", "all is told as it is", Standing::ignored},
    {"generate_summary", kInside, any, 0, 0, "", "all is told as it is", Standing::ignored},
    {"context", kInside, any, 0, 0, "", "the template decides", Standing::ignored},
};
constexpr Table kReasons = {kReason};

constexpr Field kTool[] = {
    {"type", kInside, text, 0, 128, "", "`function`; tools of any other type are left out", Standing::used, kInside},
    {"name", kInside, text, 0, 512, "", "its name"},
    {"description", kInside, text, 0, 0, "", "what it does"},
    {"parameters", kInside, object, 0, 0, "", "its arguments: a JSON Schema"},
    {"strict", kInside, boolean, 0, 0, "false", "answers are kept to its schema"},
    {"defer_loading", kInside, any, 0, 0, "", "all tools are shown", Standing::ignored},
    {"format", kInside, any, 0, 0, "", "of a custom tool", Standing::ignored},
    {"tools", kInside, any, 0, 0, "", "of a namespace", Standing::ignored},
};
constexpr Table kTools = {kTool};

constexpr auto kFirst = std::to_array<Field>({
    {"model", kResponse, text, 0, 512, "",
     "name of the model, as /v1/models lists it; without it, the one that is loaded"},
    {"input", kResponse, parts, 1, 8192, "", "what the user says, or the items of the conversation so far",
     Standing::used, kResponse, &kItems},
    {"instructions", kResponse, text, 0, 0, "", "what comes before it"},
    {"stream", kResponse, boolean, 0, 0, "false", "send the answer as it comes, as server-sent events"},
    {"max_output_tokens", kResponse, integer, 1, kMany, "",
     "most tokens of the answer; where the context has room for fewer, those"},
    {"text", kResponse, object, 0, 0, "", "how the answer is to be", Standing::used, 0, &kTexts},
    {"tools", kResponse, objects, 0, 1024, "", "what the answer may call", Standing::used, 0, &kTools},
    {"tool_choice", kResponse, any, 0, 0, "\"auto\"", "auto, none, required, or a function by its name"},
    {"parallel_tool_calls", kResponse, boolean, 0, 0, "true", "false: at most one call"},
    {"reasoning", kResponse, object, 0, 0, "", "how the model thinks", Standing::used, 0, &kReasons},
});

constexpr auto kLater = std::to_array<Field>({
    {"user", kResponse, text, 0, 512, "", "who it is for; where there are no keys, users take turns by tokens served"},
    {"cache_salt", kResponse, text, 0, 256, "", "prompts share cached prefixes only with those of the same salt"},
    {"store", kResponse, boolean, 0, 0, "true", "keep the answer, so that a later request can go on from it"},
    {"previous_response_id", kResponse, text, 0, 512, "",
     "the answer this one goes on from; its instructions are not taken over"},
    {"include", kResponse, any, 0, 0, "", "nothing is left out", Standing::ignored},
    {"metadata", kResponse, any, 0, 0, "", "kept by nobody", Standing::ignored},
    {"client_metadata", kResponse, any, 0, 0, "", "kept by nobody", Standing::ignored},
    {"service_tier", kResponse, any, 0, 0, "", "there is one", Standing::ignored},
    {"truncation", kResponse, any, 0, 0, "", "no prompt is ever cut", Standing::ignored},
    {"stream_options", kResponse, any, 0, 0, "", "nothing is added to events", Standing::ignored},
    {"prompt_cache_key", kResponse, any, 0, 0, "", "the cache finds equal prefixes by itself", Standing::ignored},
    {"prompt_cache_retention", kResponse, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"safety_identifier", kResponse, any, 0, 0, "", "not looked at", Standing::ignored},
    {"max_tool_calls", kResponse, any, 0, 0, "", "it is for tools of the server, which has none", Standing::ignored},
    {"context_management", kResponse, any, 0, 0, "", "the client's business", Standing::ignored},

    {"conversation", kResponse, any, 0, 0, "", "a conversation that is stored", Standing::absent},
    {"background", kResponse, any, 0, 0, "", "an answer to be fetched later", Standing::absent},
    {"prompt", kResponse, any, 0, 0, "", "a prompt that is stored", Standing::absent},
    // Of other interfaces: they change an answer, so they are not passed over.
    {"messages", kResponse, any, 0, 0, "", "another name of `input`", Standing::absent},
    {"max_tokens", kResponse, any, 0, 0, "", "another name of `max_output_tokens`", Standing::absent},
    {"max_completion_tokens", kResponse, any, 0, 0, "", "another name of `max_output_tokens`", Standing::absent},
    {"response_format", kResponse, any, 0, 0, "", "another name of `text.format`", Standing::absent},
    {"stop", kResponse, any, 0, 0, "", "a text that ends the answer", Standing::absent},
    {"top_logprobs", kResponse, any, 0, 0, "", "log-probabilities in this interface", Standing::absent},
});
constexpr auto kFields = joined(kFirst, sampling_fields(kResponse), kLater);
constexpr Table kTable = {kFields};

}  // namespace

const Table& responses_bodies() { return kTable; }

}  // namespace millrace
