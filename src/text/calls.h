// CallFormat: how a model writes calls of tools, found by rendering its own chat template: calls with known names, keys
// and values are rendered, and what stands between them is the format. A value: text between holes. It says both what
// an answer may be (session/bound.h) and how one is read (session/call_reader.h), so the two cannot disagree.
//
//   json   begin NAME middle {arguments as JSON} ( between NAME middle {...} )* end
//   tags   begin NAME open KEY equals VALUE ( next KEY equals VALUE )* ( between NAME ... )* end
//   Either may have the name twice, begin NAME twice NAME, and messages that all begin alike (`lead`).
//   channels   an answer is messages, each with a head that says whose it is: begin NAME middle {arguments as JSON} for
//   a
//          call, think_begin for reasoning, content_begin for what is said (session/channel_reader.h)
//
// Made once per template; then read only.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat.h"

namespace millrace {

// Inside the texts of a format, in place of what differs from call to call.
inline constexpr char kCallId = '\x01';     // the call's id
inline constexpr char kCallIndex = '\x02';  // its number, from 0
inline constexpr char kCallCount = '\x03';  // its number, from 1

struct CallFormat {
  enum class Style : uint8_t { none, json, tags, channels };
  enum Type : size_t { kText, kNumeric, kBoolean, kObject, kArray, kNull, kTypes };

  Style style = Style::none;                // none: the template shows no calls, or in a way that is not understood
  std::string begin, middle, between, end;  // around the name and the arguments
  // Of tags: around keys and values; what follows the name of a call without arguments, if that differs.
  std::string open, next;
  std::array<std::string, kTypes> equals;  // by what the value is; texts are bare, all else is JSON
  std::string bare_between, bare_end;
  std::string twice;  // what stands between the name and the same name once more; empty: it stands once
  // What every message of an answer begins with, where the prompt ends with it: part of `begin`, `content_begin` and
  // `think_begin`, and not written by the model in front of the first.
  std::string lead;
  std::string quote_open, quote;  // around texts and no other values, f(a='x', b=1); the first is part of `equals`

  // Of channels: what begins a message's head and its text, what ends a text, and the name of that for reasoning.
  std::string start, channel, message, think_channel, content_begin;
  std::vector<std::string> stops;

  std::string think_begin, think_end;  // around reasoning; empty: the template shows none
  std::string think_field;             // what the template calls it in a message

  std::string trigger;  // what tells in a free answer that a call comes: the first marks of `begin`, or all of it
  bool single = false;  // the template takes one call in a message only

  bool cdata = false;      // texts may stand in <![CDATA[ ]]>
  bool named_ids = false;  // ids are functions.NAME:INDEX, and stand for the names

  bool known() const { return style != Style::none; }
  bool thinks() const { return !think_end.empty(); }
  bool has_ids() const;  // the model writes ids
};

// Of the template that chats with tools get, by some twenty small renderings of it: asked once a model.
CallFormat find_calls(const ChatTemplate& chat_template);

JsonObject calls_json(const CallFormat& format);  // for people; holes are written {id}, {index}, {count}

}  // namespace millrace
