// Tokens and their log-probabilities as JSON: the members that all interfaces share. Pure; any thread.
#pragma once

#include <string>

#include "base/token.h"
#include "engine/sampler.h"
#include "session/loaded_model.h"

namespace millrace {

// What a token adds to a text, or its id where the model has no tokenizer.
std::string token_text(const LoadedModel& model, Token token);

// A number, where JSON has one; a token that cannot be chosen gets what OpenAI gives it.
void append_logprob(std::string& out, float value);

// "token": ..., "logprob": ..., "bytes": [...]
void append_token_json(std::string& out, const LoadedModel& model, Token token, float logprob);

// ,"top_logprobs": [{...}], with the ids where they are asked for
void append_top_json(std::string& out, const LoadedModel& model, const Logprobs& values, bool ids = false);

}  // namespace millrace
