#include "server/server.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <map>

#include "server/connection.h"

namespace millrace {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

using SocketAcceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// A socket that is listened on, and the time it waits after it could not take a connection.
struct Acceptor : SocketAcceptor {
  explicit Acceptor(asio::io_context& io) : SocketAcceptor(io), retry(io) {}
  asio::steady_timer retry;
};

constexpr int kTurnedAway = 64;                // at once, beyond all connections: told that the server is full
constexpr int kSpareFiles = 64 + kTurnedAway;  // for the model, logs and the like
constexpr int kSendBytes = 64 << 10;
constexpr size_t kCrowd = 256;  // connections whose memory is worth giving back

// As many connections as the process may have open files, up to the number asked for; fewer are told.
int possible_connections(const ServerOptions& options) {
  const int wanted = options.connections;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const auto needed = static_cast<rlim_t>(wanted + kSpareFiles);
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(limit.rlim_max, needed);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return wanted;
  const int possible = std::max(1, static_cast<int>(limit.rlim_cur) - kSpareFiles);
  if (options.warn)
    options.warn(fmt::format(
        "{} of {} connections can be open at once, since this process may have {} open files: allow {} (ulimit -n {}, "
        "or LimitNOFILE={} in a unit of systemd), or ask for fewer with --max-connections",
        possible, wanted, limit.rlim_cur, needed, needed, needed));
  return possible;
}

Result<std::unique_ptr<asio::ssl::context>> make_tls(const ServerOptions& options) {
  if (options.certificate.empty() && options.private_key.empty()) return std::unique_ptr<asio::ssl::context>();
  if (options.certificate.empty() || options.private_key.empty())
    return error(Code::invalid, "TLS needs both a certificate and its key: --ssl-cert-file and --ssl-key-file");
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code failure;
  SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  // Buffers of idle connections are given back, no renegotiation, and no compression.
  SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(tls->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // TLS 1.2 with keys that are gone after the connection and ciphers that authenticate; 1.3 has no others.
  CHECK(SSL_CTX_set_cipher_list(tls->native_handle(), "ECDHE+AESGCM:ECDHE+CHACHA20") == 1, "no ciphers");
  tls->use_certificate_chain_file(options.certificate.string(), failure);
  if (failure)
    return error(Code::io, "{}: no certificate could be read: {}", options.certificate.string(), failure.message());
  tls->use_private_key_file(options.private_key.string(), asio::ssl::context::pem, failure);
  if (failure || SSL_CTX_check_private_key(tls->native_handle()) != 1)
    return error(Code::io, "{}: no key that belongs to the certificate could be read", options.private_key.string());
  return tls;
}

}  // namespace

struct Server::State {
  explicit State(ServerOptions given)
      : options(std::move(given)), service(std::move(options.service)), grace(io), last(io) {}

  ServerOptions options;
  asio::io_context io{1};
  std::shared_ptr<Doorbell> doorbell =
      std::make_shared<Doorbell>([this](std::function<void()> task) { asio::post(io, std::move(task)); });
  Service service;
  std::unique_ptr<asio::ssl::context> tls;
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  std::map<ConnectionHandle*, std::shared_ptr<ConnectionHandle>> connections;
  asio::steady_timer grace, last;
  std::filesystem::path bound_path;  // of the unix socket, removed at the end
  int most_connections = 0, turned_away = 0;
  int port = 0;
  bool closing = false;
  bool starved = false;                        // the last connection could not be taken
  std::chrono::steady_clock::time_point told;  // when that was last said
  size_t crowd = 0;                            // most connections since memory was last given back

