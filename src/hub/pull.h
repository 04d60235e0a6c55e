// Brings a model here: asks the hub or registry what there is, checks that it has room, fetches what the model needs,
// checks it, and puts it into the models folder in one step. What came is kept if it is stopped. One thread.
#pragma once

#include <functional>
#include <string>

#include "hub/folder.h"
#include "hub/name.h"

namespace millrace {

struct PullOptions {
  std::string token;         // HF_TOKEN: a key for the hub at
  std::string token_origin;  // this address, and for no other host
  std::string ca_file;       // certificates to trust instead of the system's
  int retries = 5;           // of a transfer that brings nothing more
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
  std::function<void(std::string)> note = nullptr;
  std::function<bool()> go_on = nullptr;
};

// Whether this build can: it needs libcurl.
bool can_pull();

Result<LocalModel> pull(const ModelFolder& folder, const ModelName& name, const PullOptions& options);

// What to do by hand where there is no network: the address to look at and the place to put things.
std::string by_hand(const ModelFolder& folder, const ModelName& name);

}  // namespace millrace
