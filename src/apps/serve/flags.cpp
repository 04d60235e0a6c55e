#include "apps/serve/flags.h"
#include "apps/run/adapters.h"
#include "apps/run/diffusion.h"

#include <algorithm>
#include <chrono>

#include "apps/build_info.h"
#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "apps/serve/cache_keeper.h"
#include "apps/serve/limit.h"
#include "base/file.h"
#include "engine/executor.h"
#include "process/remote_engine.h"
#include "server/page.h"
#include "session/fingerprint.h"

namespace millrace::apps {
namespace {

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
      {.name = "stored-responses",
       .kind = Kind::bytes,
       .value = "BYTES",
       .otherwise = "64M",
       .help = "memory for answers that later requests go on from by their ids; 0: none are kept"},
      integer_flag("max-choices", "", "32", 1, 128, "answers to one request, over all its prompts"),
      seconds("read-timeout", "60", "for a request's body; its header has ten"),
      seconds("write-timeout", "30", "a client that reads nothing for so long is cut off"),
      seconds("idle-timeout", "75", "between requests of a connection"),
      seconds("ping", "15", "of silence, then an open stream gets a comment line"),
      seconds("grace", "30", "for open answers after the first SIGTERM"),
      {.name = "log-requests", .otherwise = "true", .help = "a line for each request, without what it says"},
      {.name = "in-process",
       .help = "the engine in this process: a crash of one request ends all (without it, open answers go on)"},
      path_flag("lora-dir", "DIR", "adapters in it may be loaded while the server runs, by who has an operator's key"),
      path_flag("script", "FILE.jsonl",
                "say what it has for a prompt instead of computing: to try clients with (docs/interfaces.md)"),
      path_flag("weights-dir", "DIR", "weights in it may take the place of those served, by who has an operator's key"),
      text_flag("log-format", "FORMAT", "text", "text|json", "how --log-requests writes a line"),
      {.name = "page", .alias = "--webui", .otherwise = "true", .help = "the page at /, for browsers"},
  };
}

std::vector<Flag> engine_flags() {
  std::vector<Flag> flags = {
      text_flag("alias", "NAME", "", "", "what clients call the model; without it, the name of its file"),
      {.name = "chat-template",
       .alias = "--chat-template-file",
       .kind = Kind::path,
       .value = "F.jinja",
       .help = "a chat template to use instead of the model's own"},
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
      {.name = "grammar-cache",
       .kind = Kind::bytes,
       .value = "BYTES",
       .otherwise = "512M",
       .help = "memory for compiled grammars, in the server and in the engine each"},
  };
  return joined({flags, adapter_flags()});
}

std::vector<Flag> serving_flags() {
  return joined(
      {{model_flag()},
       hub_flags(),
       listening_flags(),
       shared_flags(),
       more_models_flags(),
       engine_flags(),
       cache_file_flags(),
       default_flags(),
       diffusion_flags(),
       speculate_flags(),
       {ranks_flag(), pipeline_flag(), whole_experts_flag(), transport_flag()},
       {path_flag("hostfile", "FILE", "machines of the ranks that mpirun starts, this one first (--transport mpi)"),
        text_flag("mpirun-options", "WORDS", "", "", "more of mpirun's own flags, for all that it starts")},
       machine_flags()});
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
  TRY(service.secret, shared_secret(arguments));
  service.open_metrics = arguments.toggle("open-metrics");
  service.stored = std::make_shared<StoredAnswers>(arguments.integer("stored-responses"));
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
  service.adapter_folder = arguments.text("lora-dir");
  if (arguments.given("cache-file") && !service.secret) {
    TRY(service.secret, cache_secret(arguments.text("cache-file")));
  }
  service.version = std::string(kBuildInfo.version) + "+" + std::string(kBuildInfo.commit);
  service.weights_folder = arguments.text("weights-dir");
  if (!service.weights_folder.empty() && arguments.toggle("in-process"))
    return error(Code::invalid, "--weights-dir needs an engine in a process of its own: leave out --in-process");
  service.json_log = arguments.text("log-format") == "json";
  if (arguments.toggle("page")) service.files = page_files();
  if (arguments.toggle("log-requests"))
    service.log = [terminal = &arguments.terminal()](std::string_view line) { terminal->note("{}", line); };
  return options;
}

}  // namespace millrace::apps
