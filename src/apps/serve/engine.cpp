// The verb that `serve` starts as a process of its own: the model, the cache and the steps, without any socket but the
// one to the server.
#include <fcntl.h>

#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/serve/flags.h"
#include "backend/rest.h"
#include "process/confine.h"
#include "process/engine_child.h"
#include "process/mpi_engine.h"
#include "session/bound.h"

namespace millrace::apps {
namespace {

Result<EngineOfProcess> made_for(const Arguments& arguments, std::unique_ptr<LoadedModel> loaded, EngineWatch& watch) {
  TRY(ReadyEngine ready, engine_for(arguments, std::move(loaded), &watch));
  EngineOfProcess made;
  made.engine = std::move(ready.engine);
  made.pages = ready.fingerprint.pages;
  made.tokens = ready.fingerprint.tokens;
  made.weights = ready.loaded->model().weights_digest().value_or(Identity());
  made.kv = ready.kv;
  made.files = ready.loaded->checkpoint().states();
  made.parameters = ready.loaded->model().parameters();
  auto bounds = std::make_shared<Bounds>(*ready.loaded, arguments.integer("grammar-cache"));
  made.model = ready.loaded;
  made.constraint = [bounds](const std::string& source, const std::string& tenant) {
    return bounds->constraint(source, tenant);
  };
  return made;
}

// The process that the server started makes way for a job of several.
Result<int> run_job(const Arguments& arguments) {
  std::vector<std::string> words = {"engine"};
  words.insert(words.end(), arguments.words().begin(), arguments.words().end());
  const MpiLaunch launch{.ranks = ranks_of(arguments),
                         .hostfile = arguments.text("hostfile"),
                         .options = arguments.text("mpirun-options")};
  TRY(const int code, run_mpi_engine(launch, words));
  return code == 0 ? kExitOk : kExitFailure;
}

Result<int> run_engine(const Arguments& arguments) {
  const int rank = over_mpi(arguments) ? rank_by_launcher() : 0;
  if (rank > 0) {  // follows until the first rank stops, and ends there
    TRY_VOID(load_weights(arguments, [] { return true; }));
    return kExitFailure;
  }
  if (over_mpi(arguments) && rank == 0) {
    TRY_VOID(take_engine_files());
  }
  if (::fcntl(kEngineSocket, F_GETFD) < 0 || ::fcntl(kEngineSharedFile, F_GETFD) < 0)
    return wrong_use(arguments, "`millrace serve` starts this for itself; there is no server here that it could serve");
  if (rank < 0) {
    auto ended = run_job(arguments);
    if (!ended.ok()) tell_engine_failed(ended.error());
    return ended.ok() ? *ended : kExitFailure;
  }
  end_first();
  const Result<void> opened = open_page_store(arguments);
  // A GPU's driver opens files and sockets of its own as it goes, and so does MPI.
  const std::string device = arguments.text("device");
  if ((device == "cpu" || device == "reference") && !over_mpi(arguments)) {
    if (auto confined = confine(needs_network(arguments)); !confined.ok())
      arguments.terminal().warn("{}", confined.error().message);
  }
  std::unique_ptr<LoadedModel> loaded;
  const auto load = [&]() -> Result<bool> {
    TRY_VOID(opened);
    TRY(loaded, load_weights(arguments, [] { return true; }));
    return leaves_spare(arguments) && rest_backend(loaded->backend());
  };
  auto served =
      run_engine_child(load, [&](EngineWatch& watch) { return made_for(arguments, std::move(loaded), watch); });
  // The server has heard why and says it.
  return served.ok() ? kExitOk : kExitFailure;
}

}  // namespace

Verb engine_verb() {
  return {.name = "engine",
          .summary = "the process that computes for `serve`, which starts it",
          .group = "Use a model",
          .operands = {model_operand()},
          .flags = serving_flags(),
          .examples = {{"serve", "starts it and takes care of it"}},
          .notes = "Takes the flags of `serve`. If it dies, `serve` starts another and open answers go on.",
          .run = run_engine};
}

}  // namespace millrace::apps
