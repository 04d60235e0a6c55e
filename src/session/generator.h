// Generator: one request at a time through the engine's own parts and steps (EngineParts), on the caller's thread: an
// answer's tokens are those a server gives. What it computed stays in the prefix tree, so a prompt that begins like one
// before it (the next turn of a chat) computes only what is new. With a drafter it computes guesses beside the next
// token and keeps those it would have chosen anyway: the same tokens, sooner. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/constraint.h"
#include "engine/parts.h"

namespace millrace {

struct GenerateOptions {
  Sampling sampling = {};
  int32_t max_tokens = -1;                      // -1: as many as the context has room for; where masks are filled,
                                                // kUsualFill
  int32_t min_tokens = 0;                       // before that many, no end and no stop token is chosen
  std::vector<Token> end_tokens = {};           // of the model; each ends the answer and is not part of it
  bool ignore_end = false;                      // end tokens are never chosen
  std::vector<Token> stop_tokens = {};          // of the caller; they end the answer even with ignore_end
  std::shared_ptr<Constraint> constraint = {};  // what the answer must be; null: anything
  FillAsk fill = {};                            // of models that fill masks: how
  int32_t logprobs = -1;                        // how many likely tokens to report with each; -1: none at all
};

enum class Ending : uint8_t {
  end_token,    // the model said it is done
  stop_token,   // one of the caller's
  stop_string,  // decided by whoever listens
  length,       // max_tokens
  context,      // the context is full
  stopped,      // the listener had enough
};
std::string_view ending_name(Ending ending);  // "stop", "length", "length (context)", "stopped"

struct GeneratedToken {
  Token id = 0;
  int32_t index = 0;                   // of the answer
  const Logprobs* logprobs = nullptr;  // if asked for; valid during the call
  bool last = false;                   // an end or stop token: not part of the answer
};

struct GenerateTimes {
  double prompt_seconds = 0;     // until the first token was chosen: time to first token
  double answer_seconds = 0;     // from the first token to the last
  int32_t prompt_tokens = 0;     // of the prompt
  int32_t reused_tokens = 0;     // of them, not computed again
  int32_t answer_tokens = 0;     // chosen, an end token included
  int32_t following_tokens = 0;  // of them, after the first of their answer: what answer_seconds is of
  int64_t passes = 0;            // over the answer, where masks are filled
  int64_t windows = 0, drafted_tokens = 0, accepted_tokens = 0;  // passes with guesses, guesses, those that were right

  // Per token after the first.
  double token_seconds() const { return following_tokens > 0 ? answer_seconds / following_tokens : 0; }
  GenerateTimes& operator+=(const GenerateTimes& other);
};

struct Generated {
  std::vector<Token> tokens;  // without the end or stop token
  Ending ending = Ending::length;
  Token ended_by = -1;  // the end or stop token
  GenerateTimes times;
};

class Generator {
 public:
  // What a listener answers: go on, stop because a stop string is complete, or stop because it wants no more.
  enum class Reply : uint8_t { more, stop_string, enough };
  using Listener = std::function<Reply(const GeneratedToken&)>;

  // The model and the backend outlive it. `executor` is as for one sequence: how many there are, and what guesses need
  // besides, follows from being alone and from `draft`.
  static Result<std::unique_ptr<Generator>> create(const Model& model, Backend& backend,
                                                   const ExecutorOptions& executor, const DraftOptions& draft = {});

  // Refused with the counts if the prompt leaves no room in the context. `interrupted` is asked between steps of the
  // prompt.
  Result<Generated> generate(std::span<const Token> prompt, const GenerateOptions& options, const Listener& listener,
                             const std::function<bool()>& interrupted = {});

  void forget();  // what was computed before is not found again
  int32_t context() const { return parts_.options.limits.context; }
  Executor& executor() { return *parts_.executor; }  // between answers: its adapters, what it counted

 private:
  explicit Generator(EngineParts parts);
  Result<void> check(std::span<const Token> prompt) const;
  std::vector<Event> step();  // plan, run, land
  Result<void> answer(RequestId id, const GenerateOptions& options, const Listener& listener,
                      const std::function<bool()>& interrupted, Generated& result);
  static bool take(const Event& event, const GenerateOptions& options, const Listener& listener, Generated& result);
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  EngineParts parts_;
  Flight flight_;
  std::vector<RequestId> ended_;  // to be forgotten by the runner
  Identity root_;                 // of everything it computed since it last forgot
  std::chrono::steady_clock::time_point start_;
};

}  // namespace millrace
