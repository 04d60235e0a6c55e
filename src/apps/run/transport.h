// What --transport says besides --device: which device ranks are opened on.
#pragma once

#include <string>

#include "apps/cli/flags.h"
#include "base/result.h"

namespace millrace::apps {

bool over_nccl(const Arguments& arguments);
// As session/device.h takes it. NCCL moves rows of GPUs only.
Result<std::string> rank_device(const Arguments& arguments);

}  // namespace millrace::apps
