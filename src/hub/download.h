// One file from elsewhere to a path here: what came of it before is kept and gone on from, its size and digest are
// checked, and only then it has its name. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "hub/listing.h"
#include "hub/transport.h"

namespace millrace {

struct Download {
  std::string url;
  std::filesystem::path target;  // its folder is there
  RemoteFile file;
  int retries = 5;
  // Bytes that are there now; called often.
  std::function<void(uint64_t done)> progress = nullptr;
  std::function<void(std::string)> note = nullptr;
  std::function<bool()> go_on = nullptr;
};

// Where its bytes are while it is not whole: the name says which content it will be, so another never goes on from it.
std::filesystem::path part_path(const Download& download);
// Bytes of it that are already here, whole or in part.
uint64_t bytes_here(const Download& download);

Result<void> fetch_file(Transport& transport, const Download& download);

}  // namespace millrace
