// A PageTier in Redis (or whatever speaks its protocol), shared by replicas, over one connection. Whatever goes wrong
// (refused, slow, evicted, changed) is counted and the pages are computed.
#pragma once

#include <memory>
#include <string>

#include "cache/page_tier.h"
#include "tier/sealed_node.h"

namespace millrace {

struct RedisOptions {
  std::string host = "127.0.0.1";
  int port = 6379;
  std::string user, password;
  std::string path;                        // of a unix socket, instead of host and port
  double keep_seconds = 24 * 3600;         // that a page is kept
  size_t most_waiting = size_t{64} << 20;  // bytes that wait to be put; more are dropped
  double breaker_seconds = 5;
  double wait = 0;  // seconds that a look-up may always take, whatever computing would; 0: as long as it pays
};

// "redis://[user:password@]host[:port]", "redis://[:password@]host" or "unix:/path".
Result<RedisOptions> parse_redis_url(std::string_view url);

// Does not connect yet: a store that is down when a server starts is one that is down.
Result<std::unique_ptr<PageTier>> make_redis_tier(RedisOptions options, NodeSeal seal);

}  // namespace millrace
