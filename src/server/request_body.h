// RequestBody: what a client asked for, in whatever interface it speaks: every dialect's body is read into this one,
// and everything behind it (Generation, Choice, the engine) knows no dialect. Names, types and ranges are checked,
// nothing is tokenized yet. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "grammar/grammar.h"
#include "server/schema.h"
#include "session/chat_prompt.h"
#include "session/sampling_defaults.h"

namespace millrace {

// What a body may cost before anybody has looked at what it says.
struct BodyLimits {
  size_t bytes = size_t{16} << 20;
  unsigned depth = 72;  // a schema may have 64, with what is around it
  int choices = 32;     // answers to one request, over all its prompts
};

using Prompt = std::variant<std::string, std::vector<Token>>;

// What the answer must be, and the field that says so.
struct AskedBound {
  GrammarSource source;
  std::string field;
};

// One of llama.cpp's `lora`: an adapter by its place in the list of those that are loaded.
struct AskedAdapter {
  int id = 0;
  double scale = 1;
};

struct RequestBody {
  bool chat = true;   // messages through the model's template; else prompts as they are
  std::string model;  // empty: any
  bool stream = false, include_usage = false, echo = false, return_ids = false;
  bool ignore_end = false, new_seed = false;
  int max_tokens = 0;          // 0: not said
  bool up_to = false;          // fewer than `max_tokens` where the context has no room for them; else that is refused
  int given = 0;               // of `request.choices` the likeliest so many are given; 0: all
  bool hide_logprobs = false;  // they are only for choosing those, or for the prompt
  int prompt_logprobs = -1;    // how many likely tokens to report beside each one of the prompt; -1: none are reported
  std::vector<Message> messages;
  ChatOptions chat_options;              // with the tools the template shows
  int think_limit = -1;                  // tokens of reasoning at most; -1: as many as it likes
  std::string think_field;               // that says so
  bool functions = false;                // the older way: at most one call, which the answer has as `function_call`
  std::shared_ptr<const ToolUse> tools;  // what the answer may call; null: nothing is read as a call
  std::vector<Prompt> prompts;           // if it is no chat
  std::optional<std::string> suffix;     // what stands after the answer: a prompt is filled in the middle
  std::vector<std::string> stops;
  std::string prediction;  // what the answer will probably be; empty: nothing is said
  std::vector<std::string> dry_breakers;
  std::string user, salt;
  Request request;  // all that needs no model: sampling, counts, targets; choices are those of one prompt
  std::optional<AskedBound> bound;
  std::vector<AskedAdapter> adapters;
  std::string previous;      // the answer that is gone on from, by its id; empty: from none
  std::string instructions;  // what the first message begins with that holds for this answer only
  bool keep = false;         // the answer is kept, so that a later one can go on from it
  Ignored ignored;           // fields that were taken and do nothing

  // The answer goes on in the middle of a text, so a space in front of it stays.
  bool continues() const { return !chat || chat_options.continue_last; }
};

}  // namespace millrace