  Result<void> listen_tcp();
  Result<void> listen_unix();
  void accept(Acceptor& acceptor, bool local);
  void note_accept(const error_code& failure);
  void take(StreamSocket socket, bool local);
  void at_end(ConnectionHandle* ended, bool full);
  void count();
  void begin_drain();
  void look_whether_done(std::chrono::steady_clock::time_point deadline);
  void end_all();
};

Result<void> Server::State::listen_tcp() {
  error_code failure;
  asio::ip::tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       asio::ip::tcp::resolver::passive | asio::ip::tcp::resolver::numeric_service, failure);
  if (failure || found.empty())
    return error(Code::invalid, "'{}' is no address to listen on: {}", options.host, failure.message());
  const asio::ip::tcp::endpoint endpoint = *found.begin();
  auto acceptor = std::make_unique<Acceptor>(io);
  acceptor->open(endpoint.protocol(), failure);
  if (!failure) acceptor->set_option(asio::socket_base::reuse_address(true), failure);
  if (!failure) acceptor->bind(endpoint, failure);
  if (!failure) acceptor->listen(1024, failure);
  if (failure)
    return error(Code::io, "cannot listen on {} port {}: {}; choose another with --port", options.host, options.port,
                 failure.message());
  asio::ip::tcp::endpoint bound;
  bound.resize(acceptor->local_endpoint().size());
  std::memcpy(bound.data(), acceptor->local_endpoint().data(), bound.size());
  port = bound.port();
  accept(*acceptor, false);
  acceptors.push_back(std::move(acceptor));
  return {};
}

// A socket left by a server that was killed is replaced; one that somebody listens on is not.
Result<void> Server::State::listen_unix() {
  const std::string path = options.unix_socket.string();
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return error(Code::invalid, "{}: the path of a unix socket has at most {} bytes", path,
                 sizeof(sockaddr_un::sun_path) - 1);
  const asio::local::stream_protocol::endpoint endpoint(path);
  error_code failure;
  struct stat there = {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) return error(Code::io, "{}: there is something that is no socket", path);
    asio::local::stream_protocol::socket probe(io);
    probe.connect(endpoint, failure);
    if (!failure) return error(Code::io, "{}: somebody listens there already", path);
    std::filesystem::remove(options.unix_socket, failure);
  }
  auto acceptor = std::make_unique<Acceptor>(io);
  failure.clear();
  acceptor->open(endpoint.protocol(), failure);
  const mode_t before = ::umask(0077);  // for its owner only
  if (!failure) acceptor->bind(endpoint, failure);
  ::umask(before);
  if (!failure) acceptor->listen(1024, failure);
  if (failure) return error(Code::io, "cannot listen on {}: {}", path, failure.message());
  bound_path = options.unix_socket;
  accept(*acceptor, true);
  acceptors.push_back(std::move(acceptor));
  return {};
}

void Server::State::accept(Acceptor& acceptor, bool local) {
  acceptor.async_accept([this, &acceptor, local](error_code failure, StreamSocket socket) {
    if (!acceptor.is_open()) return;
    note_accept(failure);
    if (!failure) take(std::move(socket), local);
    if (!failure || failure == asio::error::connection_aborted) return accept(acceptor, local);
    // Out of files or memory: wait a moment instead of asking again and again.
    acceptor.retry.expires_after(std::chrono::milliseconds(100));
    acceptor.retry.async_wait([this, &acceptor, local](error_code) {
      if (acceptor.is_open()) accept(acceptor, local);
    });
  });
}

// Once when connections cannot be taken, again every minute while it lasts, and once when they can.
void Server::State::note_accept(const error_code& failure) {
  if (failure == asio::error::connection_aborted) return;
  const auto now = std::chrono::steady_clock::now();
  if (!failure) {
    if (std::exchange(starved, false) && options.warn) options.warn("new connections are taken again");
    return;
  }
  if (starved && now < told + std::chrono::minutes(1)) return;
  starved = true;
  told = now;
  if (!options.warn) return;
  const bool files = failure == asio::error::no_descriptors || failure.value() == ENFILE;
  options.warn(fmt::format("no new connection can be taken: {}; {} are open; {}", failure.message(), connections.size(),
                           files ? "allow more open files (ulimit -n, LimitNOFILE) or fewer connections "
                                   "(--max-connections)"
                                 : "trying again every 100 ms"));
}

