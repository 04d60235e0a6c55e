#include "tier/redis_tier.h"

#if MILLRACE_REDIS
#include <hiredis/hiredis.h>
#endif

#include <charconv>

#include "tier/queued_tier.h"

namespace millrace {

Result<RedisOptions> parse_redis_url(std::string_view url) {
  RedisOptions options;
  const auto wrong = [&](std::string_view why) {
    return error(Code::invalid, "'{}' names no store of pages ({}): redis://HOST[:PORT] or unix:/PATH", url, why);
  };
  if (url.starts_with("unix:/")) {
    options.path = url.substr(5);
    return options;
  }
  if (!url.starts_with("redis://")) return wrong("it begins with neither redis:// nor unix:/");
  std::string_view rest = url.substr(8);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const size_t colon = who.find(':');
    if (colon == std::string_view::npos) return wrong("before the @ stand a user and a password with a colon between");
    options.user = who.substr(0, colon);
    options.password = who.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos && !rest.ends_with(']')) {
    const std::string_view port = rest.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), options.port);
    if (read.ec != std::errc() || read.ptr != port.data() + port.size() || options.port < 1 || options.port > 65535)
      return wrong("its port is none");
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return wrong("it has no host");
  options.host = rest;
  return options;
}

#if MILLRACE_REDIS
namespace {

constexpr double kConnectSeconds = 0.25;
constexpr double kPutSeconds = 1;
constexpr size_t kKeysAtOnce = 32;

timeval as_timeval(double seconds) {
  const auto micro = static_cast<int64_t>(std::max(seconds, 0.0005) * 1e6);
  return {.tv_sec = static_cast<time_t>(micro / 1'000'000), .tv_usec = static_cast<suseconds_t>(micro % 1'000'000)};
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class RedisTier : public QueuedTier {
 public:
  RedisTier(RedisOptions options, NodeSeal seal)
      : QueuedTier(
            {.most_waiting = options.most_waiting, .breaker_seconds = options.breaker_seconds, .wait = options.wait}),
        options_(std::move(options)),
        seal_(seal) {
    start();
  }
  ~RedisTier() override { stop(); }

 private:
  void close() override {
    if (connection_ != nullptr) redisFree(connection_);
    connection_ = nullptr;
  }
  void lost(int64_t TierCounters::*what) {
    close();
    break_off(what);
  }

  // Connected, and every answer waited for no longer than this.
  bool ready(double seconds) {
    if (connection_ == nullptr) {
      const timeval limit = as_timeval(std::min(seconds, kConnectSeconds));
      connection_ = options_.path.empty() ? redisConnectWithTimeout(options_.host.c_str(), options_.port, limit)
                                          : redisConnectUnixWithTimeout(options_.path.c_str(), limit);
      if (connection_ == nullptr || connection_->err != 0) return false;
      if (redisSetTimeout(connection_, limit) != REDIS_OK || !signed_in()) return false;
    }
    return redisSetTimeout(connection_, as_timeval(seconds)) == REDIS_OK;
  }
  bool signed_in() {
    if (options_.password.empty()) return true;
    const Reply reply(static_cast<redisReply*>(
        options_.user.empty() ? redisCommand(connection_, "AUTH %b", options_.password.data(), options_.password.size())
                              : redisCommand(connection_, "AUTH %b %b", options_.user.data(), options_.user.size(),
                                             options_.password.data(), options_.password.size())));
    return reply != nullptr && reply->type != REDIS_REPLY_ERROR;
  }

  void look_up(std::span<const Identity> chains, Clock::time_point until, std::vector<TierNode>& found,
               size_t& bytes) override {
    if (!ready(seconds_until(until))) return lost(&TierCounters::failed);
    for (size_t at = 0; at < chains.size(); at += kKeysAtOnce) {
      const auto run = chains.subspan(at, std::min(kKeysAtOnce, chains.size() - at));
      const size_t before = found.size();
      if (!get_run(run, until, found, bytes)) break;
      if (found.size() - before < run.size()) break;
    }
  }

  // One round; nodes up to the first that is not there. False: there is no use in going on.
  bool get_run(std::span<const Identity> run, Clock::time_point until, std::vector<TierNode>& found, size_t& bytes) {
    const double left = seconds_until(until);
    if (left <= 0) {
      count(&TierCounters::late);
      return false;
    }
    redisSetTimeout(connection_, as_timeval(left));
    std::vector<std::string> words = {"MGET"};
    for (const Identity& chain : run) words.push_back(node_key(seal_, chain));
    const Reply reply = command(words);
    if (reply == nullptr) {
      lost(seconds_until(until) <= 0.001 ? &TierCounters::late : &TierCounters::failed);
      return false;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != run.size()) {
      lost(&TierCounters::failed);
      return false;
    }
    for (size_t i = 0; i < run.size(); ++i) {
      const redisReply* each = reply->element[i];
      if (each == nullptr || each->type != REDIS_REPLY_STRING) return false;
      bytes += static_cast<size_t>(each->len);
      auto node = open_node(seal_, run[i], {each->str, static_cast<size_t>(each->len)});
      if (!node.ok()) {
        count(&TierCounters::refused);
        return false;
      }
      if (Clock::now() > until) {
        count(&TierCounters::late);
        return false;
      }
      found.push_back(std::move(*node));
    }
    return true;
  }

  Reply command(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    return Reply(static_cast<redisReply*>(
        redisCommandArgv(connection_, static_cast<int>(words.size()), texts.data(), sizes.data())));
  }

  bool store(const TierNode& node) override {
    const std::string keep = fmt::format("{:.0f}", std::max(1.0, options_.keep_seconds * 1000));
    const bool there = ready(kPutSeconds);
    const Reply reply =
        there ? command({"SET", node_key(seal_, node.chain), seal_node(seal_, node), "PX", keep}) : nullptr;
    if (reply == nullptr) {
      lost(&TierCounters::failed);
      return false;
    }
    // A store that is full and may not evict says so; that is no failure of the connection.
    return reply->type != REDIS_REPLY_ERROR;
  }

  const RedisOptions options_;
  const NodeSeal seal_;
  redisContext* connection_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<PageTier>> make_redis_tier(RedisOptions options, NodeSeal seal) {
  return std::unique_ptr<PageTier>(std::make_unique<RedisTier>(std::move(options), seal));
}

#else

Result<std::unique_ptr<PageTier>> make_redis_tier(RedisOptions, NodeSeal) {
  return error(Code::unsupported,
               "this build has no hiredis, so it shares no pages (--page-store): install "
               "libhiredis-dev and build again");
}

#endif

}  // namespace millrace
