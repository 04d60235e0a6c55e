// The model that `serve` and `batch` answer with: loaded, planned, and with an engine in this process or another.
#include "apps/run/adapters.h"
#include "apps/run/diffusion.h"
#include "apps/serve/flags.h"

#include <algorithm>
#include <chrono>

#include "apps/build_info.h"
#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "apps/run/transport.h"
#include "apps/serve/limit.h"
#include "apps/serve/scripted_engine.h"
#include "base/file.h"
#include "base/human.h"
#include "engine/executor.h"
#include "process/mpi_engine.h"
#include "process/remote_engine.h"
#include "process/spare.h"
#include "server/page.h"
#include "session/bound.h"
#include "session/fingerprint.h"

namespace millrace::apps {
namespace {

constexpr int32_t kUsualContext = 4096;

struct Loaded {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Drafters> drafters;  // lie on the model's backend, so they go first
};

// Pages for every sequence to grow to the context, or as many as half of the memory that is left gives.
Result<int32_t> pages_of(const Arguments& arguments, const LoadedModel& model, const ExecutorOptions& wanted,
                         int64_t memory) {
  TRY(Executor::Plan plan, Executor::plan(model.model(), model.backend(), wanted));
  const int64_t each = std::max<int64_t>(1, plan.kv_bytes / std::max(1, plan.options.pages));
  int64_t used = 0;
  for (int purpose = 0; purpose < kPurposes; ++purpose) used += model.backend().used(static_cast<Purpose>(purpose));
  int64_t room = arguments.integer("kv-size") / ranks_of(arguments);
  if (room == 0) room = (memory - used - plan.workspace_bytes - plan.staging_bytes - shared_pages_bytes(arguments)) / 2;
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
                 "a sequence of {} needs more than the cache there is, {}, which holds {}: give "
                 "--kv-size more, or -c {} or less",
                 counted(wanted, "token"), counted(options.executor.pages, "page"), fits, std::max(fits, 1));
  arguments.terminal().warn(
      "the context is {} instead of {}: the cache ({}) has no room for more; see "
      "--kv-size",
      counted(fits, "token"), wanted, counted(options.executor.pages, "page"));
  options.executor.context = fits;
  return {};
}

// A model that gives vectors or scores, and has the machine to itself.
Result<ServedModel> served_embedder(const Arguments& arguments, const std::filesystem::path& path,
                                    std::shared_ptr<LoadedModel> loaded) {
  TRY(const auto adapters, adapters_of(arguments));
  if (!adapters.empty())
    return error(Code::unsupported, "{} gives vectors or scores, and adapters (--lora {}) are for models that write",
                 path.string(), adapters.front().path);
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
  served.name = arguments.maybe_text("alias").value_or(model_name(arguments, path));
  const Fingerprint fingerprint = fingerprint_of(*loaded, options.kv);
  served.fingerprint = fingerprint_text(fingerprint, *loaded, served.defaults);
  served.identity = fingerprint.pages;
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  served.loaded = std::move(loaded);
  return served;
}

bool gives_vectors(const LoadedModel& loaded) { return !loaded.model().spec().head || loaded.model().spec().pool; }

bool keeps_cache(const Arguments& arguments) { return arguments.knows("cache-file") && arguments.given("cache-file"); }

// What an earlier server left. Whatever is wrong with it is said, and the cache is empty then.
Result<void> restore_cache(const Arguments& arguments, Engine& engine) {
  if (!keeps_cache(arguments)) return {};
  if (ranks_of(arguments) > 1)
    return error(Code::unsupported,
                 "--cache-file is not there with --ranks {}: each rank has its own part of the cache",
                 ranks_of(arguments));
  if (!arguments.toggle("cache-restore")) return {};
  const Terminal& terminal = arguments.terminal();
  auto restored = engine.restore_cache(arguments.text("cache-file"));
  if (restored.ok()) {
    terminal.note("cache   {} of prefixes found again, {}", counted(restored->tokens, "token"),
                  human_bytes(static_cast<uint64_t>(restored->bytes)));
  } else if (restored.error().code == Code::not_found) {
    terminal.note("cache   empty; it will be saved as {}", arguments.text("cache-file"));
  } else {
    terminal.warn("{}; the cache is empty", restored.error().message);
  }
  return {};
}

// The engine in a process of its own, and of the model what text needs.
Result<ReadyEngine> remote_engine(const Arguments& arguments, const std::function<bool()>& go_on,
                                  std::shared_ptr<LoadedModel> outline, const std::vector<std::string>& words_first,
                                  std::shared_ptr<EnginePort>& engine) {
  ReadyEngine made;
  made.loaded = std::move(outline);
  EngineCommand command;
  command.words = {"millrace", "engine"};
  command.words_again = {"--quiet"};
  command.words_first = words_first;
  command.words.insert(command.words.end(), arguments.words().begin(), arguments.words().end());
  command.spare = leaves_spare(arguments);
  if (keeps_cache(arguments)) command.words_bare = {"--no-cache-restore"};
  auto log = [terminal = &arguments.terminal()](std::string_view line) { terminal->note("{}", line); };
  TRY(auto remote, RemoteEngine::start(std::move(command), go_on, log));
  TRY_VOID(made.loaded->check_same_files(remote->ready().files));
  made.fingerprint = {.pages = remote->ready().pages, .tokens = remote->ready().tokens};
  made.kv = remote->ready().kv;
  TRY(const LoadChoice choice, load_choice(arguments));
  made.loaded->keep_digest(choice, remote->ready().files, remote->ready().weights);
  engine = std::move(remote);
  return made;
}

// Ranks over MPI are an engine in processes of its own.
Result<void> check_mpi(const Arguments& arguments, bool apart) {
  if (rank_by_launcher() >= 0)
    return error(Code::invalid, "`serve` is one process and starts its ranks itself: run it without mpirun");
  if (!apart) return error(Code::invalid, "--transport mpi: ranks are processes of their own, so not --in-process");
  if (ranks_of(arguments) < 2) return error(Code::invalid, "--transport mpi: how many ranks? Give --ranks N");
  return {};
}

// Said at the start, not to the first client that asks for calls.
void note_tools(const Arguments& arguments, const ServedModel& served) {
#if MILLRACE_SESSION_TEXT
  const ChatTemplate* chat = served.loaded->chat_template();
  if (chat == nullptr || served.loaded->tokenizer() == nullptr || served.loaded->calls().known()) return;
  const auto abilities = chat->abilities(true);
  if (!abilities.ok() || !abilities->tools) return;
  arguments.terminal().note(
      "{}: its chat template shows tools, but how it writes calls is not understood: they stay "
      "text, and none can be required",
      served.name);
#else
  static_cast<void>(arguments);
  static_cast<void>(served);
#endif
}

}  // namespace

