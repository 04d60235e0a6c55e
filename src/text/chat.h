// ChatTemplate: a model's own way to write a conversation down as one text. Built from what its files say (the
// template, or several of them by name, and the texts of its special tokens), then used from any thread; it never
// changes.
//
// Clients send messages in one shape (OpenAI's), templates want them in several: content as text or as a list of parts,
// arguments of tool calls as an object or as JSON text, no content as null or as "". Which of them a template
// understands is found out once, by rendering small probes, and messages are brought into that shape before rendering.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/checkpoint.h"
#include "text/template/template.h"
#include "text/tokenizer.h"

namespace millrace {

// What the files of a model say about chats.
struct ChatFacts {
  struct Named {
    std::string name;  // "default", "tool_use", ...
    std::string source;
  };
  std::vector<Named> templates;
  JsonObject tokens;  // variables such as bos_token and eos_token, with the texts of the tokens

  // Of a Hugging Face directory or a GGUF file. The tokenizer, if there is one, knows tokens the configuration does not
  // name.
  static ChatFacts of(const Checkpoint& checkpoint, const Tokenizer* tokenizer);
};

// What a template makes of messages.
struct ChatAbilities {
  bool text_content = false;      // content may be a text
  bool part_content = false;      // content may be a list of parts: [{"type": "text", "text": "..."}]
  bool system = false;            // there may be a system message
  bool tools = false;             // the descriptions of tools appear in the prompt
  bool object_arguments = false;  // tool calls may carry arguments as an object
  bool text_arguments = false;    // tool calls may carry arguments as JSON text
  bool null_content = false;      // an assistant's message may have content null beside tool calls
};

struct Chat {
  Json messages;         // an array of objects with "role", and "content", "tool_calls", ...
  Json tools = nullptr;  // an array of tool descriptions, or null
  bool add_generation_prompt = true;
  JsonObject variables = {};       // further ones, e.g. enable_thinking; they may not be named like the three above
  std::string template_name = {};  // one of several; empty: "tool_use" if there are tools, else "default"
  bool as_is = false;              // messages go to the template exactly as given
};

class ChatTemplate {
 public:
  // Code::not_found if there is no template: the caller can continue plain text with the model, or give a template.
  static Result<ChatTemplate> from(ChatFacts facts);
  static Result<ChatTemplate> open(const Checkpoint& checkpoint, const Tokenizer* tokenizer) {
    return from(ChatFacts::of(checkpoint, tokenizer));
  }

  Result<std::string> render(const Chat& chat, const RenderLimits& limits, LocalTime now) const;

  // Of the template a chat would get.
  Result<ChatAbilities> abilities(bool with_tools, std::string_view template_name = {}) const;
  // Its source, as the model's file has it.
  Result<std::string> source(bool with_tools, std::string_view template_name = {}) const;
  std::vector<std::string> names() const;

 private:
  struct Entry {
    ChatFacts::Named named;
    Template parsed;
    ChatAbilities abilities;
  };
  ChatTemplate() = default;
  Result<const Entry*> choose(bool with_tools, std::string_view name) const;

  std::vector<Entry> entries_;
  JsonObject tokens_;
};

}  // namespace millrace
