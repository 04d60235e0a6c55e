// Generation: one request for answers from the moment its body is read until the client has everything or is gone.
//
//   begin    prepare worker   prompt rendered and tokenized, given to the engine
//   hear     engine thread    events put aside, until all requests of the step have heard theirs
//   work     stream worker    tokens to text, stop strings; a whole answer is built and sent here
//   pull     I/O thread       events of a stream written, as much as came since the last time
//   gone     I/O thread       the engine is told to stop; its pages are free within a step
//
// Kept alive by whoever may still call it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/port.h"
#include "server/choice.h"
#include "server/dialect.h"
#include "server/embed_queue.h"
#include "server/http.h"
#include "server/request_body.h"
#include "server/share.h"
#include "server/stream_writer.h"
#include "server/workers.h"
#include "session/bound.h"

namespace millrace {

// A step as steps were on average of late.
struct MeanStep {
  double sequences = 0;  // that got a token
  double tokens = 0;     // computed, those of prompts included
  double context = 0;    // tokens cached of a sequence
};

// A model that answers. It is there as long as any of its generations, and its engine is gone before the workers are.
struct ServedModel {
  std::string name;         // as clients know it
  std::string fingerprint;  // fingerprint_text() (session/fingerprint.h)
  std::shared_ptr<LoadedModel> loaded;
  std::shared_ptr<Bounds> bounds;      // what answers are bound to; made when it is served
  std::shared_ptr<EnginePort> engine;  // null: it writes no text
  std::unique_ptr<EmbedQueue> embeds;  // null: it gives no vectors
  int64_t created = 0;                 // when it was loaded, seconds since 1970
  SamplingDefaults defaults = {};      // for what a request does not say
  Identity identity;                   // that prefixes are kept under (Fingerprint::pages)
  std::string version = {};            // of its weights, as whoever changed them called it
  // The least seconds this machine could take for a step; none if the machine was never measured.
  std::function<double(const MeanStep& step)> floor = {};

  int context() const {  // tokens of the longest text
    return engine ? engine->facts().limits.context : embeds->embedder().encoder().options().context;
  }
};

// How it ended, for limits, counters and the log.
struct Ended {
  int status = 200;
  bool cancelled = false;
  bool begun = false;  // it had its first token
  Usage usage;
};

// Why there is no prompt for a chat, in words for a client: where the model lies is nobody's business.
ApiError prompt_error(const LoadedModel& model, const Error& failure);

class Generation;

// Carries what the requests of a step have heard to the stream worker and from there to the I/O thread: each is woken
// once a step, not once a request. Engine threads. It outlives the engine and must not outlive the workers.
class StepMail {
 public:
  explicit StepMail(Workers& workers) : workers_(workers) {}
  void add(std::shared_ptr<Generation> generation);
  void send();  // at the end of a step

 private:
  Workers& workers_;
  std::mutex mutex_;  // while the weights change there are two engines
  std::vector<std::shared_ptr<Generation>> heard_;
};

class Generation : public Job, public std::enable_shared_from_this<Generation> {
 public:
  struct Setting {
    std::shared_ptr<const ServedModel> model;
    const Dialect* dialect = nullptr;
    StepMail* mail = nullptr;
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<Share> share;          // what its tenant has used; null: not counted
    std::string tenant;                    // whose fair share pays
    Identity root;                         // what may share its prefix
    std::string adapter;                   // what changes the model for it, whole
    std::optional<StreamWriter::Ids> ids;  // on the events of its stream; none: they have none
    std::function<void(const std::string& id, std::string body, Message answer)> keep;  // as Stamp has it
    std::function<double()> wait_expected;  // seconds until somebody who comes now gets a turn
    std::function<void(const Ended&)> at_end;
  };

  Generation(Setting setting, RequestBody asked);

  // It is bound to something that is not compiled yet, which may take a while.
  bool must_compile() const;
  // Renders, tokenizes, compiles, checks and submits. Answers with an error if that fails.
  void begin();
  // Reads what was heard. True: there is something to pull, which the exchange is to be told. Stream worker.
  bool work();
  Exchange& exchange() { return *setting_.exchange; }
  const ServedModel* model() const { return setting_.model.get(); }
  // Ends it with an error, as when the server stops.
  void fail(const ApiError& failure);

  Pull pull(std::string& out) override;
  void gone() override;

 private:
  struct PromptAnswers {  // one prompt; its answers are choices [first, first + n)
    std::vector<Token> tokens;
    std::shared_ptr<Constraint> constraint = {};
    Thinking thinking = Thinking::may;
    RequestId id = 0;
  };
  struct Heard {
    size_t part = 0;
    Event event;
  };

  std::optional<ApiError> prepare();
  std::optional<ApiError> check_bytes() const;
  std::optional<ApiError> check_room();
  std::optional<ApiError> read_prediction(std::shared_ptr<const PredictedText>& out);
  std::optional<ApiError> check_tools() const;
  bool binds() const;
  GrammarSource bound_source(Thinking thinking) const;
  std::optional<ApiError> bind();
  std::optional<ApiError> limit_thinking();
  std::optional<ApiError> check_scored() const;
  void guarded(const std::function<void()>& task);
  Result<std::vector<Token>> tokens_of_prompt(const Prompt& prompt) const;
  void submit();
  void hear(size_t part, std::span<const Event> events);
  bool read_heard();
  void count_tokens();
  void take(const Heard& heard);
  void know_prompt();
  std::optional<ApiError> place_stream();
  void finish(std::unique_lock<std::mutex>& lock, int status, bool cancelled);
  void cancel_parts();
  void answer_whole(std::unique_lock<std::mutex>& lock);
  Usage usage() const;
  size_t keep_likeliest();

  Setting setting_;
  RequestBody asked_;
  Stamp stamp_;
  std::vector<PromptAnswers> parts_;

  std::mutex inbox_mutex_;  // guards the two below, so that the engine never waits for text
  std::vector<Heard> heard_;
  bool scheduled_ = false;  // it is in the mail

  std::mutex mutex_;  // guards all below
  std::vector<Choice> choices_;
  StreamWriter writer_;
  std::vector<int> counted_;  // by choice: tokens its tenant's share has
  std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now(), last_count_ = made_;
  std::optional<std::chrono::steady_clock::time_point> first_token_;
  std::optional<Usage> total_;  // when nothing is added to it any more
  bool any_token_ = false;
  bool submitted_ = false;  // the engine knows all parts; they do not change any more
  bool streaming_ = false;  // the head of the stream is on its way
  bool ended_ = false, gone_ = false;
  std::optional<ApiError> failure_;
};

}  // namespace millrace
