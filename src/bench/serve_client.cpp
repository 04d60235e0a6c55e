#include "bench/serve_client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "bench/serve_answer.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

struct Closer {
  int fd = -1;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
  int family = AF_INET;
};

Result<Address> resolve(const ServeTarget& target) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  int code = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &wanted, &found);
  if (code != 0) return error(Code::io, "'{}' has no address: {}", target.host, ::gai_strerror(code));
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  address.family = found->ai_family;
  ::freeaddrinfo(found);
  return address;
}

std::string request_text(const ServeTarget& target, std::string_view method, const std::string& path,
                         std::string_view body) {
  const bool number = target.host.find(':') != std::string::npos;  // an address of the newer kind
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nAccept: */*\r\n", method, target.prefix, path,
                                 number ? "[" + target.host + "]" : target.host, target.port);
  for (const auto& [name, value] : target.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (method == "POST") text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

// One connection and the request on it.
struct Line {
  Closer socket;
  size_t request = 0;
  bool used_before = false;
  bool connected = false;
  std::string out;
  size_t sent = 0;
  double start = 0;
  ResponseReader response;
  AnswerReader answer{false};
  std::string error_body;
};

class Load {
 public:
  Load(const ServeTarget& target, const std::vector<ServeRequest>& requests, const ServeRun& options)
      : target_(target), requests_(requests), options_(options), outcome_{{}, 0} {
    outcome_.records.resize(requests.size());
  }

  Result<ServeOutcome> run() {
    TRY(address_, resolve(target_));
    poll_.fd = ::epoll_create1(EPOLL_CLOEXEC);
    if (poll_.fd < 0) return error(Code::io, "epoll is not to be had: {}", std::strerror(errno));
    begin_ = Clock::now();
    while (ended_ < requests_.size()) {
      start_due();
      wait();
      if (options_.progress && !options_.progress(ended_)) return error(Code::cancelled, "stopped");
    }
    outcome_.seconds = now();
    return std::move(outcome_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void start_due() {
    size_t most = options_.max_concurrency > 0 ? static_cast<size_t>(options_.max_concurrency) : requests_.size();
    while (next_ < requests_.size() && open_ < most && requests_[next_].time <= now()) begin(next_++, false);
  }

  // Sends a request on a connection that is free, or a new one.
  void begin(size_t request, bool again) {
    std::unique_ptr<Line> line = again ? nullptr : take_idle();
    if (!line) {
      line = std::make_unique<Line>();
      if (auto made = open_socket(*line); !made.ok()) {
        fail(request, made.error().message);
        return;
      }
    }
    line->request = request;
    line->out = request_text(target_, "POST", options_.endpoint, requests_[request].body);
    line->sent = 0;
    line->start = now();
    line->response = ResponseReader();
    line->answer = AnswerReader(options_.chat);
    line->error_body.clear();
    ++open_;
    Line& here = *line;
    int fd = here.socket.fd;
    if (lines_.size() <= static_cast<size_t>(fd)) lines_.resize(static_cast<size_t>(fd) + 1);
    lines_[static_cast<size_t>(fd)] = std::move(line);
    if (here.connected) send_more(here);
  }

  // A kept connection that the server has not ended in the meantime: its event came when nobody waited for one.
  std::unique_ptr<Line> take_idle() {
    while (!idle_.empty()) {
      std::unique_ptr<Line> line = std::move(idle_.back());
      idle_.pop_back();
      char byte = 0;
      if (::recv(line->socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) continue;
      line->used_before = true;
      return line;
    }
    return nullptr;
  }

  Result<void> open_socket(Line& line) {
    line.socket.fd = ::socket(address_.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (line.socket.fd < 0) {
      return error(Code::io, "no more sockets ({}); a higher limit of open files helps: ulimit -n",
                   std::strerror(errno));
    }
    int one = 1;
    ::setsockopt(line.socket.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int code = ::connect(line.socket.fd, reinterpret_cast<const sockaddr*>(&address_.bytes), address_.size);
    if (code != 0 && errno != EINPROGRESS) return error(Code::io, "cannot connect: {}", std::strerror(errno));
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.fd = line.socket.fd;
    if (::epoll_ctl(poll_.fd, EPOLL_CTL_ADD, line.socket.fd, &event) != 0) {
      return error(Code::io, "cannot watch a socket: {}", std::strerror(errno));
    }
    return {};
  }

  void wait() {
    double until = now() + 0.2;
    bool free = options_.max_concurrency <= 0 || open_ < static_cast<size_t>(options_.max_concurrency);
    if (free && next_ < requests_.size()) until = std::min(until, requests_[next_].time);
    int milliseconds = static_cast<int>(std::clamp((until - now()) * 1000 + 0.5, 0.0, 200.0));
    std::array<epoll_event, 256> events;
    int count = ::epoll_wait(poll_.fd, events.data(), static_cast<int>(events.size()), milliseconds);
    for (int i = 0; i < count; ++i) {
      auto fd = static_cast<size_t>(events[static_cast<size_t>(i)].data.fd);
      if (fd < lines_.size() && lines_[fd]) handle(*lines_[fd], events[static_cast<size_t>(i)].events);
    }
    if (double time = now(); time - swept_ > 1) sweep(time);
  }

  void sweep(double time) {
    swept_ = time;
    for (size_t fd = 0; fd < lines_.size(); ++fd) {
      if (lines_[fd] && time - lines_[fd]->start > options_.timeout) {
        end(*lines_[fd], fmt::format("no answer within {:.0f} s", options_.timeout), false);
      }
    }
  }

  void handle(Line& line, uint32_t what) {
    if (!line.connected && (what & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      int code = 0;
      socklen_t size = sizeof code;
      ::getsockopt(line.socket.fd, SOL_SOCKET, SO_ERROR, &code, &size);
      if (code != 0) {
        end(line, fmt::format("cannot connect to {}:{}: {}", target_.host, target_.port, std::strerror(code)), false);
        return;
      }
      line.connected = true;
    }
    if ((what & EPOLLOUT) != 0 && line.sent < line.out.size() && !send_more(line)) return;
    if ((what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0) receive(line);
  }

  bool send_more(Line& line) {  // false: the line is gone
    while (line.sent < line.out.size()) {
      ssize_t done = ::send(line.socket.fd, line.out.data() + line.sent, line.out.size() - line.sent, MSG_NOSIGNAL);
      if (done < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (done < 0) {
        broken(line, fmt::format("cannot send: {}", std::strerror(errno)));
        return false;
      }
      line.sent += static_cast<size_t>(done);
    }
    line.out.clear();
    line.sent = 0;
    return true;
  }

  void receive(Line& line) {
    std::array<char, 16384> buffer;
    for (;;) {
      ssize_t count = ::recv(line.socket.fd, buffer.data(), buffer.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) return broken(line, fmt::format("cannot receive: {}", std::strerror(errno)));
      if (count == 0) {
        if (!line.response.begun()) return broken(line, "the server closed the connection without an answer");
        auto closed = line.response.closed();
        return end(line, closed.ok() ? "" : closed.error().message, false);
      }
      if (!take(line, {buffer.data(), static_cast<size_t>(count)})) return;
    }
  }

  bool take(Line& line, std::string_view bytes) {  // false: the line is gone
    std::string body;
    if (auto fed = line.response.feed(bytes, body); !fed.ok()) return end(line, fed.error().message, false), false;
    if (line.response.has_head() && line.response.status() != 200) {
      if (line.error_body.size() < 4096) line.error_body += body;
    } else if (auto fed = line.answer.feed(body, now() - line.start); !fed.ok()) {
      return end(line, fed.error().message, false), false;
    }
    if (!line.response.complete()) return true;
    int status = line.response.status();
    end(line, status == 200 ? "" : error_message(status, line.error_body), line.response.keeps_open());
    return false;
  }

  // A connection kept from before may have been closed while nothing was on it: that request is sent again on a new
  // one.
  void broken(Line& line, const std::string& why) {
    if (!line.used_before || line.response.begun()) return end(line, why, false);
    size_t request = line.request;
    drop(line, false);
    begin(request, true);
  }

  void end(Line& line, const std::string& problem, bool keep) {
    ServeRecord record = line.answer.finish();
    record.start = line.start;
    if (!problem.empty()) {
      record.ok = false;
      record.error = problem;
    }
    if (!options_.keep_text) record.text = {};
    outcome_.records[line.request] = std::move(record);
    ++ended_;
    drop(line, keep);
  }

  void drop(Line& line, bool keep) {
    --open_;
    auto place = static_cast<size_t>(line.socket.fd);
    std::unique_ptr<Line> taken = std::move(lines_[place]);
    if (keep) idle_.push_back(std::move(taken));
  }

  void fail(size_t request, const std::string& why) {
    outcome_.records[request].start = now();
    outcome_.records[request].error = why;
    ++ended_;
  }

  const ServeTarget& target_;
  const std::vector<ServeRequest>& requests_;
  const ServeRun& options_;
  ServeOutcome outcome_;
  Address address_;
  Closer poll_;
  Clock::time_point begin_;
  std::vector<std::unique_ptr<Line>> lines_;  // by socket
  std::vector<std::unique_ptr<Line>> idle_;
  size_t next_ = 0, open_ = 0, ended_ = 0;
  double swept_ = 0;
};

}  // namespace

Result<ServeTarget> parse_target(std::string_view base_url) {
  if (base_url.starts_with("https://")) {
    return error(Code::unsupported, "bench serve speaks plain HTTP only; point it at the port behind the TLS proxy");
  }
  if (base_url.starts_with("http://")) base_url.remove_prefix(7);
  while (base_url.ends_with('/')) base_url.remove_suffix(1);
  ServeTarget target;
  size_t slash = base_url.find('/');
  if (slash != std::string_view::npos) target.prefix = base_url.substr(slash);
  std::string_view host = base_url.substr(0, slash);
  size_t colon = host.rfind(':');
  bool port = colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  target.port = port ? host.substr(colon + 1) : std::string_view("80");
  host = host.substr(0, port ? colon : host.size());
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  target.host = host;
  bool digits = std::all_of(target.port.begin(), target.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (target.host.empty() || target.port.empty() || !digits) {
    return error(Code::invalid, "'{}' is no address: give http://HOST:PORT", base_url);
  }
  return target;
}

Result<ServeOutcome> run_load(const ServeTarget& target, const std::vector<ServeRequest>& requests,
                              const ServeRun& options) {
  return Load(target, requests, options).run();
}

Result<std::string> get_text(const ServeTarget& target, const std::string& path) {
  TRY(Address address, resolve(target));
  Closer socket{::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  timeval patience = {10, 0};
  ::setsockopt(socket.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(socket.fd, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
    return error(Code::io, "cannot connect to {}:{}: {}", target.host, target.port, std::strerror(errno));
  }
  std::string text = request_text(target, "GET", path, "");
  if (::send(socket.fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    return error(Code::io, "cannot send to {}:{}: {}", target.host, target.port, std::strerror(errno));
  }
  ResponseReader response;
  std::string body;
  std::array<char, 16384> buffer;
  while (!response.complete()) {
    ssize_t count = ::recv(socket.fd, buffer.data(), buffer.size(), 0);
    if (count < 0) return error(Code::io, "no answer from {}:{}: {}", target.host, target.port, std::strerror(errno));
    if (count == 0) {
      TRY_VOID(response.closed());
      break;
    }
    TRY_VOID(response.feed({buffer.data(), static_cast<size_t>(count)}, body));
  }
  if (response.status() != 200) return error(Code::io, "{} gives {}", path, error_message(response.status(), body));
  return body;
}

}  // namespace millrace
