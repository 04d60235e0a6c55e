#include "server/connection.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <algorithm>

#include "base/human.h"
#include "server/reply.h"
#include "server/request_head.h"

namespace millrace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Parser = RequestParser;

constexpr size_t kReadBytes = 4096;       // asked for at once while a head is awaited
constexpr size_t kWatchBytes = 512;       // and while an answer is: hardly ever anything comes
constexpr size_t kBodyReadBytes = 65536;  // and while a body comes
constexpr size_t kAheadBytes = 16384;     // a client may send of its next request before it has this answer
constexpr int64_t kSmallBody = 65536;
constexpr size_t kNoBody = 1024;                   // some clients send a little where nothing is taken
constexpr size_t kKeptBytes = 16384;               // of room a connection keeps between answers
constexpr size_t kDrainedBytes = size_t{1} << 20;  // of what a client still sends after it was refused
constexpr double kTurnSeconds = 2;  // for whoever is told that there are too many to ask, and then to read it

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

// What a body takes of the room for all bodies, given back when it goes.
class BodyCharge {
 public:
  explicit BodyCharge(std::atomic<int64_t>& total) : total_(total) {}
  ~BodyCharge() { total_.fetch_sub(bytes_); }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;
  // False if there is no room for so many.
  bool grow_to(int64_t bytes, int64_t most) {
    const int64_t before = total_.fetch_add(bytes - bytes_);
    const int64_t more = std::exchange(bytes_, bytes);
    return before + bytes - more <= most;
  }

 private:
  std::atomic<int64_t>& total_;
  int64_t bytes_ = 0;
};

