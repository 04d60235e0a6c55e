// What becomes of requests when the engine's process dies. The process is this program again, as an engine that gives
// numbers for tokens and dies of what a prompt says.
#include "process/remote_engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "process/engine_child.h"

namespace millrace {
namespace {

// First token of a prompt: what computing it does.
enum : Token { kGood = 1, kKillsItsEngine, kStandsStill, kEndsBetweenSteps };
constexpr const char* kGateVariable = "MILLRACE_TEST_GATE";  // a file; while it is there nothing stands still
// A file: a process that finds it there is long in coming, and its first turn comes after it is ready.
constexpr const char* kSlowVariable = "MILLRACE_TEST_SLOW";
// A file: a process that finds it there says that the model is gone, or nothing if it is not empty, and ends.
constexpr const char* kGoneVariable = "MILLRACE_TEST_GONE";
// A file: a process that finds it there has another fingerprint.
constexpr const char* kOtherVariable = "MILLRACE_TEST_OTHER";
constexpr int kAnswer = 20;

bool is_there(const char* variable) {
  const char* const path = std::getenv(variable);
  return path != nullptr && std::filesystem::exists(path);
}

Token token_of(const Request& request, size_t place) { return request.prompt[1] * 31 + static_cast<Token>(place) * 7; }

class Scripted {
 public:
  void run() {
    if (is_there(kGoneVariable)) {
      if (std::filesystem::file_size(std::getenv(kGoneVariable)) == 0)
        send(FailedFrame{error(Code::not_found, "model.gguf: does not exist")});
      ::_exit(1);
    }
    const bool late = is_there(kSlowVariable);
    if (late) ::usleep(2'500'000);
    ReadyFrame ready{.facts = {.limits = {.context = 512}, .vocab = 1000}};
    ready.tokens.bytes[0] = is_there(kOtherVariable) ? 1 : 0;
    send(ready);
    if (late) ::usleep(300'000);
    while (hear()) {
      page().awake.store(shared_now());
      if (!open_.empty()) step();
    }
  }

 private:
  SharedPage& page() { return shared_.page(); }
  void send(const Frame& frame) {
    std::string bytes;
    append_frame(frame, bytes);
    static_cast<void>(!::send(kEngineSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  bool hear() {
    pollfd wait = {.fd = kEngineSocket, .events = POLLIN, .revents = 0};
    while (::poll(&wait, 1, open_.empty() ? 200 : 0) > 0) {
      std::array<char, 4096> room;
      const ssize_t count = ::recv(kEngineSocket, room.data(), room.size(), 0);
      if (count <= 0) return false;
      arrived_.add({room.data(), static_cast<size_t>(count)});
      for (auto bytes = arrived_.next(); bytes.ok() && *bytes; bytes = arrived_.next()) take(**bytes);
    }
    return true;
  }
  void take(std::string_view bytes) {
    Frame frame = read_frame(bytes).value();
    if (const auto* cancel = std::get_if<CancelFrame>(&frame)) open_.erase(cancel->id);
    if (auto* submit = std::get_if<SubmitFrame>(&frame)) {
      if (submit->request.prompt[0] == kEndsBetweenSteps) ::_exit(5);
      if (submit->request.resumed.empty()) submit->request.resumed.resize(1);
      open_[submit->id] = submit->request;
    }
  }
  void step() {
    int64_t count = 0;
    for (const auto& [id, request] : open_) page().ids[static_cast<size_t>(count++)].store(id);
    page().ids_count.store(count);
    page().step_allowed.store(int64_t{60} * 1'000'000'000);
    page().step_began.store(shared_now());
    EventsFrame said;
    for (auto& [id, request] : open_) {
      std::vector<Token>& told = request.resumed[0].tokens;
      if (request.prompt[0] == kKillsItsEngine && told.size() == 3) ::_exit(5);
      const char* const gate = std::getenv(kGateVariable);
      if (request.prompt[0] == kStandsStill && told.size() == 3 && !(gate && std::filesystem::exists(gate))) continue;
      told.push_back(token_of(request, told.size()));
      Event event = {.request = id, .token = told.back()};
      if (std::ssize(told) == request.max_tokens) event.finish = Finish::length;
      said.events.push_back(event);
    }
    ::usleep(1000);
    page().awake.store(shared_now());
    page().step_began.store(0);
    for (const Event& event : said.events)
      if (event.finish != Finish::none) open_.erase(event.request);
    if (!said.events.empty()) send(said);
  }

  SharedPageFile shared_ = SharedPageFile::open(kEngineSharedFile).value();
  FrameBuffer arrived_;
  std::map<RequestId, Request> open_;
};

// Not a test: what the process is.
TEST(RemoteEngine, DISABLED_BeTheEngine) {
  if (::fcntl(kEngineSharedFile, F_GETFD) < 0) return;
  Scripted().run();
  ::_exit(0);
}

struct Asked {
  Request request;
  std::mutex mutex;
  std::vector<Token> told;
  std::optional<Event> end;

  bool ended() {
    std::lock_guard lock(mutex);
    return end.has_value();
  }
  size_t count() {
    std::lock_guard lock(mutex);
    return told.size();
  }
  bool whole() {
    std::lock_guard lock(mutex);
    if (!end || end->error || told.size() != kAnswer) return false;
    for (size_t i = 0; i < told.size(); ++i)
      if (told[i] != token_of(request, i)) return false;
    return true;
  }
};

class World {
 public:
  explicit World(double patience = 60) {
    gate_ = std::filesystem::temp_directory_path() / ("millrace-gate-" + std::to_string(::getpid()));
    std::filesystem::remove(gate_);
    ::setenv(kGateVariable, gate_.c_str(), 1);
    slow_ = gate_.string() + "-slow";
    std::filesystem::remove(slow_);
    ::setenv(kSlowVariable, slow_.c_str(), 1);
    gone_ = gate_.string() + "-gone";
    other_ = gate_.string() + "-other";
    come_back();
    ::setenv(kGoneVariable, gone_.c_str(), 1);
    ::setenv(kOtherVariable, other_.c_str(), 1);
    const EngineCommand command = {.words = {"engine", "--gtest_filter=RemoteEngine.DISABLED_BeTheEngine",
                                             "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
                                   .patience = patience};
    auto log = [](std::string_view) {};
    engine_ = RemoteEngine::start(
                  command, [] { return true; }, log)
                  .value();
  }
  ~World() {
    engine_.reset();
    std::filesystem::remove(gate_);
    std::filesystem::remove(slow_);
    come_back();
  }

  std::shared_ptr<Asked> ask(Token kind) {
    auto asked = std::make_shared<Asked>();
    asked->request.prompt = {kind, static_cast<Token>(++asked_)};
    asked->request.max_tokens = kAnswer;
    engine_->submit(asked->request, [asked](std::span<const Event> events) {
      std::lock_guard lock(asked->mutex);
      for (const Event& event : events) {
        if (event.token) asked->told.push_back(*event.token);
        if (event.finish != Finish::none) asked->end = event;
      }
    });
    return asked;
  }
  void open_gate() { std::fclose(std::fopen(gate_.c_str(), "w")); }
  void be_slow() { std::fclose(std::fopen(slow_.c_str(), "w")); }      // processes from now on
  void be_gone(const char* how = "") { std::ofstream(gone_) << how; }  // the model's files, or whatever is needed
  void come_back() {
    std::filesystem::remove(gone_);
    std::filesystem::remove(other_);
  }
  void be_other() { std::ofstream(other_) << ""; }
  RemoteEngine& engine() { return *engine_; }
  double still() {
    const EngineSnapshot seen = engine_->snapshot();
    return seen.now - seen.last_progress;
  }
  bool failing_with(const char* words) {
    const auto why = engine_->failing();
    return why && why->message.find(words) != std::string::npos;
  }
  int restarts() { return engine_->snapshot().restarts; }

  // Somebody kills the process once it computes. So many deaths more.
  void kill(int times) {
    for (int i = 0; i < times; ++i) {
      const int before = restarts();
      ASSERT_TRUE(until([this] { return engine_->snapshot().present; }));
      ::usleep(20'000);
      ::kill(engine_->snapshot().process, SIGKILL);
      ASSERT_TRUE(until([&] { return restarts() > before; }));
    }
  }
  static bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 60'000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  static bool all_ended(const std::vector<std::shared_ptr<Asked>>& asked) {
    return until([&] { return std::ranges::all_of(asked, [](const auto& one) { return one->ended(); }); });
  }

 private:
  std::filesystem::path gate_, slow_, gone_, other_;
  std::unique_ptr<RemoteEngine> engine_;
  int asked_ = 0;
};

TEST(RemoteEngine, ARequestThatKillsItsEngineFailsAloneAfterThreeDeaths) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked;
  for (int i = 0; i < 9; ++i) asked.push_back(world.ask(i == 5 ? kKillsItsEngine : kGood));
  ASSERT_TRUE(World::all_ended(asked));
  for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(asked[i]->whole(), i != 5) << i;
  ASSERT_TRUE(asked[5]->end->error);
  EXPECT_NE(asked[5]->end->error->message.find("3 times in a row"), std::string::npos) << asked[5]->end->error->message;
  EXPECT_EQ(world.restarts(), 3);
}

TEST(RemoteEngine, SeveralOfThemFailAndNobodyElse) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked;
  for (int i = 0; i < 9; ++i) asked.push_back(world.ask(i % 3 == 1 ? kKillsItsEngine : kGood));
  ASSERT_TRUE(World::all_ended(asked));
  for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(asked[i]->whole(), i % 3 != 1) << i;
}

TEST(RemoteEngine, ARequestThatIsAllThereIsFailsAfterThreeDeaths) {
  World world;
  const auto asked = world.ask(kKillsItsEngine);
  ASSERT_TRUE(World::all_ended({asked}));
  EXPECT_TRUE(asked->end->error);
  EXPECT_EQ(world.restarts(), 3);
}

TEST(RemoteEngine, OneThatEndsItsEngineBetweenStepsFailsToo) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked = {world.ask(kGood), world.ask(kEndsBetweenSteps), world.ask(kGood)};
  ASSERT_TRUE(World::all_ended(asked));
  EXPECT_TRUE(asked[0]->whole());
  EXPECT_TRUE(asked[1]->end->error);
  EXPECT_TRUE(asked[2]->whole());
}

// A step of several that never ends well, and then does: nobody was refused for kills.
TEST(RemoteEngine, KillsInCompanyRefuseNobody) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked;
  for (int i = 0; i < 4; ++i) asked.push_back(world.ask(kStandsStill));
  ASSERT_TRUE(World::until([&] { return std::ranges::all_of(asked, [](auto& one) { return one->count() == 3; }); }));
  world.kill(5);
  for (const auto& one : asked) EXPECT_FALSE(one->ended());
  world.open_gate();
  ASSERT_TRUE(World::all_ended(asked));
  for (const auto& one : asked) EXPECT_TRUE(one->whole());
}

TEST(RemoteEngine, WhoComesWhileOthersAreTriedWaits) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked = {world.ask(kStandsStill), world.ask(kStandsStill)};
  ASSERT_TRUE(World::until([&] { return std::ranges::all_of(asked, [](auto& one) { return one->count() == 3; }); }));
  world.kill(2);
  const auto late = world.ask(kGood);
  world.kill(1);
  EXPECT_EQ(late->count(), 0U);
  world.open_gate();
  asked.push_back(late);
  ASSERT_TRUE(World::all_ended(asked));
  for (const auto& one : asked) EXPECT_TRUE(one->whole());
}

// The time that a process took to load is no silence of the engine that it then is.
TEST(RemoteEngine, OneThatWasLongInComingIsNotTakenForOneThatHangs) {
  World world;
  const auto asked = world.ask(kStandsStill);
  ASSERT_TRUE(World::until([&] { return asked->count() == 3; }));
  world.be_slow();
  world.kill(1);
  world.open_gate();
  ASSERT_TRUE(World::all_ended({asked}));
  EXPECT_TRUE(asked->whole());
  EXPECT_EQ(world.restarts(), 1);
}

// What is open ends with the reason, who comes later gets it at once, and when the files are back, so is the engine.
TEST(RemoteEngine, AModelThatIsGoneRefusesRequestsUntilItIsBack) {
  World world;
  const auto asked = world.ask(kStandsStill);
  ASSERT_TRUE(World::until([&] { return asked->count() == 3; }));
  EXPECT_FALSE(world.engine().failing());
  world.be_gone();
  world.kill(1);
  ASSERT_TRUE(World::all_ended({asked}));
  ASSERT_TRUE(asked->end->error);
  EXPECT_NE(asked->end->error->message.find("model.gguf: does not exist"), std::string::npos);
  EXPECT_TRUE(world.failing_with("model.gguf: does not exist"));
  EXPECT_GE(world.restarts(), 4) << "its death and three starts";
  const auto late = world.ask(kGood);
  ASSERT_TRUE(World::all_ended({late}));
  EXPECT_TRUE(late->end->error);
  world.come_back();
  ASSERT_TRUE(World::until([&] { return world.engine().snapshot().present; }));
  EXPECT_FALSE(world.engine().failing());
  const auto again = world.ask(kGood);
  ASSERT_TRUE(World::all_ended({again}));
  EXPECT_TRUE(again->whole());
}

// However often it is tried meanwhile.
TEST(RemoteEngine, ProgressIsCountedFromTheFirstDeath) {
  World world;
  ASSERT_TRUE(World::until([&] { return world.engine().snapshot().present; }));
  world.be_gone();
  world.kill(1);
  double last = 0;
  while (world.restarts() < 4) {
    const double still = world.still();
    EXPECT_GE(still, last);
    last = still;
    ::usleep(5'000);
  }
  EXPECT_GT(last, 0.5) << "pauses of 0.2 and 0.4 seconds lie behind it";
  world.come_back();
  ASSERT_TRUE(World::until([&] { return world.engine().snapshot().present; }));
  EXPECT_LT(world.still(), last);
}

// One that says nothing may be able to start soon: it is waited for, but not for ever.
TEST(RemoteEngine, StartsThatFailForAnyReasonAreWaitedForOnlySoLong) {
  World world(1.2);
  const auto asked = world.ask(kStandsStill);
  ASSERT_TRUE(World::until([&] { return asked->count() == 3; }));
  world.be_gone("without a word");
  world.kill(1);
  ASSERT_TRUE(World::until([&] { return world.restarts() >= 4; }));
  EXPECT_FALSE(asked->ended());
  ASSERT_TRUE(World::all_ended({asked}));
  ASSERT_TRUE(asked->end->error);
  EXPECT_NE(asked->end->error->message.find("with code 1 while it loaded the model"), std::string::npos);
  EXPECT_GE(world.still(), 1.2);
}

TEST(RemoteEngine, OtherFilesAreTriedOnce) {
  World world;
  const auto asked = world.ask(kStandsStill);
  ASSERT_TRUE(World::until([&] { return asked->count() == 3; }));
  world.be_other();
  world.kill(1);
  ASSERT_TRUE(World::all_ended({asked}));
  EXPECT_TRUE(asked->end->error);
  EXPECT_TRUE(world.failing_with("start it again"));
  ASSERT_TRUE(World::until([&] { return world.restarts() == 2; }));
  world.come_back();
  ::usleep(500'000);
  EXPECT_EQ(world.engine().snapshot().process, 0);
  EXPECT_TRUE(world.failing_with("start it again"));
}

TEST(RemoteEngine, AnswersGoOnThroughKills) {
  World world;
  std::vector<std::shared_ptr<Asked>> asked;
  for (int i = 0; i < 6; ++i) asked.push_back(world.ask(kGood));
  for (int i = 0; i < 3 && !asked.front()->ended(); ++i) world.kill(1);
  ASSERT_TRUE(World::all_ended(asked));
  for (const auto& one : asked) EXPECT_TRUE(one->whole());
}

}  // namespace
}  // namespace millrace
