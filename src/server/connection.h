// One client's connection: reads requests, hands them to the service, writes answers; HTTP/1.1 with keep-alive, one
// request at a time. Everything here happens on the I/O thread; answers may be given from any thread.
//
// What a client can make us hold is bounded: its headers, one body, and one buffer of output; a stream is pulled only
// when the buffer is empty. Whoever sends or reads too slowly is cut off.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>

#include <cstddef>
#include <functional>
#include <memory>

#include "server/doorbell.h"
#include "server/service.h"

namespace millrace {

struct ConnectionLimits {
  size_t header_bytes = 32 << 10;
  int headers = 100;
  size_t body_bytes = size_t{16} << 20;
  int64_t all_bodies_bytes = int64_t{256} << 20;  // over all connections, until they are read
  double header_seconds = 10;                     // for a whole header, once its first byte is there
  double body_seconds = 60;                       // for a whole body
  double idle_seconds = 75;                       // between requests
  double write_seconds = 30;                      // without the client taking a byte
  double ping_seconds = 15;                       // of silence, then a stream gets a comment
};

using StreamSocket = boost::asio::generic::stream_protocol::socket;

struct ConnectionSetting {
  Service* service = nullptr;
  std::shared_ptr<Doorbell> doorbell;
  ConnectionLimits limits = {};
  bool local = false;                        // a unix socket
  bool full = false;                         // there are connections enough: it is told so, and no more
  const bool* closing = nullptr;             // the server drains: no further request on this connection
  boost::asio::ssl::context* tls = nullptr;  // null: plain
};

// What the listener keeps of a connection.
class ConnectionHandle : public Sleeper {
 public:
  virtual void close() = 0;       // now
  virtual void close_idle() = 0;  // if it waits for a request
};

// Serves until the client or close() ends it, then calls at_end. I/O thread.
std::shared_ptr<ConnectionHandle> start_connection(StreamSocket socket, const ConnectionSetting& setting,
                                                   std::function<void(ConnectionHandle*)> at_end);

}  // namespace millrace
