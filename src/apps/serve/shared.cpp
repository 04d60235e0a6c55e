// What replicas share: a secret, pages in a store, and routers that are told what each has cached.
#include <algorithm>
#include <utility>

#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/serve/flags.h"
#include "base/file.h"
#include "cache/cache_file.h"
#include "server/kv_events.h"
#include "tier/disk_tier.h"
#include "tier/redis_tier.h"

namespace millrace::apps {

std::vector<Flag> shared_flags() {
  return {
      path_flag("secret-file", "FILE",
                "at least 32 random bytes that replicas share: ids of streams and shared pages are sealed with it"),
      text_flag("page-store", "URL", "", "",
                "redis://HOST[:PORT] or unix:/PATH: replicas find what others have computed of a prompt; disk:/PATH: "
                "this server does, also after a restart; needs --secret-file"),
      {.name = "page-store-size",
       .kind = Kind::bytes,
       .value = "BYTES",
       .otherwise = "4G",
       .help = "of the file that disk:/PATH names, at the most"},
      number_flag("page-store-wait", "", "0", 0, 3600,
                  "seconds to wait for shared pages; 0: as long as that is faster than computing them"),
      text_flag("kv-events", "ENDPOINT", "", "",
                "tell routers what is cached, over ZeroMQ as vLLM does: tcp://127.0.0.1:5557. Holds prompts"),
      text_flag("kv-events-replay", "ENDPOINT", "", "", "where they ask for what they missed: tcp://127.0.0.1:5558"),
      text_flag("kv-events-topic", "TEXT", "", "", "of what is told; without it, kv@ADDRESS@MODEL"),
  };
}

// A batch has none of these flags.
static std::optional<std::string> maybe(const Arguments& arguments, std::string_view name) {
  return arguments.knows(name) ? arguments.maybe_text(name) : std::nullopt;
}

bool tells_routers(const Arguments& arguments) { return maybe(arguments, "kv-events").has_value(); }

Result<std::optional<std::array<uint8_t, 32>>> shared_secret(const Arguments& arguments) {
  const auto path = maybe(arguments, "secret-file");
  if (!path) return std::optional<std::array<uint8_t, 32>>();
  TRY(const std::string bytes, read_file(*path, 1 << 16));
  if (bytes.size() < 32)
    return error(Code::invalid, "{}: a secret has at least 32 bytes, and this has {}: head -c 32 /dev/urandom > {}",
                 *path, bytes.size(), *path);
  Digest digest;
  digest.add_sized("shared secret");
  digest.add_sized(bytes);
  return std::optional(digest.finish().bytes);
}

static std::optional<std::string> page_file_path(const Arguments& arguments) {
  const auto url = maybe(arguments, "page-store");
  if (!url || !url->starts_with("disk:")) return {};
  return url->substr(5);
}

// Opened before an engine's process gives up the right to open files for writing, and taken by its tier.
static int& page_file() {
  static int file = -1;
  return file;
}

Result<void> open_page_store(const Arguments& arguments) {
  const auto path = page_file_path(arguments);
  if (!path || page_file() >= 0) return {};
  TRY(page_file(), open_page_file(*path));
  return {};
}

bool needs_network(const Arguments& arguments) {
  return maybe(arguments, "page-store").has_value() && !page_file_path(arguments);
}

int64_t shared_pages_bytes(const Arguments& arguments) {
  return maybe(arguments, "page-store") ? static_cast<int64_t>(RedisOptions().most_waiting) : 0;
}

Result<std::shared_ptr<PageTier>> shared_pages(const Arguments& arguments, const Identity& model,
                                               const CacheLayout& layout) {
  const auto url = maybe(arguments, "page-store");
  if (!url) return std::shared_ptr<PageTier>();
  const bool on_disk = page_file_path(arguments).has_value();
  RedisOptions options;
  if (!on_disk) {
    TRY(options, parse_redis_url(*url));
  }
  options.wait = arguments.number("page-store-wait");
  TRY(const auto secret, shared_secret(arguments));
  if (!secret)
    return error(Code::invalid,
                 "--page-store needs --secret-file: pages of others are believed only if they are "
                 "sealed with a secret that replicas share (head -c 32 /dev/urandom > secret)");
  if (ranks_of(arguments) > 1)
    return error(Code::unsupported,
                 "--page-store with --ranks {}: a rank has part of each page; share pages between replicas of one rank",
                 ranks_of(arguments));
  int slots = 0;
  for (const CacheGroup& group : layout.groups) slots += group.recurrent() ? 1 : layout.node_tokens / group.page_tokens;
  const NodeSeal seal = make_seal(cache_identity(model, layout), *secret, slots, layout.page_bytes);
  std::shared_ptr<PageTier> tier;
  if (on_disk) {
    TRY_VOID(open_page_store(arguments));
    const DiskOptions on = {.bytes = arguments.integer("page-store-size"), .wait = options.wait};
    TRY(tier, make_disk_tier(std::exchange(page_file(), -1), on, seal));
  } else {
    TRY(tier, make_redis_tier(std::move(options), seal));
  }
  return tier;
}

Result<void> tell_routers(const Arguments& arguments, const std::string& address, ServedModel& served) {
  const auto endpoint = maybe(arguments, "kv-events");
  if (!endpoint) return {};
  std::string_view where = address;
  if (const size_t slashes = where.find("//"); slashes != std::string_view::npos) where.remove_prefix(slashes + 2);
  KvEventsOptions options{
      .endpoint = *endpoint,
      .replay = arguments.text("kv-events-replay"),
      .topic = arguments.maybe_text("kv-events-topic").value_or(fmt::format("kv@{}@{}", where, served.name)),
      .node_tokens = served.engine->facts().node_tokens};
  TRY(auto made, KvEvents::create(std::move(options)));
  std::shared_ptr<KvEvents> events = std::move(made);
  arguments.terminal().note("events  {}{}", events->endpoint(),
                            events->replay().empty() ? "" : fmt::format(", replay {}", events->replay()));
  served.engine->when_cached([events](std::vector<CacheChange> changes) { events->publish(std::move(changes)); });
  return {};
}

}  // namespace millrace::apps
