// RequestBody: what a client asked for, read from its body: names, types and ranges are checked, nothing is tokenized
// yet. Reading is pure (bytes in, values or an ApiError out), so it is tested and fuzzed without a socket or a model.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/schema.h"
#include "session/chat_prompt.h"

namespace millrace {

// What a body may cost before anybody has looked at what it says.
struct BodyLimits {
  size_t bytes = size_t{16} << 20;
  unsigned depth = 32;
  int choices = 32;  // answers to one request, over all its prompts
};

using Prompt = std::variant<std::string, std::vector<Token>>;

struct RequestBody {
  Body kind = kChat;
  std::string model;  // empty: any
  bool stream = false, include_usage = false, echo = false, return_ids = false;
  bool ignore_end = false, new_seed = false;
  int max_tokens = 0;  // 0: not said
  std::vector<Message> messages;
  ChatOptions chat;
  std::vector<Prompt> prompts;  // of a completion
  std::vector<std::string> stops;
  std::vector<std::string> dry_breakers;
  std::string user, salt;
  Request request;  // all that needs no model: sampling, counts, targets; choices are those of one prompt
};

// Reads the body of a chat or a completion.
std::optional<ApiError> read_request_body(std::string_view body, Body kind, const BodyLimits& limits, RequestBody& out);

// The body as an object that fits the table; for the smaller routes.
std::optional<ApiError> read_body(std::string_view body, Body kind, const BodyLimits& limits, JsonObject& out);

// The messages of a checked body; parts of content are joined.
std::vector<Message> messages_of(const JsonObject& body);
ChatOptions chat_options_of(const JsonObject& body);
std::vector<Prompt> prompts_of(const Json& prompt);
std::vector<Token> tokens_of(const Json& list);

}  // namespace millrace
