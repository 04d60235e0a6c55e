#include "server/anthropic/bodies.h"

#include "server/sampling_fields.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;
using enum Shape;

constexpr Field kTextPart[] = {
    {"type", kInside, text, 0, 64, "", "`text`", Standing::used, kInside, nullptr, "text"},
    {"text", kInside, text, 0, 0, "", "the text", Standing::used, kInside},
    {"cache_control", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"citations", kInside, any, 0, 0, "", "none are made", Standing::ignored},
};
constexpr Table kTextParts = {kTextPart};

constexpr Field kPart[] = {
    {"type", kInside, text, 0, 64, "", "what it is", Standing::used, kInside, nullptr,
     "text|thinking|redacted_thinking|tool_use|tool_result"},
    {"text", kInside, text, 0, 0, "", "of a text"},
    {"thinking", kInside, text, 0, 0, "", "of thinking: the template is told where it asks for it"},
    {"signature", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"data", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"id", kInside, text, 0, 512, "", "of a tool_use"},
    {"name", kInside, text, 0, 512, "", "of a tool_use"},
    {"input", kInside, object, 0, 0, "", "of a tool_use: its arguments"},
    {"tool_use_id", kInside, text, 0, 512, "", "of a tool_result: the call it answers"},
    {"content", kInside, parts, 0, kMostParts, "", "of a tool_result", Standing::used, 0, &kTextParts},
    {"is_error", kInside, boolean, 0, 0, "false", "of a tool_result: the text says so, or nothing does"},
    {"cache_control", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"citations", kInside, any, 0, 0, "", "none are made", Standing::ignored},
    {"caller", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
};
constexpr Table kParts = {kPart};

constexpr Field kMessage[] = {
    {"role", kInside, text, 0, 64, "", "whose it is", Standing::used, kInside, nullptr, "user|assistant|system"},
    {"content", kInside, parts, 0, kMostParts, "", "a text, or parts of it", Standing::used, kInside, &kParts},
};
constexpr Table kMessages = {kMessage};

constexpr Field kFormat[] = {
    {"type", kInside, text, 0, 64, "", "`json_schema`", Standing::used, kInside, nullptr, "json_schema"},
    {"schema", kInside, any, 0, 0, "", "the schema: JSON Schema 2020-12 or draft-07", Standing::used, kInside},
};
constexpr Table kFormats = {kFormat};

constexpr Field kOutputConfig[] = {
    {"format", kInside, object, 0, 0, "", "what the answer must be", Standing::used, 0, &kFormats},
    {"effort", kInside, any, 0, 0, "", "the model decides", Standing::ignored},
    {"task_budget", kInside, any, 0, 0, "", "the model decides", Standing::ignored},
};
constexpr Table kOutputConfigs = {kOutputConfig};

constexpr Field kThinking[] = {
    {"type", kInside, text, 0, 64, "",
     "`enabled` and `adaptive` set the template's enable_thinking, `disabled` unsets it", Standing::used, kInside,
     nullptr, "enabled|disabled|adaptive"},
    {"budget_tokens", kInside, integer, 0, kMany, "",
     "with `enabled`: tokens of reasoning at most, after which its end is written; 0: none"},
    {"display", kInside, any, 0, 0, "", "all is shown", Standing::ignored},
};
constexpr Table kThinkings = {kThinking};

constexpr Field kTool[] = {
    {"name", kInside, text, 0, 512, "", "its name", Standing::used, kInside},
    {"description", kInside, text, 0, 0, "", "what it does"},
    {"input_schema", kInside, object, 0, 0, "", "its arguments: a JSON Schema"},
    {"strict", kInside, boolean, 0, 0, "false", "answers are kept to its schema"},
    {"type", kInside, text, 0, 128, "\"custom\"", "a tool of any other type, which the server would run, is left out"},
    {"cache_control", kInside, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"eager_input_streaming", kInside, any, 0, 0, "", "arguments always come as they are made", Standing::ignored},
    {"defer_loading", kInside, any, 0, 0, "", "all tools are shown", Standing::ignored},
    {"input_examples", kInside, any, 0, 0, "", "the model is not told", Standing::ignored},
    {"allowed_callers", kInside, any, 0, 0, "", "not looked at", Standing::ignored},
    {"max_uses", kInside, any, 0, 0, "", "it is for tools of the server, which has none", Standing::ignored},
};
constexpr Table kTools = {kTool};

constexpr Field kToolChoice[] = {
    {"type", kInside, text, 0, 64, "", "`any`: some call; `tool`: of the one that is named", Standing::used, kInside,
     nullptr, "auto|any|tool|none"},
    {"name", kInside, text, 0, 512, "", "with `type` tool"},
    {"disable_parallel_tool_use", kInside, boolean, 0, 0, "false", "at most one call"},
};
constexpr Table kToolChoices = {kToolChoice};

constexpr auto kFirst = std::to_array<Field>({
    {"model", kEitherMessages, text, 0, 512, "",
     "name of the model, as /v1/models lists it; without it, the one that is loaded"},
    {"messages", kEitherMessages, objects, 1, 4096, "",
     "the conversation so far; neighbours of one role are one message, and a last one of the assistant is continued",
     Standing::used, kEitherMessages, &kMessages},
    {"system", kEitherMessages, parts, 0, kMostParts, "",
     "what comes before it; a line x-anthropic-billing-header is left out, since it changes from request to request",
     Standing::used, 0, &kTextParts},
    {"max_tokens", kMessagesBody, integer, 1, kMany, "",
     "most tokens of the answer; where the context has room for fewer, those", Standing::used, kMessagesBody},
    {"stop_sequences", kMessagesBody, texts, 0, 64, "", "up to 64 texts that end the answer and are not part of it"},
    {"stream", kMessagesBody, boolean, 0, 0, "false", "send the answer as it comes, as server-sent events"},
    {"thinking", kEitherMessages, object, 0, 0, "", "whether the model thinks first", Standing::used, 0, &kThinkings},
    {"tools", kEitherMessages, objects, 0, 1024, "", "what the answer may call", Standing::used, 0, &kTools},
    {"tool_choice", kEitherMessages, object, 0, 0, "", "whether it must", Standing::used, 0, &kToolChoices},
    {"output_config", kEitherMessages, object, 0, 0, "", "how the answer is to be", Standing::used, 0, &kOutputConfigs},
    {"output_format", kEitherMessages, object, 0, 0, "", "the older name of `output_config.format`", Standing::used, 0,
     &kFormats},
});

constexpr auto kLater = std::to_array<Field>({
    {"cache_salt", kMessagesBody, text, 0, 256, "", "prompts share cached prefixes only with those of the same salt"},
    {"metadata", kEitherMessages, any, 0, 0, "", "kept by nobody", Standing::ignored},
    {"service_tier", kEitherMessages, any, 0, 0, "", "there is one", Standing::ignored},
    {"cache_control", kEitherMessages, any, 0, 0, "", "decided by the cache", Standing::ignored},
    {"context_management", kEitherMessages, any, 0, 0, "", "the client's business", Standing::ignored},
    {"inference_geo", kEitherMessages, any, 0, 0, "", "it is here", Standing::ignored},
    {"speed", kEitherMessages, any, 0, 0, "", "there is one", Standing::ignored},
    {"betas", kEitherMessages, any, 0, 0, "", "not looked at", Standing::ignored},

    {"mcp_servers", kEitherMessages, any, 0, 0, "", "servers of tools", Standing::absent},
    // Of other interfaces: they change an answer, so they are not passed over.
    {"stop", kMessagesBody, any, 0, 0, "", "another name of `stop_sequences`", Standing::absent},
    {"max_completion_tokens", kMessagesBody, any, 0, 0, "", "another name of `max_tokens`", Standing::absent},
    {"response_format", kMessagesBody, any, 0, 0, "", "another name of `output_config.format`", Standing::absent},
    {"container", kEitherMessages, any, 0, 0, "", "running code", Standing::absent},
});
constexpr auto kFields = joined(kFirst, sampling_fields(kMessagesBody), kLater);
constexpr Table kTable = {kFields};

}  // namespace

const Table& anthropic_bodies() { return kTable; }

}  // namespace millrace
