// What `serve` and `batch` share on the command line: how the engine is set up, and where the server listens. Main
// thread.
#pragma once

#include <functional>
#include <vector>

#include "apps/cli/cli.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/server.h"
#include "session/fingerprint.h"

namespace millrace::apps {

// --host, --port, --unix-socket, TLS, keys, limits.
std::vector<Flag> listening_flags();
// --alias, --ctx-size, --parallel, --batch-size, --policy, --kv-size, --swap ...
std::vector<Flag> engine_flags();
// All of `serve`, which its engine's process takes too.
std::vector<Flag> serving_flags();

Result<ServerOptions> server_options(const Arguments& arguments);

// The model with its engine.
struct ReadyEngine {
  std::shared_ptr<LoadedModel> loaded;
  std::unique_ptr<Engine> engine;
  Fingerprint fingerprint;
  KvForm kv;
};
// Loads the model and makes its engine; `go_on` is asked while loading.
Result<ReadyEngine> ready_engine(const Arguments& arguments, const std::function<bool()>& go_on,
                                 EngineWatch* watch = nullptr);

// The model and an engine for it, in this process or (`apart`) in one of its own.
Result<ServedModel> served_model(const Arguments& arguments, const std::function<bool()>& go_on, bool apart = false);

}  // namespace millrace::apps
