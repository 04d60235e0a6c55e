// A server in this process on a free port, with the shipped model, and a client small enough to be trusted. One rig per
// test; the model is loaded once. Everything waits with long deadlines and never sleeps to synchronise.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/draft/suffix.h"
#include "engine/engine.h"
#include "server/server.h"

namespace millrace::testing {

inline constexpr int kPatience = 120'000;  // milliseconds; only reached when something is wrong

// True as soon as the condition holds, false after a long time.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct Response {
  int status = 0;  // 0: the connection ended without an answer
  std::map<std::string, std::string> headers;
  std::string body;  // without the frames of chunks
  bool complete = false;

  Json json() const {
    auto parsed = parse_json(body);
    EXPECT_TRUE(parsed.ok()) << body;
    return parsed.ok() ? *parsed : Json();
  }
  // What follows "data: " in each event.
  std::vector<std::string> events() const {
    std::vector<std::string> list;
    for (size_t at = 0; at < body.size();) {
      const size_t end = std::min(body.find("\n\n", at), body.size());
      if (body.compare(at, 6, "data: ") == 0) list.push_back(body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return list;
  }
};

// One connection. Reads answers one after another, also when several are on their way.
class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // As a client that crashes: the server sees a reset.
  void reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void ask(std::string_view method, std::string_view path, std::string_view body, std::string_view headers = "") {
    send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", method, path, body.size(),
                     headers, body));
  }
  // Reads until the text is in what has come so far (and not yet been taken by an answer).
  bool read_until(std::string_view text) {
    while (in_.find(text) == std::string::npos)
      if (!more()) return false;
    return true;
  }
  bool ended() {  // the server closed it
    while (more()) {
    }
    return true;
  }
  const std::string& unread() const { return in_; }

  Response answer(bool head_only = false) {
    Response response;
    if (!read_until("\r\n\r\n")) return response;
    read_head(response);
    if (response.status == 100) return answer(head_only);
    if (head_only || response.status == 304) {
      response.complete = true;
    } else if (response.headers.contains("content-length")) {
      const size_t length = std::stoul(response.headers["content-length"]);
      while (in_.size() < length && more()) {
      }
      response.complete = in_.size() >= length;
      response.body = in_.substr(0, length);
      in_.erase(0, std::min(length, in_.size()));
    } else if (response.headers.contains("transfer-encoding")) {
      read_chunks(response);
    } else {
      while (more()) {
      }
      response.body = std::move(in_);
      response.complete = true;
    }
    return response;
  }

 private:
  bool more() {
    pollfd waiting = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kPatience) <= 0) return false;
    char buffer[16384];
    const ssize_t got = ::recv(socket_, buffer, sizeof(buffer), 0);
    if (got <= 0) return false;
    in_.append(buffer, static_cast<size_t>(got));
    return true;
  }
  void read_head(Response& response) {
    const size_t end = in_.find("\r\n\r\n");
    const std::string head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    response.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t line_end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      response.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
  }
  void read_chunks(Response& response) {
    for (;;) {
      if (!read_until("\r\n")) return;
      const size_t length = std::stoul(in_.substr(0, in_.find("\r\n")), nullptr, 16);
      in_.erase(0, in_.find("\r\n") + 2);
      while (in_.size() < length + 2)
        if (!more()) return;
      response.body += in_.substr(0, length);
      in_.erase(0, length + 2);
      if (length == 0) {
        response.complete = true;
        return;
      }
    }
  }
  int socket_;
  std::string in_;
};

inline std::shared_ptr<LoadedModel> shipped_model() {
  LoadChoice choice{.path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/stories-14m-q8_0.gguf"};
  choice.cpu.threads = 2;
  return LoadedModel::load(choice).value();
}

// What a backend gives an engine stays taken, so every rig has a model of its own; this one is small.
inline ServedModel served_model(int max_sequences = 8, int max_waiting = 64, const std::string& policy = "fcfs") {
  ServedModel served{.name = "stories", .fingerprint = "fp_test", .loaded = shipped_model(), .created = 1700000000};
  EngineOptions options;
  options.executor.context = 512;
  options.limits.max_sequences = max_sequences;
  options.limits.step_tokens = 64;
  options.limits.max_waiting = max_waiting;
  options.policy = policy;
  served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
  return served;
}

// The same with guesses from the text and from a prediction.
inline ServedModel guessing_model() {
  ServedModel served{.name = "stories", .fingerprint = "fp_test", .loaded = shipped_model(), .created = 1};
  EngineOptions options;
  options.executor.context = 512;
  options.limits.max_sequences = 4;
  options.limits.step_tokens = 64;
  options.draft = {.make = {}, .most = 6, .steady = true};
  options.draft.make = [](Executor& target, Backend& backend) {
    return SuffixDrafter::create({.predicted = true}, target, backend);
  };
  served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
  return served;
}

class Rig {
 public:
  explicit Rig(ServerOptions options = {}, std::optional<ServedModel> model = served_model()) {
    options.port = 0;
    if (options.service.hosts.empty()) options.service.hosts = {"localhost", "127.0.0.1"};
    server_ = Server::create(std::move(options)).value();
    if (model) {
      engine_ = model->engine.get();
      server_->service().serve(std::move(*model));
    }
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Rig() {
    server_->stop();
    join();
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  Server& server() { return *server_; }
  int port() const { return server_->port(); }
  EnginePort& engine() { return *engine_; }
  Metrics metrics() const { return engine_->snapshot().metrics; }
  // Nothing runs, nothing waits, and the only pages held are those of the prefix tree.
  bool quiet() const {
    const Metrics m = metrics();
    return m.running == 0 && m.waiting == 0 && m.pages_used == m.pages_cached && server_->service().open() == 0;
  }

  Response fetch(std::string_view method, std::string_view path, std::string_view body = "",
                 std::string_view headers = "") {
    Client client(port());
    client.ask(method, path, body, headers);
    return client.answer(method == "HEAD");
  }
  Response post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return fetch("POST", path, body, headers);
  }
  Response get(std::string_view path, std::string_view headers = "") { return fetch("GET", path, "", headers); }

 private:
  std::unique_ptr<Server> server_;
  EnginePort* engine_ = nullptr;
  std::thread thread_;
};

// A path into JSON: at(json, "choices", 0, "text").
inline const Json& at(const Json& json) { return json; }
template <class... Rest>
const Json& at(const Json& json, int index, Rest... rest);
template <class... Rest>
const Json& at(const Json& json, std::string_view key, Rest... rest) {
  static const Json none;
  const Json* found = find(json, key);
  EXPECT_NE(found, nullptr) << "no '" << key << "' in " << to_text(json).substr(0, 400);
  return found == nullptr ? none : at(*found, rest...);
}
template <class... Rest>
const Json& at(const Json& json, int index, Rest... rest) {
  static const Json none;
  const auto* list = json.if_array();
  const bool there = list != nullptr && static_cast<size_t>(index) < list->size();
  EXPECT_TRUE(there) << "no [" << index << "] in " << to_text(json).substr(0, 400);
  return there ? at((*list)[static_cast<size_t>(index)], rest...) : none;
}
inline std::string text_of(const Json& json) {
  return json.is_string() ? std::string(json.get_string()) : to_text(json);
}

}  // namespace millrace::testing
