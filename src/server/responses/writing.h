// OpenAI's Responses as bytes: the items of an answer and the events that tell of them. Any thread; a stream's events
// one after another.
#pragma once

#include <span>
#include <string>

#include "server/dialect.h"

namespace millrace {

// The items of an answer so far: those that are whole as JSON, and the one that is open.
struct ResponseStream : StreamState {
  std::string name_of_answer;
  int64_t sequence = 0;
  std::string items;
  int index = -1;  // of the open one
  bool open = false, cut = false;
  AnswerPart::Kind kind = AnswerPart::Kind::content;
  std::string id, call_id, name, text;
  Message said = {.role = "assistant"};  // the answer as a message of a conversation
};

// Takes what came of the answer, and its end. Events are appended to `events` unless that is null.
void take_parts(std::string* events, ResponseStream& stream, std::span<const AnswerPart> parts);
void end_parts(std::string* events, ResponseStream& stream, bool cut);  // cut off at its length

std::string response_json(const Stamp& stamp, const ResponseStream& stream, const Usage& usage);

void append_response_start(std::string& out, const Stamp& stamp, ResponseStream& stream);
void append_response_end(std::string& out, const Stamp& stamp, ResponseStream& stream, const Usage& usage);
void append_response_failure(std::string& out, const Stamp& stamp, ResponseStream& stream, const ApiError& failure);

}  // namespace millrace
