// Dialect: one interface that clients speak: how its requests are read and its answers written. Everything between (the
// template, the engine, text) is the same for all of them. A dialect is a folder beside this file: a table of fields, a
// reader, a writer, and a table of routes whose handlers hand it to Service::generate.
//
// Constant and without state: what belongs to one answer is in its Stamp. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "server/api_error.h"
#include "server/choice.h"
#include "server/http.h"
#include "server/request_body.h"

namespace millrace {

// What a dialect remembers of a stream from one of its events to the next.
class StreamState {
 public:
  StreamState() = default;
  virtual ~StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;
};

// What all parts of one answer have in common.
struct Stamp {
  bool chat = true;
  std::string name;  // 32 digits that no other answer has; the dialect's ids end with them
  std::string id;
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
  bool include_usage = false;
  bool functions = false;          // as RequestBody has it
  std::string event = {};          // what the dialect begins every event of the stream with
  int64_t prompt = 0, cached = 0;  // tokens of the prompt; known when the first text comes
  std::unique_ptr<StreamState> state = nullptr;
  std::string previous = {};  // as RequestBody has it
  // Keeps the answer under its id: as the client gets it, and as a message. Null: it is not kept.
  std::function<void(const std::string& id, std::string body, Message answer)> keep = nullptr;
};

struct Usage {
  int64_t prompt = 0, completion = 0, cached = 0;
  int64_t reasoning = 0;                  // of the completion
  int64_t accepted = 0, rejected = 0;     // tokens of a prediction that are in the answer, and that are not
  double first_seconds = 0, seconds = 0;  // until the first token, and until now
};

// Unique enough that a log can be searched for it; nobody relies on it being secret.
std::string fresh_id(std::string_view prefix);

class Dialect {
 public:
  Dialect() = default;
  virtual ~Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;

  virtual std::optional<ApiError> read(const HttpRequest& request, const BodyLimits& limits,
                                       const SamplingDefaults& defaults, RequestBody& out) const = 0;
  // What is answered without the model, whose name it gets, where nothing is asked of it.
  virtual std::optional<HttpAnswer> at_once(const RequestBody& asked, std::string_view model) const {
    static_cast<void>(asked);
    static_cast<void>(model);
    return {};
  }
  // An error instead of an answer.
  virtual HttpAnswer refuse(const ApiError& failure) const = 0;

  // Fills id, event and state; the rest is there, but for what is known later.
  virtual void begin(Stamp& stamp) const = 0;
  virtual HttpAnswer whole(const Stamp& stamp, const LoadedModel& model, std::span<const Choice> choices,
                           const Usage& usage) const = 0;

  // A stream: its head, what comes before a choice's first text, what came since the last time, its end, an error.
  virtual HttpAnswer head() const = 0;
  virtual void append_first(std::string& out, const Stamp& stamp, size_t index) const = 0;
  virtual void append_choice(std::string& out, const Stamp& stamp, const LoadedModel& model, const Choice& choice,
                             size_t index) const = 0;
  virtual void append_end(std::string& out, const Stamp& stamp, const Usage& usage) const = 0;
  // A stream that numbers its events goes on with this number.
  virtual void number(const Stamp& stamp, int64_t events) const {
    static_cast<void>(stamp);
    static_cast<void>(events);
  }
  virtual void append_error(std::string& out, const Stamp& stamp, const ApiError& failure) const = 0;
};

}  // namespace millrace
