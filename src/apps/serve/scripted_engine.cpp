#include "apps/serve/scripted_engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "apps/cli/input.h"

namespace millrace::apps {
namespace {

using Clock = std::chrono::steady_clock;

Result<std::vector<std::string>> texts_of(const Json& row, std::string_view key) {
  std::vector<std::string> texts;
  const Json* list = find(row, key);
  if (list == nullptr) return texts;
  if (!list->is_array()) return error(Code::invalid, "'{}' is no array of texts", key);
  for (const Json& one : list->get_array()) {
    if (!one.is_string()) return error(Code::invalid, "'{}' is no array of texts", key);
    texts.emplace_back(one.get_string().c_str(), one.get_string().size());
  }
  return texts;
}

#if MILLRACE_SESSION_TEXT

class ScriptedEngine : public EnginePort {
 public:
  ScriptedEngine(std::vector<ScriptLine> script, const LoadedModel& model) : script_(std::move(script)), model_(model) {
    facts_.limits.context = 1 << 21;
    facts_.limits.max_sequences = 1024;
    facts_.vocab = model.vocab();
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedEngine() override {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    woken_.notify_all();
    thread_.join();
  }

  RequestId submit(Request request, Listener listener, bool tell_admission) override {
    Playing playing{.listener = std::move(listener), .admit = tell_admission, .choices = request.choices};
    const std::string prompt = model_.tokenizer()->decode(request.prompt, {});
    const auto has = [&](const std::string& text) { return prompt.find(text) != prompt.npos; };
    for (const ScriptLine& line : script_) {
      if (!std::all_of(line.when.begin(), line.when.end(), has)) continue;
      if (std::any_of(line.unless.begin(), line.unless.end(), has)) continue;
      const auto tokens = model_.tokenizer()->encode(line.say, {.parse_special = true});
      if (!tokens.ok()) break;  // nothing is said
      for (int i = 0; i < line.times; ++i) playing.tokens.insert(playing.tokens.end(), tokens->begin(), tokens->end());
      playing.pause = std::chrono::milliseconds(line.pause_ms);
      playing.found = true;
      break;
    }
    const auto most = static_cast<size_t>(std::max(1, request.max_tokens));
    playing.cut = playing.tokens.size() > most;
    if (playing.cut) playing.tokens.resize(most);
    std::lock_guard lock(mutex_);
    playing.id = ++last_;
    playing_.push_back(std::move(playing));
    woken_.notify_all();
    return last_;
  }
  void cancel(RequestId request, int) override {
    std::lock_guard lock(mutex_);
    std::erase_if(playing_, [&](const Playing& one) { return one.id == request; });
  }
  void when_told(std::function<void()> told) override { told_ = std::move(told); }
  const EngineFacts& facts() const override { return facts_; }
  EngineSnapshot snapshot() const override { return {}; }
  std::vector<PageState> watch_pages() override { return {}; }

 private:
  struct Playing {
    RequestId id = 0;
    Listener listener;
    bool admit = false, found = false, cut = false;
    int choices = 1;
    std::vector<Token> tokens = {};
    size_t next = 0;
    std::chrono::milliseconds pause{0};
    Clock::time_point due = Clock::now();
  };

  // One token for every choice of it; true when it has ended.
  static bool step(Playing& one, std::vector<Event>& events) {
    const bool ends = !one.found || one.next >= one.tokens.size() || (one.cut && one.next + 1 == one.tokens.size());
    for (int choice = 0; choice < one.choices; ++choice) {
      Event event{.request = one.id, .choice = choice};
      if (!one.found) {
        event.finish = Finish::failed;
        event.error = error(Code::invalid, "the script has nothing to say to this prompt");
      } else {
        if (one.next < one.tokens.size()) event.token = one.tokens[one.next];
        if (ends) event.finish = one.cut ? Finish::length : Finish::stop;
      }
      events.push_back(std::move(event));
    }
    ++one.next;
    one.due = Clock::now() + one.pause;
    return ends;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!done_) {
      Clock::time_point due = Clock::now() + std::chrono::hours(1);
      for (const Playing& one : playing_) due = std::min(due, one.due);
      if (due > Clock::now()) {
        woken_.wait_until(lock, due);
        continue;
      }
      // Listeners are called with the lock held, so that nothing comes after cancel() has returned; they only put
      // things aside.
      for (size_t i = 0; i < playing_.size();) {
        Playing& one = playing_[i];
        if (std::exchange(one.admit, false)) one.listener({});
        std::vector<Event> events;
        const bool ended = one.due <= Clock::now() && step(one, events);
        if (!events.empty()) one.listener(events);
        if (ended) {
          playing_.erase(playing_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      if (told_) told_();
    }
  }

  const std::vector<ScriptLine> script_;
  const LoadedModel& model_;
  EngineFacts facts_;
  std::function<void()> told_;
  std::mutex mutex_;  // guards the four below
  std::condition_variable woken_;
  std::deque<Playing> playing_;
  RequestId last_ = 0;
  bool done_ = false;
  std::thread thread_;
};

#endif

}  // namespace

Result<std::vector<ScriptLine>> parse_script(std::string_view text) {
  std::vector<ScriptLine> lines;
  TRY_VOID(for_each_line(text, "the script", [&](const Json& row) -> Result<void> {
    ScriptLine line;
    TRY(line.when, texts_of(row, "when"));
    TRY(line.unless, texts_of(row, "unless"));
    TRY(line.say, get_string(row, "say", ""));
    TRY(const int64_t times, get_int(row, "times", 1));
    TRY(const int64_t pause, get_int(row, "pause_ms", 0));
    if (times < 1 || times > 1'000'000 || pause < 0 || pause > 60'000)
      return error(Code::invalid, "'times' is 1 to 1,000,000 and 'pause_ms' 0 to 60,000");
    line.times = static_cast<int>(times);
    line.pause_ms = static_cast<int>(pause);
    lines.push_back(std::move(line));
    return {};
  }));
  return lines;
}

Result<std::unique_ptr<EnginePort>> scripted_engine(std::vector<ScriptLine> script, const LoadedModel& model) {
#if MILLRACE_SESSION_TEXT
  if (model.tokenizer() == nullptr) return error(Code::unsupported, "a script needs a model with a tokenizer");
  return std::unique_ptr<EnginePort>(std::make_unique<ScriptedEngine>(std::move(script), model));
#else
  static_cast<void>(script);
  static_cast<void>(model);
  return error(Code::unsupported, "this build is without text, which a script needs");
#endif
}

}  // namespace millrace::apps
