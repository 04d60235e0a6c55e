// What `serve` and `batch` share on the command line: how the engine is set up, and where the server listens. Main
// thread.
#pragma once

#include <functional>
#include <vector>

#include "apps/cli/cli.h"
#include "base/result.h"
#include "server/server.h"

namespace millrace::apps {

// --host, --port, --unix-socket, TLS, keys, limits.
std::vector<Flag> listening_flags();
// --alias, --ctx-size, --parallel, --batch-size, --policy, --kv-size, --swap ...
std::vector<Flag> engine_flags();

Result<ServerOptions> server_options(const Arguments& arguments);

// Loads the model and makes its engine; `go_on` is asked while loading.
Result<ServedModel> served_model(const Arguments& arguments, const std::function<bool()>& go_on);

}  // namespace millrace::apps
