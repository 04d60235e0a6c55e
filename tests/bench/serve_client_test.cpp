#include "bench/serve_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bench/serve_answer.h"

namespace millrace {
namespace {

// A server that answers every request on every connection with what `reply` makes of its body, one thread a connection.
// An empty reply closes the connection.
class FakeServer {
 public:
  using Reply = std::function<std::string(const std::string& body)>;
  explicit FakeServer(Reply reply, bool ends_silently = false)
      : reply_(std::move(reply)), ends_silently_(ends_silently) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() {
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }
  ServeTarget target() const { return *parse_target(fmt::format("http://127.0.0.1:{}/api/", port_)); }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    for (;;) {
      int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      ++connections_;
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    std::string in;
    for (;;) {
      size_t head = in.find("\r\n\r\n");
      size_t wanted = std::string::npos;
      if (head != std::string::npos) {
        size_t length = in.find("Content-Length: ");
        wanted = head + 4 + (length < head ? static_cast<size_t>(std::atoi(in.c_str() + length + 16)) : 0);
      }
      if (in.size() >= wanted) {
        std::string out = reply_(in.substr(head + 4, wanted - head - 4));
        in.erase(0, wanted);
        if (out.empty()) break;
        if (::send(fd, out.data(), out.size(), MSG_NOSIGNAL) < 0) break;
        if (ends_silently_) ::shutdown(fd, SHUT_RDWR);  // what comes after is neither read nor refused
        continue;
      }
      char buffer[4096];
      ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      in.append(buffer, static_cast<size_t>(count));
    }
    ::close(fd);
  }

  Reply reply_;
  bool ends_silently_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

std::string streamed(const std::string& text) {
  std::string body;
  for (char c : text) {
    body += fmt::format("data: {{\"choices\":[{{\"text\":\"{}\",\"finish_reason\":null}}]}}\n\n", c);
  }
  body += fmt::format("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":4,\"completion_tokens\":{}}}}}\n\n",
                      text.size());
  body += "data: [DONE]\n\n";
  return fmt::format("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
}

std::vector<ServeRequest> bodies(size_t count) {
  std::vector<ServeRequest> all;
  for (size_t i = 0; i < count; ++i) all.push_back({0, fmt::format("n{}", i)});
  return all;
}

TEST(ServeClient, EveryRequestGetsItsOwnAnswer) {
  FakeServer server([](const std::string& body) { return streamed(body); });
  auto outcome = run_load(server.target(), bodies(40), {.max_concurrency = 4, .keep_text = true});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_EQ(outcome->records.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    const ServeRecord& record = outcome->records[i];
    EXPECT_TRUE(record.ok) << record.error;
    EXPECT_EQ(record.text, fmt::format("n{}", i));
    EXPECT_EQ(record.output_tokens, static_cast<int64_t>(record.text.size()));
    EXPECT_EQ(record.prompt_tokens, 4);
    EXPECT_EQ(record.next_tokens.size(), record.text.size() - 1);
    EXPECT_GE(record.latency, record.first_token);
    EXPECT_LE(record.start + record.latency, outcome->seconds);
  }
  EXPECT_LE(server.connections(), 4);  // kept and used again
}

TEST(ServeClient, RefusalsAndBrokenAnswersAreRecorded) {
  FakeServer server([](const std::string& body) -> std::string {
    if (body == "n0") return "HTTP/1.1 429 Busy\r\nContent-Length: 28\r\n\r\n{\"error\":{\"message\":\"full\"}}";
    if (body == "n1") return "";
    if (body == "n2") return "nonsense\r\n\r\n";
    return streamed("ok");
  });
  auto outcome = run_load(server.target(), bodies(4), {});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->records[0].error, "429: full");
  EXPECT_FALSE(outcome->records[1].ok);
  EXPECT_FALSE(outcome->records[2].ok);
  EXPECT_TRUE(outcome->records[3].ok) << outcome->records[3].error;
  EXPECT_TRUE(outcome->records[3].text.empty());  // not asked for
}

TEST(ServeClient, AClosedConnectionIsReplaced) {
  FakeServer server([](const std::string& body) {
    std::string text = streamed(body);
    return text.replace(text.find("OK\r\n"), 4, "OK\r\nConnection: close\r\n");
  });
  auto outcome = run_load(server.target(), bodies(6), {.max_concurrency = 1, .keep_text = true});
  ASSERT_TRUE(outcome.ok());
  for (const ServeRecord& record : outcome->records) EXPECT_TRUE(record.ok) << record.error;
  EXPECT_EQ(server.connections(), 6);
}

TEST(ServeClient, AConnectionThatEndedWithoutAWordIsReplaced) {
  FakeServer server([](const std::string& body) { return streamed(body); }, true);
  auto outcome = run_load(server.target(), bodies(20), {.max_concurrency = 2, .timeout = 60, .keep_text = true});
  ASSERT_TRUE(outcome.ok());
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(outcome->records[i].ok) << outcome->records[i].error;
    EXPECT_EQ(outcome->records[i].text, fmt::format("n{}", i));
  }
}

TEST(ServeClient, NobodyThereIsAnErrorOfEachRequest) {
  // A port that is taken, so that nobody else gets it, and that nobody listens on.
  int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size);
  ServeTarget target = *parse_target(fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port)));
  auto outcome = run_load(target, bodies(2), {});
  ASSERT_TRUE(outcome.ok());
  for (const ServeRecord& record : outcome->records) EXPECT_NE(record.error.find("cannot connect"), std::string::npos);
  EXPECT_FALSE(get_text(target, "/v1/models").ok());
  ::close(taken);
}

TEST(ServeClient, CanBeStopped) {
  FakeServer server([](const std::string& body) { return streamed(body); });
  auto outcome =
      run_load(server.target(), bodies(100), {.max_concurrency = 1, .progress = [](size_t) { return false; }});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, Code::cancelled);
}

TEST(ServeClient, GetsPlainTexts) {
  FakeServer server([](const std::string&) { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"; });
  auto text = get_text(server.target(), "/v1/models");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "hi");
}

TEST(ServeTarget, Addresses) {
  auto target = parse_target("http://[::1]:8080/llm/");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->host, "::1");
  EXPECT_EQ(target->port, "8080");
  EXPECT_EQ(target->prefix, "/llm");
  EXPECT_EQ(parse_target("localhost")->port, "80");
  for (const char* wrong : {"", "https://x", "http://", "http://:80", "http://a:b", "http://a:"}) {
    EXPECT_FALSE(parse_target(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace millrace