void Server::State::take(StreamSocket socket, bool local) {
  const bool full = static_cast<int>(connections.size()) - turned_away >= most_connections;
  if (full && turned_away >= kTurnedAway) return;  // the destructor closes it
  // The kernel's buffer would grow to megabytes for a client that does not read.
  ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_SNDBUF, &kSendBytes, sizeof(kSendBytes));
  if (!local) {
    const int yes = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  ConnectionSetting setting{.service = &service,
                            .doorbell = doorbell,
                            .local = local,
                            .full = full,
                            .closing = &closing,
                            .tls = local ? nullptr : tls.get()};
  setting.limits.body_bytes = options.service.body.bytes;
  setting.limits.header_seconds = options.header_seconds;
  setting.limits.body_seconds = options.body_seconds;
  setting.limits.idle_seconds = options.idle_seconds;
  setting.limits.write_seconds = options.write_seconds;
  setting.limits.ping_seconds = options.ping_seconds;
  auto connection =
      start_connection(std::move(socket), setting, [this, full](ConnectionHandle* ended) { at_end(ended, full); });
  connections.emplace(connection.get(), connection);
  crowd = std::max(crowd, connections.size());
  turned_away += full;
  count();
}

void Server::State::at_end(ConnectionHandle* ended, bool full) {
  connections.erase(ended);
  turned_away -= full;
  count();
  if (connections.empty()) last.cancel();
  if (connections.size() * 2 < crowd && crowd > kCrowd) {
    crowd = connections.size();
    service.tidy();
  }
}

void Server::State::count() {
  service.counters().connections.store(static_cast<int64_t>(connections.size()) - turned_away);
}

void Server::State::begin_drain() {
  if (closing) return;
  closing = true;
  service.drain();
  look_whether_done(std::chrono::steady_clock::now() +
                    std::chrono::milliseconds(static_cast<int64_t>(options.grace_seconds * 1000)));
}

// Until what is open has ended new connections are still told that the server shuts down.
void Server::State::look_whether_done(std::chrono::steady_clock::time_point deadline) {
  if (service.open() == 0 || std::chrono::steady_clock::now() >= deadline) return end_all();
  grace.expires_after(std::chrono::milliseconds(20));
  grace.async_wait([this, deadline](error_code failure) {
    if (!failure) look_whether_done(deadline);
  });
}

// Streams end with an error the client can read; what is not written within five seconds is cut off.
void Server::State::end_all() {
  closing = true;
  for (auto& acceptor : acceptors) {
    error_code ignored;
    acceptor->close(ignored);
    acceptor->retry.cancel();
  }
  service.fail_all("the server is shutting down");
  std::vector<std::shared_ptr<ConnectionHandle>> all;
  for (auto& [key, connection] : connections) all.push_back(connection);
  for (auto& connection : all) connection->close_idle();
  grace.cancel();
  last.expires_after(std::chrono::seconds(connections.empty() ? 0 : 5));
  last.async_wait([this](error_code) {
    std::vector<std::shared_ptr<ConnectionHandle>> left;
    for (auto& [key, connection] : connections) left.push_back(connection);
    for (auto& connection : left) connection->close();
  });
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  std::error_code ignored;
  if (!state_->bound_path.empty()) std::filesystem::remove(state_->bound_path, ignored);
}

bool Server::is_loopback(const std::string& host) {
  error_code failure;
  const auto address = asio::ip::make_address(host, failure);
  return failure ? host == "localhost" : address.is_loopback();
}

Result<std::unique_ptr<Server>> Server::create(ServerOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  const ServerOptions& chosen = state->options;
  state->most_connections = possible_connections(chosen);
  TRY(state->tls, make_tls(chosen));
  if (!chosen.unix_socket.empty()) TRY_VOID(state->listen_unix());
  if (!chosen.host.empty()) TRY_VOID(state->listen_tcp());
  if (state->acceptors.empty())
    return error(Code::invalid, "there is nothing to listen on: give --host or --unix-socket");
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Service& Server::service() { return state_->service; }
int Server::port() const { return state_->port; }

std::string Server::url() const {
  if (state_->options.host.empty()) return "unix:" + state_->options.unix_socket.string();
  const bool six = state_->options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", state_->tls ? "https" : "http", six ? "[" : "", state_->options.host,
                     six ? "]" : "", state_->port);
}

// What is thrown while one connection is served (for want of memory, most likely) ends that connection's turn only.
void Server::run() {
  for (bool more = true; more;) {
    try {
      state_->io.run();
      more = false;
    } catch (const std::exception&) {
    }
  }
}

void Server::drain() {
  asio::post(state_->io, [state = state_.get()] { state->begin_drain(); });
}

void Server::stop() {
  asio::post(state_->io, [state = state_.get()] { state->end_all(); });
}

}  // namespace millrace
