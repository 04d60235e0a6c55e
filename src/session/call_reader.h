// CallReader: an answer as its bytes come, taken apart into reasoning, content and calls of tools, by the same format
// that binds answers (session/calls.h). What it says depends on the bytes only, never on how they were cut. What may
// still become a mark is held back; what looked like a call and is none is content, whole. Arguments come as JSON text:
// those in tags are made into it as they come. One per answer, one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/calls.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {

struct CallEvent {
  enum class Kind : uint8_t {
    reasoning,
    content,
    call,       // one begins: its name, and its id if the model gave one
    arguments,  // more of its arguments
    ended,      // its arguments are whole
  };
  Kind kind = Kind::content;
  std::string text;  // of a call its name
  std::string id = {};
  bool operator==(const CallEvent&) const = default;
};

class CallReader {
 public:
  // The format is tied and outlives the reader, as the tools do. `thinking`: the prompt left a section of reasoning
  // open.
  CallReader(const CallFormat& format, std::span<const Tool> tools, bool thinking);

  // Events of the same kind that follow one another are one.
  void push(std::string_view bytes, std::vector<CallEvent>& out);
  void finish(std::vector<CallEvent>& out);  // the answer has ended

 private:
  enum class State : uint8_t { first, thinking, content, head, arguments, key, value, after };
  enum class Match : uint8_t { no, more, yes };
  using Events = std::vector<CallEvent>;

  bool advance(Events& out);
  bool read_first();
  bool read_thinking(Events& out);
  bool read_content(Events& out);
  bool read_head(Events& out, std::string_view prefix, size_t space);  // after so many bytes of white space
  bool read_arguments(Events& out);
  bool read_key(Events& out);
  bool read_value(Events& out);
  bool read_after(Events& out);
  // Whether held text from `at` on is the text; `end` is where it then ends. Holes take what stands for them.
  Match match(std::string_view text, size_t at, size_t& end);
  Match match_name(size_t at, size_t& end) const;
  void emit(Events& out, CallEvent::Kind kind, std::string_view text, std::string_view id = {});
  void emit_visible(Events& out, CallEvent::Kind kind, size_t bytes);
  void end_call(Events& out);
  void end_value(Events& out, std::string_view rest);
  bool is_text(std::string_view value) const;  // a bare value is a text, by its tool's schema
  // Where held text might become the mark, at the earliest; white space before it included.
  size_t hold_from(std::string_view mark) const;

  const CallFormat& format_;
  std::span<const Tool> tools_;
  std::string begin_;  // without the white space in front
  State state_ = State::first;
  std::string held_;
  bool ended_ = false, again_ = false;  // again: the head is of a further call, and begins with its name
  bool skip_space_ = false;
  // Of the call that is read.
  std::string name_, id_, key_;
  int depth_ = 0;
  bool in_text_ = false, escaped_ = false, keyed_ = false;
  size_t type_ = 0;
  bool typed_ = false, begun_ = false;  // the value: its kind is marked; a text that has begun
};

}  // namespace millrace
#endif
