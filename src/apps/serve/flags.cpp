#include "apps/serve/flags.h"

#include <algorithm>
#include <chrono>

#include "apps/build_info.h"
#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/serve/limit.h"
#include "base/file.h"
#include "engine/executor.h"
#include "server/page.h"
#include "session/fingerprint.h"

namespace millrace::apps {
namespace {

constexpr int32_t kUsualContext = 4096;

Flag seconds(std::string_view name, std::string_view otherwise, std::string_view help) {
  Flag flag = number_flag(name, "", otherwise, 0.1, 86400, help);
  flag.value = "SECONDS";
  return flag;
}

Result<Keys> keys_of(const Arguments& arguments) {
  Keys keys;
  if (auto key = arguments.maybe_text("api-key")) TRY_VOID(keys.add("default", *key));
  if (auto path = arguments.maybe_text("api-key-file")) {
    TRY(std::string lines, read_file(*path, 1 << 20));
    if (auto added = keys.add_lines(lines); !added.ok()) return within(*path, added.error());
    if (keys.empty()) return error(Code::invalid, "{}: there is no key in it", *path);
  }
  return keys;
}

// Pages for every sequence to grow to the context, or as many as half of the memory that is left gives.
Result<int32_t> pages_of(const Arguments& arguments, const LoadedModel& model, const ExecutorOptions& wanted,
                         int64_t memory) {
  TRY(Executor::Plan plan, Executor::plan(model.model(), model.backend(), wanted));
  const int64_t each = std::max<int64_t>(1, plan.kv_bytes / std::max(1, plan.options.pages));
  int64_t used = 0;
  for (int purpose = 0; purpose < kPurposes; ++purpose) used += model.backend().used(static_cast<Purpose>(purpose));
  int64_t room = arguments.integer("kv-size");
  if (room == 0) room = (memory - used - plan.workspace_bytes - plan.staging_bytes) / 2;
  const int64_t pages = std::min<int64_t>(plan.options.pages, room / each);
  if (pages < 1)
    return error(Code::no_memory, "{} of memory hold no page of the cache, which needs {}; see --kv-size",
                 human_bytes(static_cast<uint64_t>(std::max<int64_t>(room, 0))),
                 human_bytes(static_cast<uint64_t>(each)));
  return static_cast<int32_t>(pages);
}

// The most tokens of a sequence that these pages hold, up to `most`; more tokens never need fewer pages.
int32_t longest_context(const CacheLayout& layout, int32_t pages, int step_tokens, int32_t most) {
  int32_t fits = 0;
  for (int32_t over = most + 1; over - fits > 1;) {
    const int32_t middle = fits + (over - fits) / 2;
    (layout.peak_pages_for(middle, step_tokens) <= pages ? fits : over) = middle;
  }
  return fits;
}

// A context of which the cache holds at least one sequence, whole: what is promised can be had.
Result<void> fit_context(const Arguments& arguments, const LoadedModel& model, EngineOptions& options) {
  const int32_t wanted = options.executor.context;
  TRY(const Executor::Plan plan, Executor::plan(model.model(), model.backend(), options.executor));
  const int32_t fits = longest_context(plan.layout, options.executor.pages, options.limits.step_tokens, wanted);
  if (fits >= wanted) return {};
  if (fits < 1 || arguments.integer("ctx-size") > 0)
    return error(Code::no_memory,
                 "a sequence of {} tokens needs more than the {} pages of cache there are, which hold {}: give "
                 "--kv-size more, or -c {} or less",
                 wanted, options.executor.pages, fits, std::max(fits, 1));
  arguments.terminal().warn(
      "the context is {} tokens instead of {}: the cache ({} pages) has no room for more; see "
      "--kv-size",
      fits, wanted, options.executor.pages);
  options.executor.context = fits;
  return {};
}

}  // namespace

std::vector<Flag> listening_flags() {
  return {
      text_flag("host", "ADDRESS", "127.0.0.1", "",
                "address to listen on; others than this machine need a key; 'none': only --unix-socket"),
      integer_flag("port", "", "8080", 0, 65535, "port to listen on; 0: any free one"),
      path_flag("unix-socket", "PATH", "listen on this unix socket too"),
      path_flag("ssl-cert-file", "FILE", "certificate chain for TLS, in PEM"),
      path_flag("ssl-key-file", "FILE", "its private key, in PEM"),
      text_flag("api-key", "KEY", "", "", "a key clients must show; better in MILLRACE_API_KEY or --api-key-file"),
      path_flag("api-key-file", "FILE", "keys, one tenant a line: NAME KEY [rpm=N] [tpm=N] [concurrent=N] [operator]"),
      {.name = "open-metrics", .help = "/metrics, that of all tenants, without a key, for scrapers that send none"},
      by_commas(text_flag("allowed-host", "NAME", "", "", "further names this server may be called by")),
      integer_flag("max-connections", "", "8192", 1, 1 << 20, "connections at once"),
      {.name = "max-body", .kind = Kind::bytes, .value = "BYTES", .otherwise = "16M", .help = "largest request body"},
      integer_flag("max-choices", "", "32", 1, 128, "answers to one request, over all its prompts"),
      seconds("read-timeout", "60", "for a request's body; its header has ten"),
      seconds("write-timeout", "30", "a client that reads nothing for so long is cut off"),
      seconds("idle-timeout", "75", "between requests of a connection"),
      seconds("ping", "15", "of silence, then an open stream gets a comment line"),
      seconds("grace", "30", "for open answers after the first SIGTERM"),
      {.name = "log-requests", .otherwise = "true", .help = "a line for each request, without what it says"},
      {.name = "page", .alias = "--webui", .otherwise = "true", .help = "the page at /, for browsers"},
  };
}

std::vector<Flag> engine_flags() {
  return {
      text_flag("alias", "NAME", "", "", "what clients call the model; without it, the name of its file"),
      integer_flag("ctx-size", "-c --ctx --max-model-len", "0", 0, 1 << 30,
                   "tokens of prompt and answer together; 0: the model's, at most 4096"),
      integer_flag("parallel", "-np --max-num-seqs", "16", 1, 4096, "sequences computed together"),
      integer_flag("batch-size", "-b --max-num-batched-tokens", "0", 0, 65536,
                   "tokens of a step; 0: 256, on a GPU 2048"),
      integer_flag("max-waiting", "", "1024", 1, 1 << 20,
                   "answers that wait while all places (-np) are taken; more are refused with 429"),
      text_flag("policy", "NAME", "fcfs", "fcfs|priority|slo", "who goes first"),
      {.name = "kv-size",
       .kind = Kind::bytes,
       .value = "BYTES",
       .otherwise = "0",
       .help = "memory for the cache; 0: enough for all, at most half of what is left"},
      {.name = "swap", .kind = Kind::bytes, .value = "BYTES", .otherwise = "0", .help = "memory for pages moved out"},
  };
}

Result<ServerOptions> server_options(const Arguments& arguments) {
  ServerOptions options;
  options.host = arguments.text("host");
  if (options.host == "none") options.host.clear();
  options.port = static_cast<int>(arguments.integer("port"));
  options.unix_socket = arguments.text("unix-socket");
  options.certificate = arguments.text("ssl-cert-file");
  options.private_key = arguments.text("ssl-key-file");
  options.connections = static_cast<int>(arguments.integer("max-connections"));
  options.body_seconds = arguments.number("read-timeout");
  options.write_seconds = arguments.number("write-timeout");
  options.idle_seconds = arguments.number("idle-timeout");
  options.ping_seconds = arguments.number("ping");
  options.grace_seconds = arguments.number("grace");
  ServiceOptions& service = options.service;
  TRY(service.keys, keys_of(arguments));
  service.open_metrics = arguments.toggle("open-metrics");
  options.warn = [terminal = &arguments.terminal()](std::string_view line) { terminal->warn("{}", line); };
  const bool loopback = options.host.empty() || Server::is_loopback(options.host);
  if (!loopback && service.keys.empty())
    return error(
        Code::invalid,
        "{} can be reached by others, so there must be a key: set MILLRACE_API_KEY or --api-key-file, or listen "
        "on 127.0.0.1",
        options.host);
  service.hosts = arguments.texts("allowed-host");
  // Whoever has a key cannot be a page that somebody else put into a browser, so any name will do then.
  if (!service.hosts.empty() || service.keys.empty()) {
    for (std::string_view name : {"localhost", "127.0.0.1", "[::1]"}) service.hosts.emplace_back(name);
    service.hosts.push_back(options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]");
  }
  service.body.bytes = static_cast<size_t>(std::max<int64_t>(arguments.integer("max-body"), 1024));
  service.body.choices = static_cast<int>(arguments.integer("max-choices"));
  service.version = std::string(kBuildInfo.version) + "+" + std::string(kBuildInfo.commit);
  if (arguments.toggle("page")) service.files = page_files();
  if (arguments.toggle("log-requests"))
    service.log = [terminal = &arguments.terminal()](std::string_view line) { terminal->note("{}", line); };
  return options;
}

// A model that gives vectors or scores, and has the machine to itself.
Result<ServedModel> served_embedder(const Arguments& arguments, const std::filesystem::path& path,
                                    std::shared_ptr<LoadedModel> loaded) {
  EncoderOptions options;
  options.context = static_cast<int32_t>(arguments.integer("ctx-size"));
  options.kv = kv_type(arguments, *loaded);
  options.sequences = static_cast<int32_t>(arguments.integer("parallel"));
  const int32_t longest =
      options.context > 0 ? options.context : std::min(loaded->context(), EncoderOptions::kMostContext);
  options.rows = std::max(longest, step_rows(arguments, "batch-size", EncoderOptions::kUsualRows));
  ServedModel served;
  TRY(auto embedder, Embedder::create(*loaded, options));
  served.embeds =
      std::make_unique<EmbedQueue>(std::move(embedder), static_cast<size_t>(arguments.integer("max-waiting")) * 16);
  served.name = arguments.maybe_text("alias").value_or(valid_utf8(path.stem().string()));
  const Fingerprint fingerprint = fingerprint_of(loaded->model(), loaded->backend(), options.kv);
  served.fingerprint = fingerprint.text();
  served.identity = fingerprint.identity;
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  served.loaded = std::move(loaded);
  return served;
}

Result<ServedModel> served_model(const Arguments& arguments, const std::function<bool()>& go_on) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = arguments.integer("ctx-size")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.memory_limit = memory_limit(arguments);
  choice.fingerprint = true;
  choice.progress = [&](int64_t, int64_t) { return go_on(); };
  TRY(auto loaded, LoadedModel::load(choice));
  if (auto note = packed_note(loaded->checkpoint(), loaded->model().weight_bytes()))
    arguments.terminal().note("{}", *note);

