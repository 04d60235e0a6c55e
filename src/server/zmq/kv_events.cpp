#include "server/kv_events.h"

#if MILLRACE_ZMQ
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#endif

namespace millrace {

#if MILLRACE_ZMQ
namespace {

std::string number_bytes(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

// A socket that is closed at the end without waiting for anybody.
class Socket {
 public:
  Socket(void* context, int kind) : socket_(::zmq_socket(context, kind)) {
    const int at_once = 0, most = 100'000;
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &at_once, sizeof(at_once));
    ::zmq_setsockopt(socket_, ZMQ_SNDHWM, &most, sizeof(most));
  }
  ~Socket() { ::zmq_close(socket_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void* get() const { return socket_; }

  Result<std::string> bind(const std::string& endpoint) {
    if (::zmq_bind(socket_, endpoint.c_str()) != 0)
      return error(Code::invalid, "cannot listen on '{}' for events of the cache: {}", endpoint,
                   ::zmq_strerror(::zmq_errno()));
    std::array<char, 512> bound;
    size_t size = bound.size();
    if (::zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0) return endpoint;
    return std::string(bound.data());
  }
  // Never waits: a reader that does not keep up misses what it would have to wait for.
  bool send(std::initializer_list<std::string_view> frames) {
    size_t left = frames.size();
    for (std::string_view frame : frames) {
      const int flags = ZMQ_DONTWAIT | (--left > 0 ? ZMQ_SNDMORE : 0);
      if (::zmq_send(socket_, frame.data(), frame.size(), flags) < 0) return false;
    }
    return true;
  }
  // A message's frames; none: there is no message.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t frame;
      ::zmq_msg_init(&frame);
      if (::zmq_msg_recv(&frame, socket_, ZMQ_DONTWAIT) < 0) {
        ::zmq_msg_close(&frame);
        return {};
      }
      frames.emplace_back(static_cast<const char*>(::zmq_msg_data(&frame)), ::zmq_msg_size(&frame));
      more = ::zmq_msg_more(&frame);
      ::zmq_msg_close(&frame);
    }
    return frames;
  }

 private:
  void* socket_;
};

struct Context {
  void* value = ::zmq_ctx_new();
  Context() = default;
  ~Context() { ::zmq_ctx_term(value); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

class Publisher : public KvEvents {
 public:
  explicit Publisher(KvEventsOptions options) : options_(std::move(options)) {}
  ~Publisher() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
    if (wake_ >= 0) ::close(wake_);
  }

  Result<void> start() {
    wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_ < 0) return error(Code::io, "no eventfd can be had");
    TRY(endpoint_, publisher_.bind(options_.endpoint));
    if (!options_.replay.empty()) {
      TRY(replay_, router_.bind(options_.replay));
    }
    publish({{.kind = CacheChange::Kind::cleared}});
    thread_ = std::thread([this] { loop(); });
    return {};
  }

  void publish(std::vector<CacheChange> changes) override {
    const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::string batch = kv_batch(time, std::move(changes), options_.node_tokens);
    {
      std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(batch));
    }
    wake();
  }
  std::string endpoint() const override { return endpoint_; }
  std::string replay() const override { return replay_; }

 private:
  struct Kept {
    uint64_t number = 0;
    std::string batch;
  };

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  }

  void loop() {
    for (;;) {
      std::array<zmq_pollitem_t, 2> items = {{{nullptr, wake_, ZMQ_POLLIN, 0}, {router_.get(), 0, ZMQ_POLLIN, 0}}};
      ::zmq_poll(items.data(), options_.replay.empty() ? 1 : 2, -1);
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t read = ::read(wake_, &count, sizeof(count));
      std::vector<std::string> batches;
      {
        std::lock_guard lock(mutex_);
        batches.swap(inbox_);
        if (stopping_ && batches.empty()) return;
      }
      for (std::string& batch : batches) send(std::move(batch));
      if (options_.replay.empty()) continue;
      for (auto asked = router_.receive(); !asked.empty(); asked = router_.receive()) answer(asked);
    }
  }

  void send(std::string batch) {
    publisher_.send({options_.topic, number_bytes(next_), batch});
    kept_bytes_ += batch.size();
    kept_.push_back({next_++, std::move(batch)});
    while (kept_.size() > options_.most_batches || (kept_bytes_ > options_.most_bytes && kept_.size() > 1)) {
      kept_bytes_ -= kept_.front().batch.size();
      kept_.pop_front();
    }
  }

  // [who asks]["" ][number]; anything else is not answered.
  void answer(const std::vector<std::string>& asked) {
    if (asked.size() != 3 || !asked[1].empty() || asked[2].size() != 8) return;
    uint64_t from = 0;
    for (char byte : asked[2]) from = from << 8 | static_cast<uint8_t>(byte);
    for (const Kept& each : kept_)
      if (each.number >= from) router_.send({asked[0], "", options_.topic, number_bytes(each.number), each.batch});
    router_.send({asked[0], "", "", number_bytes(UINT64_MAX), ""});
  }

  const KvEventsOptions options_;
  Context context_;
  Socket publisher_{context_.value, ZMQ_PUB}, router_{context_.value, ZMQ_ROUTER};
  std::string endpoint_, replay_;
  int wake_ = -1;

  std::mutex mutex_;  // guards the two below
  std::vector<std::string> inbox_;
  bool stopping_ = false;

  std::deque<Kept> kept_;  // the thread's
  size_t kept_bytes_ = 0;
  uint64_t next_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KvEvents>> KvEvents::create(KvEventsOptions options) {
  auto made = std::make_unique<Publisher>(std::move(options));
  TRY_VOID(made->start());
  return std::unique_ptr<KvEvents>(std::move(made));
}

#else

Result<std::unique_ptr<KvEvents>> KvEvents::create(KvEventsOptions) {
  return error(Code::unsupported,
               "this build has no ZeroMQ, so it tells nobody of its cache (--kv-events): install "
               "libzmq3-dev and build again");
}

#endif

}  // namespace millrace
