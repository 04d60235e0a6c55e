// Bytes as a client may send them, through the connection the server uses, over a socket of this process: heads,
// chunks, requests ahead of their answers, bodies, and whatever is none of these. A small model answers.
//
// What must hold: the connection ends; what is written is a row of whole HTTP answers, their bodies JSON where they say
// so, none of them 500; and the same bytes get the same answers however they are cut into pieces. The first byte of an
// input says how.
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "engine/engine.h"
#include "server/connection.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kServer = "\r\nServer: millrace\r\n";  // once in every head, and nowhere else
constexpr auto kPatience = std::chrono::seconds(60);

// What answers, made once for all inputs.
struct World {
  boost::asio::io_context io{1};
  std::shared_ptr<Doorbell> doorbell =
      std::make_shared<Doorbell>([this](std::function<void()> task) { boost::asio::post(io, std::move(task)); });
  Service service{{.body = {.bytes = 4096, .depth = 8, .choices = 2}, .hosts = {"localhost"}}};
  bool closing = false;

  World() {
    LoadChoice choice{.path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/stories-draft-1m-q8_0.gguf"};
    choice.cpu.threads = 1;
    ServedModel served{.name = "stories", .fingerprint = "fp", .loaded = LoadedModel::load(choice).value()};
    EngineOptions options;
    options.executor.context = 24;  // answers are short
    options.limits.max_sequences = 4;
    options.limits.step_tokens = 32;
    served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
    service.serve(std::move(served));
  }
};

World& world() {
  static auto* one = new World;  // its threads run until the process ends
  return *one;
}

size_t count(std::string_view text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

// A client on the other end of a socket of this process.
class Wire {
 public:
  Wire() {
    int ends[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no socket pair");
    client_ = ends[0];
    server_ = ends[1];
  }
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int server_end() const { return server_; }
  // How many bytes are on their way or will never be, because the server has gone.
  size_t send(std::string_view text) {
    const ssize_t sent = ::send(client_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    return errno == EAGAIN ? 0 : text.size();
  }
  void end() { ::shutdown(client_, SHUT_WR); }
  // True if something came; when the server has closed its side, so does this one.
  bool receive(std::string& out) {
    char buffer[16384];
    const ssize_t got = client_ < 0 ? -1 : ::recv(client_, buffer, sizeof(buffer), 0);
    if (got > 0) out.append(buffer, static_cast<size_t>(got));
    if (got == 0) close();
    return got > 0;
  }
  bool open() const { return client_ >= 0; }

 private:
  void close() {
    if (client_ >= 0) ::close(client_);
    client_ = -1;
  }
  int client_ = -1, server_ = -1;
};

// Everything the server says to these bytes, sent so many at a time and each time only when it waits for more.
std::string answers_to(std::string_view bytes, size_t step) {
  World& all = world();
  Wire wire;
  StreamSocket socket(all.io, boost::asio::generic::stream_protocol(AF_UNIX, 0), wire.server_end());
  ConnectionSetting setting{.service = &all.service, .doorbell = all.doorbell, .closing = &all.closing};
  setting.limits.header_bytes = 2048;
  setting.limits.headers = 20;
  setting.limits.body_bytes = 4096;
  bool over = false, ended = false;
  const int64_t before = all.service.counters().requests.load();
  auto connection = start_connection(std::move(socket), setting, [&](ConnectionHandle*) { over = true; });
  std::string said;
  const auto deadline = Clock::now() + kPatience;
  while (!over) {
    CHECK(Clock::now() < deadline, "the connection does not end; so far it said {}", said);
    all.io.restart();
    const bool busy = all.io.poll() > 0;
    if (wire.receive(said) || busy) continue;
    if (!bytes.empty() && wire.open()) {
      bytes.remove_prefix(wire.send(bytes.substr(0, step)));
      continue;
    }
    // Whoever works on an answer wakes the loop; when nobody does, the server waits for bytes that will not come.
    const auto asked = static_cast<size_t>(all.service.counters().requests.load() - before);
    if (!ended && count(said, kServer) >= asked && all.service.open() == 0) {
      wire.end();
      ended = true;
      continue;
    }
    all.io.restart();
    all.io.run_one_for(std::chrono::milliseconds(1));
  }
  while (wire.receive(said)) {
  }
  return said;
}

// Takes a number of the given base from the front.
size_t take_number(std::string_view& text, int base) {
  size_t used = 0;
  const size_t value = std::stoul(std::string(text.substr(0, 20)), &used, base);
  text.remove_prefix(used);
  return value;
}

std::string take_chunks(std::string_view& text) {
  std::string body;
  for (;;) {
    const size_t length = take_number(text, 16);
    CHECK(text.size() >= length + 4 && text.substr(0, 2) == "\r\n" && text.substr(length + 2, 2) == "\r\n",
          "a chunk is cut off");
    body += text.substr(2, length);
    text.remove_prefix(length + 4);
    if (length == 0) return body;
  }
}

// The statuses of a row of answers, all of which must be whole.
std::vector<int> statuses_of(std::string_view said, std::string_view bytes) {
  std::vector<int> statuses;
  while (!said.empty()) {
    CHECK(said.starts_with("HTTP/1.1 ") && said.find("\r\n\r\n") != said.npos, "no answer begins at {}", said);
    std::string_view head = said.substr(0, said.find("\r\n\r\n") + 4);
    said.remove_prefix(head.size());
    std::string_view number = head.substr(9);
    const int status = static_cast<int>(take_number(number, 10));
    if (status == 100) continue;
    CHECK(status >= 200 && status < 600 && status != 500, "status {}", status);
    CHECK(count(head, kServer) == 1, "a head like no other: {}", head);
    statuses.push_back(status);
    const bool bare = said.empty() || said.starts_with("HTTP/1.1 ");  // as HEAD is answered
    CHECK(!bare || bytes.find("HEAD") != bytes.npos, "an answer without its body: {}", head);
    if (bare) continue;
    std::string body;
    if (const size_t at = head.find("\r\nContent-Length: "); at != head.npos) {
      std::string_view rest = head.substr(at + 18);
      const size_t length = take_number(rest, 10);
      CHECK(said.size() >= length, "{} bytes of {}", said.size(), length);
      body = said.substr(0, length);
      said.remove_prefix(length);
    } else if (head.find("\r\nTransfer-Encoding: chunked\r\n") != head.npos) {
      // A view without an end is cut where the client left.
      if (head.find("text/event-stream") != head.npos && !said.ends_with("\r\n0\r\n\r\n")) return statuses;
      take_chunks(said);
    } else {
      said = {};  // an old client's stream ends with the connection
    }
    const bool json = head.find("\r\nContent-Type: application/json\r\n") != head.npos;
    CHECK(!json || parse_json(body).ok(), "a body that is no JSON: {}", body);
  }
  return statuses;
}

}  // namespace
}  // namespace millrace

// The engine keeps prefixes, so memory never ends where it began, and looking for leaks after each input would take
// nearly all of the time. The tests of the server look for them.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<int> whole = statuses_of(answers_to(bytes, SIZE_MAX), bytes);
  std::vector<int> cut = statuses_of(answers_to(bytes, 1 + data[0] % 64), bytes);
  // Of several things wrong with a head another may be seen first; and half a head that can lead nowhere is refused at
  // once if it comes in one piece, else only when the whole head is there.
  for (std::vector<int>* list : {&whole, &cut}) {
    const bool unread = !list->empty() && (list->back() == 431 || list->back() == 501 || list->back() == 505);
    if (unread) list->back() = 400;
  }
  for (auto [more, less] : {std::pair(&whole, &cut), std::pair(&cut, &whole)}) {
    if (more->size() == less->size() + 1 && more->back() == 400) more->pop_back();
  }
  CHECK(whole == cut, "answers {} at once, but {} in pieces", fmt::join(whole, " "), fmt::join(cut, " "));
  return 0;
}
