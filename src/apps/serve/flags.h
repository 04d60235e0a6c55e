// What `serve` and `batch` share on the command line: how the engine is set up, and where the server listens. Main
// thread.
#pragma once

#include <functional>
#include <vector>

#include "apps/cli/cli.h"
#include "base/result.h"
#include "cache/page_tier.h"
#include "engine/engine.h"
#include "server/server.h"
#include "server/shelf.h"
#include "session/fingerprint.h"

namespace millrace::apps {

// --host, --port, --unix-socket, TLS, keys, limits.
std::vector<Flag> listening_flags();
// --alias, --ctx-size, --parallel, --batch-size, --policy, --kv-size, --swap ...
std::vector<Flag> engine_flags();
// All of `serve`, which its engine's process takes too.
std::vector<Flag> serving_flags();

// --models, --models-max, --load-wait: further models, in more_models.cpp.
std::vector<Flag> more_models_flags();
// None if there is one model only. The arguments must outlive them.
Result<std::optional<ShelfOptions>> shelf_options(const Arguments& arguments, const std::function<bool()>& go_on);

// --secret-file, --kv-events, --page-store: what replicas share, in shared.cpp.
std::vector<Flag> shared_flags();
// The secret, if there is one.
Result<std::optional<std::array<uint8_t, 32>>> shared_secret(const Arguments& arguments);
// Where pages are shared with other replicas; null: nowhere.
Result<std::shared_ptr<PageTier>> shared_pages(const Arguments& arguments, const Identity& model,
                                               const CacheLayout& layout);
// Opens what a tier on disk writes to, before the right to do so is given up; shared_pages() takes it.
Result<void> open_page_store(const Arguments& arguments);
bool needs_network(const Arguments& arguments);  // of the engine's process
bool tells_routers(const Arguments& arguments);
int64_t shared_pages_bytes(const Arguments& arguments);  // that it takes at the most
// Tells routers what becomes of the engine's cache, if they are to be told.
Result<void> tell_routers(const Arguments& arguments, const std::string& address, ServedModel& served);

Result<ServerOptions> server_options(const Arguments& arguments);

// The model with its engine.
struct ReadyEngine {
  std::shared_ptr<LoadedModel> loaded;
  std::unique_ptr<Engine> engine;
  Fingerprint fingerprint;
  KvForm kv;
};
// Loads the model; `go_on` is asked meanwhile.
Result<std::unique_ptr<LoadedModel>> load_weights(const Arguments& arguments, const std::function<bool()>& go_on);
// And makes its engine.
Result<ReadyEngine> engine_for(const Arguments& arguments, std::unique_ptr<LoadedModel> loaded, EngineWatch* watch);
// Whether an engine's process leaves a spare (process/spare.h): what one CPU has loaded is all in its memory.
bool leaves_spare(const Arguments& arguments);

// The model and an engine for it, in this process or (`apart`) in one of its own.
Result<ServedModel> served_model(const Arguments& arguments, const std::function<bool()>& go_on, bool apart = false,
                                 const std::vector<std::string>& words_first = {});
// How a model is loaded by these flags.
Result<LoadChoice> load_choice(const Arguments& arguments);

// Another model of the same shapes, in a process of its own, for a server that has one.
Result<ServedModel> reloaded_model(const Arguments& arguments, const std::string& path, const ServedModel& old,
                                   const std::function<bool()>& go_on);
// Whether there is memory for a second engine like this one.
bool fits_beside(const Arguments& arguments, const ServedModel& old);

}  // namespace millrace::apps
