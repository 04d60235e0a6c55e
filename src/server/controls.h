// Controls: what an operator does to a server that runs: it stands still and goes on, gives its memory back and takes
// it again, and gets other weights. Requests that come meanwhile wait, and none is lost but by Mode::abort.
//
//   enter, leave       workers    around the opening of a request
//   pause ... update   any thread; done one after another on a thread of its own, `done` is called there
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "base/result.h"
#include "server/generation.h"
#include "server/workers.h"

namespace millrace {

class Service;

// What becomes of answers that are open.
enum class OpenAnswers : uint8_t {
  wait,   // they end as they would have
  abort,  // they end with an error
  keep,   // they stand still, and go on afterwards from where they were
};

class Controls {
 public:
  using Done = std::function<void(Result<std::string> said)>;
  explicit Controls(Service& service) : service_(service), worker_(1, "controls") {}

  // True: a request may be opened, and leave() follows. False: `later` is called when it may try again.
  bool enter(std::function<void()> later);
  void leave();

  void pause(OpenAnswers open, bool clear, Done done);
  void resume(Done done);
  void sleep(OpenAnswers open, Done done);
  void wake_up(Done done);
  // Other weights of the same shapes, from a path that was checked. What goes wrong leaves the old ones serving.
  void update(std::string path, std::string version, OpenAnswers open, Done done);

  bool paused() const { return paused_.load(); }
  bool sleeping() const { return sleeping_.load(); }
  // Whoever waits may try again, and nothing is waited for any more.
  void stop();

 private:
  void post(std::function<Result<std::string>()> task, Done done);
  Result<void> settle(const ServedModel& model, OpenAnswers open);  // until the open answers are as they should be
  Result<void> wait_for(const std::function<bool()>& so) const;
  bool quiet() const;
  Result<std::string> rest(OpenAnswers open, bool clear);
  Result<std::string> lie_down(OpenAnswers open);
  Result<std::string> change(const std::string& path, const std::string& version, OpenAnswers open);
  Result<void> load_beside(const ServedModel& old, const std::string& path, ServedModel& fresh) const;
  Result<std::string> take_over(const std::shared_ptr<const ServedModel>& old, ServedModel fresh, OpenAnswers open);
  void release();

  Service& service_;
  std::atomic<bool> paused_ = false, sleeping_ = false, changing_ = false, stopping_ = false;
  std::mutex mutex_;  // guards the one below, and entering against what is said above
  std::deque<std::function<void()>> parked_;
  std::atomic<int> entering_ = 0;
  Workers worker_;
};

}  // namespace millrace