  if (const ModelSpec& spec = loaded->model().spec(); !spec.head || spec.pool)
    return served_embedder(arguments, path, std::move(loaded));
  EngineOptions options;
  const auto asked = static_cast<int32_t>(arguments.integer("ctx-size"));
  options.executor.context = asked > 0 ? asked : std::min(loaded->context(), kUsualContext);
  options.executor.kv = kv_type(arguments, *loaded);
  options.limits.max_sequences = static_cast<int>(arguments.integer("parallel"));
  options.limits.step_tokens = std::max(step_rows(arguments, "batch-size", 256), options.limits.max_sequences);
  options.limits.max_waiting = static_cast<int>(arguments.integer("max-waiting"));
  options.limits.max_choices = 128;
  options.executor.rows = options.limits.step_tokens;
  options.executor.sequences = options.limits.max_sequences;
  TRY(options.executor.pages, pages_of(arguments, *loaded, options.executor, choice.memory_limit));
  TRY_VOID(fit_context(arguments, *loaded, options));
  options.policy = arguments.text("policy");
  options.swap_bytes = arguments.integer("swap");
  ServedModel served;
  TRY(served.engine, Engine::create(loaded->model(), loaded->backend(), options));
  served.name = arguments.maybe_text("alias").value_or(valid_utf8(path.stem().string()));
  const Fingerprint fingerprint = fingerprint_of(loaded->model(), loaded->backend(), options.executor.kv);
  served.fingerprint = fingerprint.text();
  served.identity = fingerprint.identity;
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (choice.device == "cpu") served.floor = step_floor(loaded->model(), options.executor.kv, choice.cpu.threads);
  served.defaults = defaults_of(arguments, *loaded);
  TRY_VOID(check_sampling(served.defaults.sampling, loaded->vocab()));
  served.loaded = std::move(loaded);
  return served;
}

}  // namespace millrace::apps
