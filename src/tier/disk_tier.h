// A PageTier in a file on this machine: what the cache in memory had to forget, and what was computed before a restart.
// The file has places of one size, each for a sealed node (sealed_node.h); what lies where is kept in memory and found
// again by reading the heads. When it is full, the node longest unused is written over. A node that is damaged or half
// written is not opened, and computed instead.
//
// All numbers are little-endian. The first 4096 bytes: "MRDISK1\0", identity (32 bytes), bytes of a place (8). Then the
// places.
#pragma once

#include <filesystem>
#include <memory>

#include "cache/page_tier.h"
#include "tier/sealed_node.h"

namespace millrace {

struct DiskOptions {
  int64_t bytes = int64_t{4} << 30;        // of the file, at the most
  size_t most_waiting = size_t{64} << 20;  // bytes that wait to be put; more are dropped
  double wait = 0;                         // as in QueueOptions
};

// Opens and locks the file, and makes it where it is not there. Whoever gets it closes it, or gives it to a tier.
Result<int> open_page_file(const std::filesystem::path& path);
// Takes the file, which is emptied if it is of another model or layout.
Result<std::unique_ptr<PageTier>> make_disk_tier(int file, DiskOptions options, NodeSeal seal);

}  // namespace millrace
