// ChannelReader: an answer that is messages with heads, as gpt-oss writes them, taken apart into reasoning, content and
// calls (CallFormat::Style::channels):
//
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.NAME
//   <|constrain|>json<|message|>{...}<|call|>
//
// A head is words in any order, marks aside: "to=..." names who is spoken to, a word the channel. What is spoken to no
// tool that there is, is content, with its head. What it says depends on the bytes only, never on how they were cut.
// One per answer, one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/calls.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {

class ChannelReader {
 public:
  // The format is tied and outlives it, as the tools do. `inside`: the prompt has left a message of this kind open.
  enum class Inside : uint8_t { none, reasoning, content };
  ChannelReader(const CallFormat& format, std::span<const Tool> tools, Inside inside);

  void push(std::string_view bytes, std::vector<AnswerPart>& out);
  void finish(std::vector<AnswerPart>& out);
  bool thinking() const { return in_text_ && kind_ == AnswerPart::Kind::reasoning; }

 private:
  using Parts = std::vector<AnswerPart>;

  bool read_head(Parts& out);
  bool read_text(Parts& out);
  std::string words(std::string_view head) const;  // of a head, marks aside
  const Tool* tool_in(std::string_view words) const;
  void begin_text(Parts& out, std::string_view head);
  void say(Parts& out, std::string_view text);
  void say_arguments(Parts& out, std::string_view text);

  const CallFormat* format_;
  std::span<const Tool> tools_;
  std::string recipient_;  // what stands before the name of a tool: "to=functions."
  std::vector<std::string> stops_;
  std::string held_;
  bool in_text_ = false, ended_ = false;
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;
  bool said_ = false, thought_ = false;  // there was some before this message
  int depth_ = 0;                        // of the arguments that are read
  bool quoted_ = false, escaped_ = false, whole_ = false;
  bool apart_ = false;  // this message goes on from another of its kind: a blank line between them
};

}  // namespace millrace
#endif
