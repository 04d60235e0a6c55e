// Routes about adapters (LoRA): what is loaded, and loading and unloading while the server runs, which needs an
// operator's key and is bounded to one folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "server/route.h"

namespace millrace {

void list_adapters(Service& service, Call call);
void load_adapter(Service& service, Call call);
void unload_adapter(Service& service, Call call);

// Answers a request about a body in which this was taken and does nothing.
using Noted = std::function<void(HttpAnswer)>;
Noted noting(const Ignored& ignored, const std::shared_ptr<Exchange>& exchange);

// The path of what is asked for, if it lies in the folder once links are followed, its files too.
Result<std::filesystem::path> path_within(const std::filesystem::path& folder, std::string_view asked,
                                          std::string_view what = "adapters (--lora-dir)");

}  // namespace millrace
