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
#include <thread>

#include "process/engine_child.h"

namespace millrace {
namespace {

// First token of a prompt: what computing it does.
enum : Token { kGood = 1, kKillsItsEngine, kStandsStill, kEndsBetweenSteps };
constexpr const char* kGateVariable = "MILLRACE_TEST_GATE";  // a file; while it is there nothing stands still
// A file: a process that finds it there is long in coming, and its first turn comes after it is ready.
constexpr const char* kSlowVariable = "MILLRACE_TEST_SLOW";
constexpr int kAnswer = 20;

Token token_of(const Request& request, size_t place) { return request.prompt[1] * 31 + static_cast<Token>(place) * 7; }

class Scripted {
 public:
  void run() {
    const char* const slow = std::getenv(kSlowVariable);
    const bool late = slow != nullptr && std::filesystem::exists(slow);
    if (late) ::usleep(2'500'000);
    send(ReadyFrame{.facts = {.limits = {.context = 512}, .vocab = 1000}, .fingerprint = "scripted"});
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
  World() {
    gate_ = std::filesystem::temp_directory_path() / ("millrace-gate-" + std::to_string(::getpid()));
    std::filesystem::remove(gate_);
    ::setenv(kGateVariable, gate_.c_str(), 1);
    slow_ = gate_.string() + "-slow";
    std::filesystem::remove(slow_);
    ::setenv(kSlowVariable, slow_.c_str(), 1);
    const EngineCommand command = {.words = {"engine", "--gtest_filter=RemoteEngine.DISABLED_BeTheEngine",
                                             "--gtest_also_run_disabled_tests", "--gtest_brief=1"}};
    auto log = [](std::string_view) {};
    engine_ = RemoteEngine::start(
                  command, [] { return true; }, log)
                  .value();
  }
  ~World() {
    engine_.reset();
    std::filesystem::remove(gate_);
    std::filesystem::remove(slow_);
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
  void be_slow() { std::fclose(std::fopen(slow_.c_str(), "w")); }  // processes from now on
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
  std::filesystem::path gate_, slow_;
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
