// Request: what somebody wants generated, as the engine sees it: token ids in, token ids out. Text, stop strings and
// chat belong to the session. Checked at submission; immutable afterwards, shared by its sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/token.h"
#include "cache/identity.h"
#include "engine/constraint.h"
#include "engine/fill.h"
#include "engine/sampling.h"

namespace millrace {

using RequestId = int64_t;

// Latency wanted, in seconds; 0: none in particular.
struct Targets {
  double first_token = 0;  // from submission to the first token
  double next_token = 0;   // from token to token, on average
};

// What an engine that is gone had told of an answer.
struct Resumed {
  std::vector<Token> tokens;
  double mu = 0;          // mirostat's bar after them, where there is one
  bool finished = false;  // nothing more is wanted of it
};

struct Request {
  std::vector<Token> prompt;       // at least one token
  int max_tokens = 16;             // of each answer, at least one
  int min_tokens = 0;              // before so many, stop tokens are not chosen
  int choices = 1;                 // answers to the one prompt; they share its pages
  std::vector<Token> stop_tokens;  // each ends the answer (and is reported)
  Sampling sampling;
  std::vector<Token> prediction;           // what the answer will probably be; makes it faster where it is right
  std::shared_ptr<Constraint> constraint;  // what the answer must be; null: anything
  int logprobs = -1;  // how many likely tokens to report beside each chosen one; -1: no log-probabilities at all

  FillAsk fill;  // of models that fill masks: how

  std::string tenant;          // whose fair share pays for it
  Identity root;               // what may share its prefix: made from tenant and adapter by root_key()
  std::string adapter;         // what changes the model's weights for it, by name; empty: nothing
  float adapter_strength = 1;  // its changes are multiplied with it
  int adapter_place = -1;      // where the engine keeps it, found at submission
  int priority = 0;            // the larger first, where the policy looks at it
  Targets targets;

  int64_t outer = 0;             // what whoever asks calls it
  bool again = false;            // asked of an engine that is gone: it was let in then and is not refused now
  std::vector<Resumed> resumed;  // and what that had told, by choice; empty: nothing
};

enum class Finish : uint8_t {
  none,       // not yet
  stop,       // a stop token was chosen
  length,     // max_tokens were chosen
  cancelled,  // the caller went away
  failed,     // the step could not give it a token; Event::error says why
};

}  // namespace millrace