// `Stream` is a socket, or TLS over one.
template <class Stream>
class Connection : public ConnectionHandle, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, const ConnectionSetting& setting, std::function<void(ConnectionHandle*)> at_end)
      : stream_(std::move(stream)), timer_(stream_.get_executor()), setting_(setting), at_end_(std::move(at_end)) {}

  void start() {
    error_code ignored;
    lowest().non_blocking(true, ignored);
    asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->run(); },
        [self = this->shared_from_this()](std::exception_ptr) {
          self->end_reply();
          self->at_end_(self.get());
        });
  }

  void close() override {
    closed_ = true;
    error_code ignored;
    lowest().close(ignored);
    wake();
  }
  void close_idle() override {
    if (idle_) close();
  }
  void wake() override { timer_.cancel(); }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, StreamSocket>;
  StreamSocket& lowest() {
    if constexpr (kTls)
      return stream_.next_layer();
    else
      return stream_;
  }

  // Sleeps until somebody wakes it or the time has come; whoever calls looks again at what it waits for.
  asio::awaitable<void> sleep_until(Clock::time_point deadline) {
    timer_.expires_at(deadline);
    error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  // What comes lands beside the input and joins it on arrival: a read may be open while the input is being used.
  void start_read(size_t bytes) {
    if (reading_ || closed_) return;
    reading_ = true;
    landing_.resize(bytes);
    stream_.async_read_some(
        asio::buffer(landing_), [self = this->shared_from_this()](error_code failure, size_t count) {
          self->reading_ = false;
          self->in_.commit(asio::buffer_copy(self->in_.prepare(count), asio::buffer(self->landing_)));
          if (failure) self->closed_ = true;
          self->wake();
        });
  }

  // Waits for more input. False: the connection has ended or the time is up.
  asio::awaitable<bool> read_more(Clock::time_point deadline, size_t bytes) {
    const size_t before = in_.size();
    start_read(bytes);
    while (in_.size() == before && !closed_) {
      if (Clock::now() >= deadline) co_return false;
      co_await sleep_until(deadline);
    }
    co_return in_.size() > before;
  }

  // Takes from the text what the socket has room for, which is nearly always all of it and needs no waiting.
  void write_at_once(std::string_view& text) {
    if constexpr (!kTls) {
      if (closed_) return;
      error_code failure;
      text.remove_prefix(stream_.write_some(asio::buffer(text.data(), text.size()), failure));
      closed_ = closed_ || (failure && failure != asio::error::would_block && failure != asio::error::try_again);
    }
  }

  // Writes all of it. False: the connection has ended, or the client took nothing for too long.
  asio::awaitable<bool> write(std::string_view text) {
    write_at_once(text);
    while (!text.empty() && !closed_) {
      const auto deadline = Clock::now() + seconds(setting_.limits.write_seconds);
      writing_ = true;
      size_t written = 0;
      stream_.async_write_some(asio::buffer(text.data(), text.size()),
                               [self = this->shared_from_this(), &written](error_code failure, size_t count) {
                                 written = count;
                                 self->writing_ = false;
                                 if (failure) self->closed_ = true;
                                 self->wake();
                               });
      bool late = false;
      while (writing_) {
        if (Clock::now() >= deadline && !std::exchange(late, true)) {
          setting_.service->counters().slow_clients.fetch_add(1);
          close();
        }
        co_await sleep_until(late ? Clock::time_point::max() : deadline);
      }
      text.remove_prefix(std::min(written, text.size()));
    }
    co_return !closed_;
  }

  // A co_await stands alone in its statement everywhere here, without anything made for it in the same statement: g++
  // 12 compiles one inside && or ?: wrongly, and destroys some temporaries of its arguments twice.
  asio::awaitable<void> run() {
    if (kTls) co_await handshake();
    if (setting_.full) {
      co_await turn_away();
    } else {
      for (bool more = !closed_; more && !closed_;) more = co_await serve_one();
    }
    co_await finish();
  }

  // Once the client asks for something, whatever it is; one that does not ask in time gets no answer.
  asio::awaitable<void> turn_away() {
    const bool asked = co_await read_more(Clock::now() + seconds(kTurnSeconds), kReadBytes);
    if (!asked) co_return;
    refused_ = true;
    HttpAnswer answer = error_answer(come_again({.status = 503,
                                                 .message = "this server has all the connections it may have",
                                                 .type = "server_error",
                                                 .code = "overloaded"},
                                                1));
    co_await write_whole(std::move(answer));
  }

  asio::awaitable<void> handshake() {
    if constexpr (kTls) {
      done_ = false;
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code failure) {
        if (failure) self->closed_ = true;
        self->note_done();
      });
      co_await wait_done(setting_.limits.header_seconds);
    }
    co_return;
  }

  void note_done() {
    done_ = true;
    wake();
  }
  // Waits for note_done(). After the time is up the connection is closed, which makes it come.
  asio::awaitable<void> wait_done(double patience) {
    const auto deadline = Clock::now() + seconds(patience);
    while (!done_) {
      if (Clock::now() >= deadline && !closed_) close();
      co_await sleep_until(closed_ ? Clock::time_point::max() : deadline);
    }
  }

  // One request and its answer. False: the connection is to end.
  asio::awaitable<bool> serve_one() {
    auto parser = std::make_unique<Parser>();
    parser->header_limit(static_cast<uint32_t>(setting_.limits.header_bytes));
    parser->body_limit(setting_.limits.body_bytes);
    // The last chunk is taken together with all its trailers, or not at all: they end where what was taken ends.
    trailers_ = nullptr;
    auto on_chunk = [this](uint64_t bytes, boost::beast::string_view extensions, error_code&) {
      if (bytes == 0) trailers_ = extensions.data();
    };
    parser->on_chunk_header(on_chunk);
    bool there = in_.size() > 0;
    if (!there) {
      idle_ = true;
      there = co_await read_more(Clock::now() + seconds(setting_.limits.idle_seconds), kReadBytes);
      idle_ = false;
    }
    if (!there) co_return false;
    HttpRequest request;
    room_ = setting_.limits.body_bytes;
    head_only_ = false;
    const int refused = co_await read_request(*parser, request);
    if (refused > 0) co_await refuse(refused);
    if (refused != 0) co_return false;
    parser.reset();
    if (in_.size() == 0) in_.shrink_to_fit();
    if (!reading_) landing_ = {};
    const bool more = co_await answer(std::move(request));
    co_return more;
  }

  // 0: it is there; -1: the client went away; else the status to refuse it with.
  asio::awaitable<int> read_request(Parser& parser, HttpRequest& request) {
    int refused = 0;
    const bool head = co_await read_head(parser, refused);
    if (!head) co_return refused != 0 ? refused : -1;
    refused = check_request_head(parser, setting_.limits.headers);
    if (refused != 0) co_return refused;
    keep_alive_ = parser.keep_alive() && !*setting_.closing;
    chunked_ = parser.get().version() >= 11;
    head_only_ = parser.get().method_string() == "HEAD";
    // Beast puts what comes in trailers among the headers, so those are taken before the body is read.
    request = request_of(parser);
    request.secure = kTls;
    request.local = setting_.local;
    request.trace = trace_of(request);
    id_ = request.trace.id;
    parser.eager(true);
    // Nobody sends us a body before we know that it may: what is refused is refused by its head.
    if (!parser.is_done()) {
      std::optional<HttpAnswer> denied = setting_.service->deny(request);
      if (denied) {
        keep_alive_ = false;
        refused_ = true;
        co_await write_whole(std::move(*denied));
        co_return -1;
      }
      limit_body(parser, request, refused);
      if (refused != 0) co_return refused;
    }
    if (!parser.is_done() && boost::beast::iequals(parser.get()["Expect"], "100-continue")) {
      const bool written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
      if (!written) co_return -1;
    }
    const bool body = co_await read_body(parser, refused);
    if (!body) co_return refused != 0 ? refused : -1;
    request.body = std::move(parser.get().body());
    request.charge = std::move(charge_);
    co_return 0;
  }

  // Where nothing is taken nobody was asked for a key either: large bodies there would be anybody's.
  void limit_body(Parser& parser, const HttpRequest& head, int& refused) {
    if (takes_body(head.method, head.path)) return;
    room_ = std::min(room_, kNoBody);
    parser.body_limit(room_);  // of chunks; a length was looked at together with the head
    if (const auto length = parser.content_length(); length && *length > room_) refused = 413;
  }

  // The status that says what is wrong with the bytes.
  int status_of(const error_code& failure) const {
    if (failure == http::error::header_limit) return 431;
    if (failure == http::error::body_limit) return 413;
    if (failure == http::error::bad_version) return names_a_version(unread()) ? 505 : 400;
    return 400;
  }

  std::string_view unread() const { return {static_cast<const char*>(in_.data().data()), in_.size()}; }

  // Beast asserts that whoever has seen a last chunk's first line comes back with the whole of it. At least its five
  // bytes follow whatever begins with a zero, so there is no harm in waiting for them.
  bool may_be_half_of_the_end(const Parser& parser) const {
    if (!parser.is_header_done() || !parser.chunked() || in_.size() >= std::string_view("0\r\n\r\n").size())
      return false;
    return *static_cast<const char*>(in_.data().data()) == '0';
  }

  // Feeds what has come to the parser, so much at a time as a head may have: what it still waits for the end of then (a
  // head, a chunk's extensions, all trailers) is too long, however it came. False: it is no HTTP, or too much of it,
  // and `refused` says what to answer.
  bool feed(Parser& parser, int& refused) {
    const ConnectionLimits& limits = setting_.limits;
    if (!parser.is_header_done() && has_folded_header(unread())) refused = 400;
    while (refused == 0 && in_.size() > 0 && !parser.is_done() && !may_be_half_of_the_end(parser)) {
      error_code failure;
      const bool had_header = parser.is_header_done();
      const size_t given = std::min(in_.size(), limits.header_bytes);
      trailers_ = nullptr;  // what was seen before may have moved
      const size_t used = parser.put(asio::buffer(in_.data().data(), given), failure);
      if (failure && failure != http::error::need_more) {
        refused = status_of(failure);
        break;
      }
      if (parser.is_done() && trailers_ != nullptr) {
        const char* data = static_cast<const char*>(in_.data().data());
        if (has_folded_header({trailers_, static_cast<size_t>(data + used - trailers_)})) refused = 400;
      }
      in_.consume(used);
      taken_ += used;
      if (had_header != parser.is_header_done()) break;
      if (used == 0 && given == limits.header_bytes) refused = 431;
      if (had_header && taken_ > 2 * room_ + limits.header_bytes) refused = 413;
      if (used == 0) break;
    }
    return refused == 0;
  }

  // Some clients end a body with one line break too many. True: something else follows.
  bool skip_empty_lines() {
    auto front = [&] { return *static_cast<const char*>(in_.data().data()); };
    while (in_.size() > 0 && (front() == '\r' || front() == '\n')) in_.consume(1);
    return in_.size() > 0;
  }

  asio::awaitable<bool> read_head(Parser& parser, int& refused) {
    const auto deadline = Clock::now() + seconds(setting_.limits.header_seconds);
    for (bool begun = false;;) {
      begun = begun || skip_empty_lines();
      if (begun && !feed(parser, refused)) co_return false;
      if (parser.is_header_done()) co_return true;
      if (in_.size() > setting_.limits.header_bytes) {
        refused = 431;
        co_return false;
      }
      const bool more = co_await read_more(deadline, kReadBytes);
      if (more) continue;
      if (!closed_) refused = 408;
      co_return false;
    }
  }

  asio::awaitable<bool> read_body(Parser& parser, int& refused) {
    const auto deadline = Clock::now() + seconds(setting_.limits.body_seconds);
    charge_ = std::make_shared<BodyCharge>(setting_.service->counters().body_bytes);
    taken_ = 0;
    for (;;) {
      if (!feed(parser, refused)) co_return false;
      // Small bodies are always taken, so that large ones cannot shut everybody out.
      const auto bytes = static_cast<int64_t>(parser.get().body().size());
      if (!charge_->grow_to(bytes, setting_.limits.all_bodies_bytes) && bytes > kSmallBody) {
        refused = 503;
        co_return false;
      }
      if (parser.is_done()) co_return true;
      if (in_.size() > 0 && feed_again(parser, refused)) continue;
      if (refused != 0) co_return false;
      const bool more = co_await read_more(deadline, kBodyReadBytes);
      if (more) continue;
      if (!closed_) refused = 408;
      co_return false;
    }
  }

  // True if the parser took more of what is there already.
  bool feed_again(Parser& parser, int& refused) {
    const size_t before = in_.size();
    return feed(parser, refused) && in_.size() < before;
  }

  // What cannot be read as a request is answered and ends the connection: where the next one begins is not known.
  asio::awaitable<void> refuse(int status) {
    keep_alive_ = false;
    refused_ = true;
    std::string message = status == 413   ? fmt::format("the body is larger than {}", brief_bytes(room_))
                          : status == 431 ? "the headers are too large or too many"
                          : status == 408 ? "the request did not come in time"
                          : status == 503 ? "too many large requests are being read: try again later"
                                          : "this is no request this server can read";
    HttpAnswer answer = error_answer({.status = status, .message = std::move(message), .code = "bad_request"});
    co_await write_whole(std::move(answer));
  }

  void end_reply() {
    if (reply_) reply_->close(true);
    reply_.reset();
  }

  asio::awaitable<bool> answer(HttpRequest request) {
    reply_ = std::make_shared<Reply>(
        [doorbell = setting_.doorbell, weak = this->weak_from_this()] { doorbell->ring(weak); });
    setting_.service->handle(std::move(request), reply_);
    Reply::Seen seen;
    while (!closed_) {
      seen = reply_->look();
      if (seen.answered) break;
      // Reading on is how a client that goes away is noticed.
      if (in_.size() < kAheadBytes) start_read(kWatchBytes);
      co_await sleep_until(Clock::time_point::max());
    }
    bool good = false;
    if (!closed_ && seen.streaming) good = co_await write_stream();
    if (!closed_ && !seen.streaming) good = co_await write_whole(reply_->take_head());
    reply_->close(!good);
    reply_.reset();
    keep_alive_ = keep_alive_ && !*setting_.closing;
    if (!good) keep_alive_ = false;
    co_return keep_alive_;
  }

  std::string head_of(const HttpAnswer& answer, std::optional<size_t> length) const {
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: millrace\r\nContent-Type: {}\r\n", answer.status,
                                   reason_phrase(answer.status), answer.content_type);
    for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
    if (length) {
      head += fmt::format("Content-Length: {}\r\n", *length);
    } else if (chunked_) {
      head += "Transfer-Encoding: chunked\r\n";
    }
    if (!id_.empty()) head += fmt::format("X-Request-Id: {}\r\n", id_);
    head += "X-Content-Type-Options: nosniff\r\n";
    head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
  }

  asio::awaitable<bool> write_whole(HttpAnswer answer) {
    const std::string_view body = answer.fixed.empty() ? std::string_view(answer.body) : answer.fixed;
    std::string head = head_of(answer, body.size());
    const bool together = body.size() <= kKeptBytes;  // one packet rather than two
    if (together && !head_only_) head += body;
    bool written = co_await write(head);
    if (written && !together && !head_only_) written = co_await write(body);
    co_return written;
  }

  // Puts a chunk's frame around what was appended to `out` after `begin`.
  void frame(std::string& out, size_t begin) const {
    if (!chunked_ || out.size() == begin) return;
    out.insert(begin, fmt::format("{:x}\r\n", out.size() - begin));
    out += "\r\n";
  }

  asio::awaitable<bool> write_stream() {
    if (!chunked_) keep_alive_ = false;  // its end is told by closing
    const std::shared_ptr<Job> job = reply_->job();
    const HttpAnswer head = reply_->take_head();
    std::string out = head_of(head, std::nullopt);
    if (head_only_) {
      const bool written = co_await write(out);
      co_return written;
    }
    CHECK(job != nullptr, "a stream without a job");
    const double period = job->period();
    auto last_write = Clock::now();
    bool ended = false;
    while (!closed_) {
      const size_t begin = out.size();
      ended = job->pull(out) == Job::Pull::end;
      ended = ended || (period > 0 && *setting_.closing);  // a view without an end
      if (out.empty() && Clock::now() - last_write >= seconds(setting_.limits.ping_seconds)) out += head.idle;
      frame(out, begin);
      if (ended && chunked_) out += "0\r\n\r\n";
      if (!out.empty()) {
        const bool written = co_await write(out);
        if (!written) co_return false;
        last_write = Clock::now();
        out.clear();
        if (out.capacity() > kKeptBytes) out.shrink_to_fit();
      }
      if (ended) co_return true;
      const auto until =
          period > 0 ? Clock::now() + seconds(period) : last_write + seconds(setting_.limits.ping_seconds);
      if (in_.size() < kAheadBytes) start_read(kWatchBytes);
      while (!closed_ && Clock::now() < until && !reply_->look().ready) co_await sleep_until(until);
    }
    co_return false;
  }

  // Lets the client read what was sent before the connection goes: if it still sends, that is read for a moment, since
  // closing with unread input would take back the answer.
  asio::awaitable<void> finish() {
    if (closed_) {
      close();
      co_return;
    }
    if constexpr (kTls) {
      done_ = false;
      stream_.async_shutdown([self = this->shared_from_this()](error_code) { self->note_done(); });
      co_await wait_done(1);
    } else {
      error_code ignored;
      lowest().shutdown(asio::socket_base::shutdown_send, ignored);
      const auto deadline = Clock::now() + seconds(kTurnSeconds);
      bool more = refused_ || in_.size() > 0;
      for (size_t drained = 0; more && drained < kDrainedBytes;) {
        drained += in_.size();
        in_.consume(in_.size());
        more = co_await read_more(deadline, kBodyReadBytes);
      }
    }
    close();
  }

  Stream stream_;
  asio::steady_timer timer_;
  ConnectionSetting setting_;
  std::function<void(ConnectionHandle*)> at_end_;
  boost::beast::flat_buffer in_;
  std::vector<char> landing_;
  size_t room_ = 0;                 // for this body
  size_t taken_ = 0;                // bytes of it, frames included
  const char* trailers_ = nullptr;  // of a body in chunks, once its last one was seen
  std::shared_ptr<BodyCharge> charge_;
  std::shared_ptr<Reply> reply_;
  bool reading_ = false, writing_ = false, closed_ = false, idle_ = false, done_ = false;
  std::string id_;  // of the request that is answered
  bool keep_alive_ = false, chunked_ = true, head_only_ = false, refused_ = false;
};

}  // namespace

std::shared_ptr<ConnectionHandle> start_connection(StreamSocket socket, const ConnectionSetting& setting,
                                                   std::function<void(ConnectionHandle*)> at_end) {
  if (setting.tls != nullptr) {
    using Secure = asio::ssl::stream<StreamSocket>;
    auto connection =
        std::make_shared<Connection<Secure>>(Secure(std::move(socket), *setting.tls), setting, std::move(at_end));
    connection->start();
    return connection;
  }
  auto connection = std::make_shared<Connection<StreamSocket>>(std::move(socket), setting, std::move(at_end));
  connection->start();
  return connection;
}

}  // namespace millrace
