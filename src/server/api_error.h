// ApiError: what a client did wrong, or what we cannot do for it now, in the shape OpenAI's clients understand. The
// texts say what to change; nothing of our insides is in them. Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "server/http.h"

namespace millrace {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {};  // the field at fault; empty: none in particular
  std::string code = {};
  std::optional<double> retry_after = {};  // seconds
};

// A field that is not as it should be.
ApiError bad_field(std::string_view field, std::string message);
// Understood, but not built.
ApiError not_built(std::string_view field, std::string message);
// Something was thrown on the way, for want of memory most likely.
ApiError unfinished();
// What an Error of the layers below means to a client.
ApiError from_error(const Error& failure);

// No engine can be started.
ApiError engine_fails(const Error& why);

// The error with a time to come again: in its text for people, in Retry-After for programs, the same in both.
ApiError come_again(ApiError failure, double wait_seconds);

// What a client sent, short enough to be shown back to it: cut between characters.
std::string_view shortened(std::string_view text);

Json error_json(const ApiError& failure);  // {"error": {"message", "type", "param", "code"}}
HttpAnswer error_answer(const ApiError& failure);

}  // namespace millrace
