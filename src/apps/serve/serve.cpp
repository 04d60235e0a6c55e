#include <signal.h>

#include <atomic>
#include <thread>

#include "apps/build_info.h"
#include "apps/cli/host.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "apps/serve/cache_keeper.h"
#include "apps/serve/flags.h"
#include "base/human.h"
#include "server/server.h"

namespace millrace::apps {
namespace {

// SIGTERM and SIGINT while the server runs: the first drains, the second stops, the third ends the process. A thread
// of its own waits for them; every other thread has them blocked, so make it before there are any.
class Signals {
 public:
  Signals() {
    sigset_t set = signals();
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    ::signal(SIGPIPE, SIG_IGN);  // whoever stops reading our log does not end the server
  }
  ~Signals() {
    stop();
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void start(Server& server, const Terminal& terminal) {
    thread_ = std::thread([this, &server, &terminal] { wait(server, terminal); });
  }
  // Before the server goes.
  void stop() {
    done_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  bool raised() const { return count_.load() > 0; }

 private:
  static sigset_t signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
  }
  void wait(Server& server, const Terminal& terminal) {
    const sigset_t set = signals();
    const timespec moment = {.tv_sec = 0, .tv_nsec = 200'000'000};
    while (!done_.load()) {
      const int signal = ::sigtimedwait(&set, nullptr, &moment);
      if (signal <= 0) continue;
      const int count = count_.fetch_add(1) + 1;
      if (count == 1) {
        terminal.note("draining: {} open; once more to stop now",
                      counted(static_cast<int64_t>(server.service().open()), "request"));
        server.drain();
      } else if (count == 2) {
        server.stop();
      } else {
        ::_exit(128 + signal);
      }
    }
  }

  sigset_t before_ = {};
  std::atomic<bool> done_ = false;
  std::atomic<int> count_ = 0;
  std::thread thread_;
};

bool in_process(const ServedModel& served) { return served.engine->snapshot().process == 0; }

// Loads while the server already answers that it loads.
Result<void> load_and_serve(const Arguments& arguments, Server& server, const Signals& signals) {
  TRY(ServedModel served, served_model(
                              arguments, [&] { return !signals.raised(); }, !arguments.toggle("in-process")));
  const Terminal& terminal = arguments.terminal();
  if (served.engine == nullptr) {
    const Embedder& embedder = served.embeds->embedder();
    terminal.note("ready   {}: vectors and scores ({}), texts of {} tokens, {} of them a step", served.name,
                  scoring_name(embedder.scoring()), served.context(), embedder.encoder().options().sequences);
    server.service().serve(std::move(served));
    return {};
  }
  const EngineFacts& facts = served.engine->facts();
  terminal.note("ready   {}: {} tokens of context, {}, {} of cache{}", served.name, facts.limits.context,
                counted(facts.limits.max_sequences, "sequence"), counted(facts.pages, "page"),
                in_process(served) ? "" : fmt::format("; engine process {}", served.engine->snapshot().process));
  for (const AdapterInfo& info : served.engine->adapters())
    terminal.note("adapter {}: rank {}, {}", printable(info.name), info.rank,
                  human_bytes(static_cast<uint64_t>(info.bytes)));
  TRY_VOID(tell_routers(arguments, server.url(), served));
  terminal.note("sampling {}", sampling_text(served.defaults));
  if (served.loaded->chat_error().empty() == false)
    terminal.note("no chat with this model: {}", printable(served.loaded->chat_error()));
  server.service().serve(std::move(served));
  return {};
}

Result<int> run_serve(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(ServerOptions options, server_options(arguments));
  TRY_VOID(model_path(arguments));  // said, and fetched where it must be, before anything listens
  Signals signals;
  if (!arguments.toggle("in-process")) {
    options.service.load = [&](const std::string& path, const ServedModel& old) {
      return reloaded_model(arguments, path, old, [&] { return !signals.raised(); });
    };
    options.service.fits_beside = [&](const ServedModel& old) { return fits_beside(arguments, old); };
  }
  TRY(auto several, shelf_options(arguments, [&] { return !signals.raised(); }));
  std::optional<Shelf> shelf;
  if (several) {
    options.service.wide = std::make_shared<ServerWide>();
    several->service = [of_each = options.service] {
      ServiceOptions of_one = of_each;
      of_one.load = {};  // weights are changed where there is one model
      of_one.weights_folder.clear();
      return of_one;
    };
    shelf.emplace(std::move(*several));
    options.service.shelf = &*shelf;
  }
  TRY(auto server, Server::create(std::move(options)));
  if (shelf) shelf->set_first(server->service());
  signals.start(*server, terminal);
  terminal.note("serving {}", server->url());
  CacheKeeper keeper(arguments, server->service());
  Result<void> loaded;
  std::thread loader([&] {
    loaded = load_and_serve(arguments, *server, signals);
    if (loaded.ok() && shelf) shelf->first_loaded();
    if (!loaded.ok()) server->stop();
  });
  server->run();
  loader.join();
  keeper.finish();
  signals.stop();
  if (!loaded.ok() && !signals.raised()) return loaded.error();
  terminal.note("stopped");
  return kExitOk;
}

}  // namespace

Verb serve_verb() {
  return {.name = "serve",
          .summary = "answer over HTTP, for OpenAI's clients, curl and browsers",
          .group = "Use a model",
          .operands = {model_operand()},
          .flags = serving_flags(),
          .examples = {{"serve", "the shipped model at http://127.0.0.1:8080"},
                       {"serve owner/name:Q4_K_M", "one that was pulled"},
                       {"serve -m model.gguf --port 9000 -c 8192 -np 32", "another, for 32 at once"},
                       {"serve --host 0.0.0.0 --api-key-file keys.txt --ssl-cert-file cert.pem --ssl-key-file key.pem",
                        "for others, who need a key"}},
          .notes =
              "It listens on this machine only, unless told otherwise; for others to reach it there must be a key. "
              "The first SIGTERM or Ctrl-C lets open answers end, a second one stops. See docs/api.md and "
              "docs/operations.md.",
          .run = run_serve};
}

}  // namespace millrace::apps
