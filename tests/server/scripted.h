// A model that says what a test has written down: the shipped model's tokenizer with a chat template of the test's, and
// an engine that plays tokens back, so many a step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace::testing {

class ScriptedEngine : public EnginePort {
 public:
  // What each request gets, as tokens, and how it then ends.
  using Script = std::function<std::vector<Token>(const Request&)>;
  ScriptedEngine(Script script, int vocab, int step, Finish finish)
      : script_(std::move(script)), step_(step), finish_(finish) {
    facts_.limits.context = 1 << 21;
    facts_.vocab = vocab;
  }

  RequestId submit(Request request, Listener listener, bool tell_admission) override {
    const RequestId id = ++last_;
    if (tell_admission) listener({});
    const std::vector<Token> tokens = script_(request);
    for (int choice = 0; choice < request.choices; ++choice) {
      std::vector<Event> events;
      for (size_t i = 0; i < tokens.size(); ++i) {
        Event event{.request = id, .choice = choice};
        event.token = tokens[i];
        if (i + 1 == tokens.size() && finish_ == Finish::length) event.finish = Finish::length;
        events.push_back(event);
        if (events.size() == static_cast<size_t>(step_)) tell(listener, events);
      }
      if (finish_ == Finish::stop) {
        Event end{.request = id, .choice = choice};
        end.finish = Finish::stop;
        events.push_back(end);
      }
      tell(listener, events);
    }
    return id;
  }
  void cancel(RequestId, int) override {}
  void when_told(std::function<void()> told) override { told_ = std::move(told); }
  const EngineFacts& facts() const override { return facts_; }
  EngineSnapshot snapshot() const override { return {}; }
  std::vector<PageState> watch_pages() override { return {}; }

 private:
  void tell(const Listener& listener, std::vector<Event>& events) {
    if (!events.empty()) listener(events);
    events.clear();
    if (told_) told_();
  }
  Script script_;
  const int step_;
  const Finish finish_;
  EngineFacts facts_;
  std::function<void()> told_;
  RequestId last_ = 0;
};

// The model with a template, its weights left out.
inline std::shared_ptr<LoadedModel> model_with(std::string chat_template, bool weights = false) {
  LoadChoice choice{.path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/stories-14m-q8_0.gguf"};
  choice.cpu.threads = 2;
  choice.weights = weights;
  choice.chat_template = std::move(chat_template);
  return LoadedModel::load(choice).value();
}

// Says `text` to every request.
inline ServedModel scripted(const std::string& chat_template, const std::string& text, int step = 1,
                            Finish finish = Finish::stop) {
  ServedModel served{.name = "scripted", .fingerprint = "fp_test", .loaded = model_with(chat_template), .created = 1};
  const std::vector<Token> tokens = served.loaded->tokenizer()->encode(text, {.parse_special = true}).value();
  served.engine = std::make_unique<ScriptedEngine>([tokens](const Request&) { return tokens; }, served.loaded->vocab(),
                                                   step, finish);
  return served;
}

}  // namespace millrace::testing
#endif
