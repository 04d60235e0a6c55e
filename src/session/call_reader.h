// CallReader: an answer as its bytes come, taken apart into reasoning, content and calls of tools, by the same format
// that binds answers (session/calls.h). What it says depends on the bytes only, never on how they were cut, and its
// time grows with them and no faster. What may still become a mark is held back; what looked like a call and is none is
// content, whole; only white space around marks is left out. Arguments come as JSON text: those in tags are made into
// it as they come. White space inside the marks may differ from the template's. One per answer, one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/calls.h"
#include "session/channel_reader.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {

class CallReader {
 public:
  // The format is tied and outlives the reader, as the tools do. `thinking`: the prompt left a section of reasoning
  // open; `continues`: one of content, where there are such.
  CallReader(const CallFormat& format, std::span<const Tool> tools, bool thinking, bool continues = false);

  // Parts of the same kind that follow one another are one.
  void push(std::string_view bytes, std::vector<AnswerPart>& out);
  void finish(std::vector<AnswerPart>& out);  // the answer has ended
  bool thinking() const { return channels_ ? channels_->thinking() : state_ == State::thinking; }

 private:
  enum class State : uint8_t { first, thinking, content, arguments, key, value, after };
  enum class Match : uint8_t { no, more, yes };
  using Parts = std::vector<AnswerPart>;

  struct Head {  // of a call
    const Tool* tool = nullptr;
    std::string id;
    size_t end = 0;     // where its arguments begin
    bool bare = false;  // it has none
  };

  bool advance(Parts& out);
  bool read_first();
  bool read_thinking(Parts& out);
  bool read_content(Parts& out);
  bool read_arguments(Parts& out);
  bool read_key(Parts& out);
  bool read_value(Parts& out);
  bool read_after(Parts& out);

  char at(size_t place) const { return held_[from_ + place]; }
  size_t size() const { return held_.size() - from_; }
  std::string_view held() const { return std::string_view(held_).substr(from_); }
  void drop(size_t bytes);
  void pass(size_t place);  // nothing begins before it
  // Whether held text from `place` on is the text; `end` is where it then ends. Holes take what stands for them.
  // `loose`: white space may be other than the text's.
  Match match(std::string_view text, size_t place, bool loose, size_t& end, std::string* id = nullptr) const;
  Match match_space(size_t& place) const;
  Match match_name(size_t place, size_t& end, const Tool*& tool) const;
  Match match_head(std::string_view prefix, size_t place, Head& head) const;
  Match match_twice(size_t& after, const Head& head) const;
  Match match_message(size_t place, size_t& end, bool& thought) const;
  void begin_call(Parts& out, const Head& head);
  void emit(Parts& out, AnswerPart::Kind kind, std::string_view text, std::string_view id = {}) const;
  std::string visible(size_t bytes) const;
  void emit_visible(Parts& out, AnswerPart::Kind kind, size_t bytes);
  void tell_unfinished(Parts& out);
  void end_value(Parts& out, std::string_view rest);
  const Json* type_of_value() const;           // what its tool's schema says
  bool is_text(std::string_view value) const;  // a bare value is a text
  bool inside_json(char c);                    // the value is JSON, and this stands in a text of it
  // Of formats whose texts stand in quotes: the value that begins is a text; what stands at a place is inside a list,
  // an object or a text of a value; a further argument comes there, or a further call.
  bool quotes() const { return !format_->quote.empty(); }
  Match open_quote();
  Match inside_nested(size_t& length);
  Match match_next(size_t place, size_t& end) const;
  Match match_between(size_t place) const;
  std::string json_of(std::string_view raw) const;

  const CallFormat* format_;
  std::span<const Tool> tools_;
  std::optional<ChannelReader> channels_;  // reads all of it, where the format has them
  std::string begin_;                      // of calls, without the white space in front
  size_t longest_name_ = 0;
  State state_ = State::first;
  std::string held_, cut_;       // cut: a control token that is not whole yet
  size_t from_ = 0;              // what is held begins here
  size_t seen_ = 0, solid_ = 0;  // of what is held: nothing begins before; white space alone comes from here to there
  bool ended_ = false, skip_space_ = false;
  bool led_ = false;  // what is held begins with what the prompt ended with
  // Of the call that is read.
  const Tool* tool_ = nullptr;
  std::string key_;
  int depth_ = 0;
  bool in_text_ = false, escaped_ = false, keyed_ = false, bare_ = false;
  size_t type_ = 0;
  // Of the value: its kind is marked; it is a text; some of it is out; it is no text, or does not look like one.
  bool typed_ = false, certain_ = false, begun_ = false, json_ = false;
  bool looked_ = false, plain_ = false;  // at its first letter; given up on JSON
  // What ends it: the closing quote, if it is a text in quotes, and what then follows. Inside a list or an object: how
  // deep, and the quote or mark that a text there ends with.
  std::string close_, next_, between_, last_;
  bool opened_ = false, in_mark_ = false;
  int nest_ = 0;
  char nest_quote_ = '\0';
};

}  // namespace millrace
#endif
