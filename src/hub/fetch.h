// The part of pull() that needs a network; in builds with libcurl only. One thread.
#pragma once

#include "hub/pull.h"

namespace millrace {

Result<LocalModel> fetch_model(const ModelFolder& folder, const ModelName& name, const PullOptions& options);

}  // namespace millrace
