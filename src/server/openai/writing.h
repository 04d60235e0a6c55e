// What is said to clients, as bytes: whole answers and the events of streams, in OpenAI's shapes. Pure functions of
// values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/dialect.h"
#include "server/quoted.h"

namespace millrace {

std::string event_opening(const Stamp& stamp);

Json usage_json(const Usage& usage);

// One choice of a whole answer.
std::string choice_json(const LoadedModel& model, const Stamp& stamp, const Choice& choice, size_t index);
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
