// Anthropic's answers as bytes: messages, the events of their streams, and errors. Any thread; a stream's events one
// after another.
#pragma once

#include <string>

#include "server/dialect.h"

namespace millrace {

// What of a stream is open: one part of the message at a time.
struct MessageStream : StreamState {
  int index = -1;  // of the part
  bool open = false;
  AnswerPart::Kind kind = AnswerPart::Kind::content;
  std::string stop_reason, stop_sequence;
};

std::string message_json(const Stamp& stamp, const Choice& choice, const Usage& usage);
Json anthropic_error(const ApiError& failure);
HttpAnswer anthropic_refusal(const ApiError& failure);

void append_message_start(std::string& out, const Stamp& stamp);
void append_message_parts(std::string& out, MessageStream& stream, const Choice& choice);
void append_message_end(std::string& out, const MessageStream& stream, const Usage& usage);
void append_message_error(std::string& out, const ApiError& failure);

}  // namespace millrace
