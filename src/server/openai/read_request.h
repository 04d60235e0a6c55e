// Bodies of OpenAI's interface, read into a RequestBody. Pure (bytes in, values or an ApiError out), so it is tested
// and fuzzed without a socket or a model. Any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/openai/bodies.h"
#include "server/request_body.h"

namespace millrace {

// Reads the body of a chat or a completion. What it does not say about sampling is as in `defaults`.
std::optional<ApiError> read_request_body(std::string_view body, Body kind, const BodyLimits& limits, RequestBody& out,
                                          const SamplingDefaults& defaults = {});

// What the answer must be, by the fields of a checked body. After the counts.
std::optional<ApiError> read_bound(const JsonObject& body, RequestBody& out);

// The tools an answer may call, and what of them must be. After the counts and what the answer must be.
std::optional<ApiError> read_tools(const JsonObject& body, RequestBody& out);
// The tools as templates get them; none with `tool_choice` none.
JsonArray template_tools(const JsonObject& body);

// The body as an object that fits the table; for the smaller routes.
std::optional<ApiError> read_body(std::string_view body, Body kind, const BodyLimits& limits, JsonObject& out,
                                  Ignored& ignored);

// The messages of a checked body; parts of content are joined.
std::vector<Message> messages_of(const JsonObject& body);
// A message says something, or calls something.
std::optional<ApiError> check_messages(const JsonObject& body);
ChatOptions chat_options_of(const JsonObject& body);
std::vector<Prompt> prompts_of(const Json& prompt);
std::vector<Token> tokens_of(const Json& list);

}  // namespace millrace
