// Server: listens and serves until it is told to stop. It owns the I/O thread's loop and every connection; what is
// answered is the Service's business. Made and run on one thread; stop() and drain() may be called from any, also from
// a signal handler's thread.
//
//   create  binds, so that a taken port or a bad certificate is an error before a model is loaded
//   run     accepts and serves until stopped
//   drain   no new work; what is open may end, for as long as the grace period lasts, then run() returns
//   stop    ends what is open and returns from run()
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/service.h"

namespace millrace {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address or a name; empty with a unix socket: no TCP
  int port = 8080;                 // 0: any free one
  std::filesystem::path unix_socket = {};
  std::filesystem::path certificate = {}, private_key = {};  // PEM; both or none
  int connections = 8192;
  double header_seconds = 10, body_seconds = 60, idle_seconds = 75, write_seconds = 30, ping_seconds = 15;
  double grace_seconds = 30;                             // for what is open when the server drains
  std::function<void(std::string_view line)> warn = {};  // what whoever runs it must hear; create() and I/O thread
  ServiceOptions service;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Service& service();
  int port() const;         // that it listens on
  std::string url() const;  // "http://127.0.0.1:8080", "unix:/run/millrace.sock"
  // Whether anybody but this machine can reach it.
  static bool is_loopback(const std::string& host);

  void run();
  void drain();
  void stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
