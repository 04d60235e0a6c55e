// Doorbell: tells the I/O thread from other threads which connections have something to do. However many are named
// before it looks, it is woken once: waking it costs more than all the rest of passing a token on. Any thread rings;
// connections are woken on the I/O thread. Kept alive by whoever may still ring.
#pragma once

#include <boost/asio/any_io_executor.hpp>

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
  explicit Doorbell(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  void ring(std::weak_ptr<Sleeper> sleeper);

 private:
  void wake_all();

  const boost::asio::any_io_executor executor_;
  std::mutex mutex_;  // guards the two below
  std::vector<std::weak_ptr<Sleeper>> named_;
  bool rung_ = false;
};

}  // namespace millrace
