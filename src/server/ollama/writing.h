// Ollama's answers as bytes: lines of JSON and errors. Any thread; a stream's lines one after another.
#pragma once

#include <span>
#include <string>

#include "server/dialect.h"

namespace millrace {

// What of a stream is not told yet: a call is told whole.
struct OllamaStream : StreamState {
  bool in_message = true;  // the text stands in one; else it is the response
  const LoadedModel* model = nullptr;
  std::string name, id, arguments, done_reason;
};

// What came, by what it is.
struct OllamaTexts {
  std::string content, thinking, calls;  // the calls as a list without its brackets
};
OllamaTexts ollama_texts(std::span<const AnswerPart> parts, bool done, OllamaStream& stream);

std::string rfc3339(int64_t seconds);  // since 1970
std::string_view ollama_reason(const Choice& choice);

HttpAnswer ollama_refusal(const ApiError& failure);
void append_ollama_error(std::string& out, const ApiError& failure);
// What is there of the answer; without `usage` a line of a stream, with it the last line or all of it.
void append_ollama_line(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice* choice,
                        std::string_view reason, const Usage* usage);
std::string loaded_line(std::string_view model, bool chat);  // to whoever asks for nothing

}  // namespace millrace
