// Doorbell: tells the I/O thread from other threads which connections have something to do. However many are named
// before it looks, it is woken once: waking it costs more than all the rest of passing a token on. Any thread rings;
// connections are woken on the I/O thread. Kept alive by whoever may still ring.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace millrace {

// Something on the I/O thread that sleeps until it is told to look again.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  virtual void wake() = 0;
};

class Doorbell : public std::enable_shared_from_this<Doorbell> {
 public:
  // `post` has a task done on the I/O thread, later.
  explicit Doorbell(std::function<void(std::function<void()> task)> post) : post_(std::move(post)) {}
  void ring(std::weak_ptr<Sleeper> sleeper);

  // While one lives, bells rung on its thread are not heard; they ring once when it goes. They do not nest.
  class Together {
   public:
    Together();
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    friend class Doorbell;
    std::shared_ptr<Doorbell> held_;
  };

 private:
  void call();
  void wake_all();

  const std::function<void(std::function<void()> task)> post_;
  std::mutex mutex_;  // guards the two below
  std::vector<std::weak_ptr<Sleeper>> named_;
  bool called_ = false;
};

}  // namespace millrace
