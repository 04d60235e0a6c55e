// What is said to clients, as bytes: whole answers and the events of streams, in OpenAI's shapes. Pure functions of
// values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/choice.h"

namespace millrace {

// What all parts of one answer have in common.
struct Stamp {
  Body kind = kChat;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
  bool include_usage = false;
  std::string event = {};  // what every event of a stream begins with; see event_opening
};

std::string event_opening(const Stamp& stamp);

struct Usage {
  int64_t prompt = 0, completion = 0, cached = 0;
};

Json usage_json(const Usage& usage);

// Appends a text as a JSON string. What is no valid UTF-8 becomes U+FFFD.
void append_quoted(std::string& out, std::string_view text);

// One choice of a whole answer.
std::string choice_json(const LoadedModel& model, Body kind, const Choice& choice, size_t index);
// The whole answer around its choices, which are JSON already.
std::string answer_json(const Stamp& stamp, std::string_view choices, const Usage& usage);

// Events of a stream, each with its "data: " and empty line.
void append_role_event(std::string& out, const Stamp& stamp, size_t index);
void append_choice_event(std::string& out, const LoadedModel& model, const Stamp& stamp, const Choice& choice,
                         size_t index);
void append_usage_event(std::string& out, const Stamp& stamp, const Usage& usage);
void append_error_event(std::string& out, const ApiError& failure);
void append_done_event(std::string& out);

}  // namespace millrace
