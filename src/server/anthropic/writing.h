// Anthropic's answers as bytes: messages, the events of their streams, and errors. Any thread; a stream's events one
// after another.
#pragma once

#include <span>
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

// The parts of a whole answer, as a list without its brackets: a call with its arguments is one.
std::string content_json(std::span<const AnswerPart> parts);
std::string message_json(const Stamp& stamp, const Choice& choice, const Usage& usage);
Json anthropic_error(const ApiError& failure);
HttpAnswer anthropic_refusal(const ApiError& failure);

void append_message_start(std::string& out, const Stamp& stamp);
void append_message_parts(std::string& out, MessageStream& stream, std::span<const AnswerPart> parts);
void end_message_parts(std::string& out, MessageStream& stream, const Choice& choice);  // the answer is done
void append_message_end(std::string& out, const MessageStream& stream, const Usage& usage);
void append_message_error(std::string& out, const ApiError& failure);

}  // namespace millrace