Result<LoadChoice> load_choice(const Arguments& arguments) {
  TRY(auto path, model_path(arguments));
  TRY(const std::string device, rank_device(arguments));
  LoadChoice choice{.path = path, .device = device, .context = arguments.integer("ctx-size")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  choice.ranks = ranks_of(arguments);
  TRY(choice.cut, rank_cut(arguments));
  choice.mpi = over_mpi(arguments);
  choice.memory_limit = memory_limit(arguments);
  TRY(choice.keep, kv_keep(arguments));
  choice.fingerprint = true;
  if (arguments.given("chat-template")) {
    TRY(choice.chat_template, read_file(arguments.text("chat-template"), size_t{16} << 20));
  }
  return choice;
}

Result<std::unique_ptr<LoadedModel>> load_weights(const Arguments& arguments, const std::function<bool()>& go_on) {
  TRY(LoadChoice choice, load_choice(arguments));
  choice.progress = [&](int64_t, int64_t) { return go_on(); };
  TRY(auto loaded, LoadedModel::load(choice));
  if (!loaded->kept_as().empty()) arguments.terminal().note("{}", loaded->kept_as());
  if (auto note = packed_note(loaded->checkpoint(), loaded->model().weight_bytes()))
    arguments.terminal().note("{}", *note);
  return loaded;
}

Result<ReadyEngine> engine_for(const Arguments& arguments, std::unique_ptr<LoadedModel> loaded, EngineWatch* watch) {
  EngineOptions options;
  const auto asked = static_cast<int32_t>(arguments.integer("ctx-size"));
  options.executor.context = asked > 0 ? asked : usual_context(*loaded, kUsualContext);
  options.executor.kv = kv_type(arguments, *loaded);
  options.limits.max_sequences = static_cast<int>(arguments.integer("parallel"));
  options.limits.step_tokens = std::max(step_rows(arguments, "batch-size", 256), options.limits.max_sequences);
  options.limits.max_waiting = static_cast<int>(arguments.integer("max-waiting"));
  options.limits.max_choices = 128;
  options.executor.rows = options.limits.step_tokens;
  options.executor.sequences = options.limits.max_sequences;
  suit_requests(loaded->model().spec(), options.executor);
  TRY(auto drafters, drafters_of(arguments, *loaded, options.executor.context));
  options.draft = drafters->for_engine();
  options.executor.beside = options.draft.beside;
  if (watch != nullptr && leaves_spare(arguments)) options.beside_bytes = spare_bytes(loaded->model().weight_bytes());
  TRY(options.executor.pages, pages_of(arguments, *loaded, options.executor,
                                       memory_limit(arguments) / ranks_of(arguments) - options.beside_bytes));
  TRY_VOID(fit_context(arguments, *loaded, options));
  TRY(options.adapters, adapters_of(arguments));
  options.policy = arguments.text("policy");
  options.swap_bytes = arguments.integer("swap");
  options.watch = watch;
  ReadyEngine made;
  made.kv = options.executor.kv;
  made.fingerprint = fingerprint_of(*loaded, made.kv, drafters.get());
  options.identity = drafters->identity(made.fingerprint.pages);
  options.tell_cached = tells_routers(arguments);
  TRY(const Executor::Plan plan, Executor::plan(loaded->model(), loaded->backend(), options.executor));
  TRY(options.tier,
      shared_pages(arguments, options.executor.beside.any() ? options.identity : made.fingerprint.pages, plan.layout));
  TRY(made.engine, Engine::create(loaded->model(), loaded->backend(), options));
  TRY_VOID(restore_cache(arguments, *made.engine));
  // The engine's drafter is made of these, so they go with the model.
  auto both = std::make_shared<Loaded>(Loaded{std::move(loaded), std::move(drafters)});
  made.loaded = std::shared_ptr<LoadedModel>(both, both->model.get());
  return made;
}

bool leaves_spare(const Arguments& arguments) {
  return arguments.text("device") == "cpu" && ranks_of(arguments) == 1 && !over_mpi(arguments);
}

// The model's tokenizer and template, and a script instead of weights.
static Result<ServedModel> served_script(const Arguments& arguments) {
  TRY(LoadChoice choice, load_choice(arguments));
  choice.weights = choice.fingerprint = false;
  TRY(const std::string text, read_file(arguments.text("script"), size_t{16} << 20));
  auto lines = parse_script(text);
  if (!lines.ok()) return within(arguments.text("script"), std::move(lines).error());
  ServedModel served;
  TRY(served.loaded, LoadedModel::load(choice));
  TRY(served.engine, scripted_engine(std::move(*lines), *served.loaded));
  served.name = arguments.maybe_text("alias").value_or("script");
  served.fingerprint = "fp_script";
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  served.defaults = defaults_of(arguments, *served.loaded);
  return served;
}

Result<ServedModel> served_model(const Arguments& arguments, const std::function<bool()>& go_on, bool apart,
                                 const std::vector<std::string>& words_first) {
  if (arguments.knows("script") && arguments.given("script")) return served_script(arguments);
  TRY(auto path, model_path(arguments));
  if (over_mpi(arguments)) {
    TRY_VOID(check_mpi(arguments, apart));
  }
  std::shared_ptr<LoadedModel> outline;
  if (apart) {
    TRY(LoadChoice choice, load_choice(arguments));
    choice.weights = false;
    TRY(outline, LoadedModel::load(choice));
  }
  ServedModel served;
  ReadyEngine made;
  if (apart && !gives_vectors(*outline)) {
    TRY(made, remote_engine(arguments, go_on, std::move(outline), words_first, served.engine));
  } else {
    TRY(auto loaded, load_weights(arguments, go_on));
    if (gives_vectors(*loaded)) return served_embedder(arguments, path, std::move(loaded));
    TRY(made, engine_for(arguments, std::move(loaded), nullptr));
    served.engine = std::move(made.engine);
  }
  served.name = arguments.maybe_text("alias").value_or(model_name(arguments, path));
  for (const AdapterInfo& info : served.engine->adapters()) {
    if (info.name == served.name)
      return error(Code::invalid, "the adapter {} has the model's name, '{}': give it another (--lora NAME={})",
                   info.path, served.name, info.path);
  }
  served.identity = made.fingerprint.pages;
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (arguments.text("device") == "cpu")
    served.floor = step_floor(made.loaded->model(), made.kv, static_cast<int>(arguments.integer("threads")));
  served.defaults = defaults_of(arguments, *made.loaded);
  TRY(served.defaults.fill, fill_of(arguments, *made.loaded));
  TRY_VOID(check_sampling(served.defaults.sampling, made.loaded->vocab()));
  served.fingerprint = fingerprint_text(made.fingerprint, *made.loaded, served.defaults);
  served.loaded = std::move(made.loaded);
  served.bounds = std::make_shared<Bounds>(*served.loaded, arguments.integer("grammar-cache"));
  note_tools(arguments, served);
  return served;
}

}  // namespace millrace::apps
