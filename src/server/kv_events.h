// KvEvents: tells routers what lies in the prefix cache, over ZeroMQ in vLLM's form, so that those made for it send a
// request where its beginning is cached. A PUB socket sends batches of three frames: a topic, a sequence number (eight
// bytes, the largest first) and a MessagePack array [time, [event, ...], nil]. An event is an array with its name
// first:
//
//   ["BlockStored", [hash, ...], hash before or nil, [token, ...], tokens a hash, nil, "GPU" or "CPU", nil, nil]
//   ["BlockRemoved", [hash, ...], "GPU" or "CPU"]
//   ["AllBlocksCleared"]
//
// A ROUTER socket replays: asked with ["", sequence number] it answers ["", topic, number, batch] for each that it
// still has from there on, then ["", "", -1, ""]. "GPU" is where the cache is, "CPU" the second store (--swap).
//
// The first batch says that everything is cleared, and so does one after an engine was replaced. Token ids are prompts:
// the endpoints are for a network of the routers' own. publish() from any thread; the sockets have a thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/cache_change.h"

namespace millrace {

struct KvEventsOptions {
  std::string endpoint;  // "tcp://127.0.0.1:5557"; a port of * is any free one
  std::string replay;    // empty: nothing is replayed
  std::string topic;
  int node_tokens = 16;
  size_t most_batches = 10'000;          // that are kept for replay,
  size_t most_bytes = size_t{64} << 20;  // and of them
};

class KvEvents {
 public:
  static Result<std::unique_ptr<KvEvents>> create(KvEventsOptions options);
  virtual ~KvEvents() = default;
  KvEvents() = default;
  KvEvents(const KvEvents&) = delete;
  KvEvents& operator=(const KvEvents&) = delete;

  virtual void publish(std::vector<CacheChange> changes) = 0;
  // Where the sockets are, with the ports they got.
  virtual std::string endpoint() const = 0;
  virtual std::string replay() const = 0;
};

// One batch as it is sent; stretches that follow one another are one event.
std::string kv_batch(double time, std::vector<CacheChange> changes, int node_tokens);

}  // namespace millrace
