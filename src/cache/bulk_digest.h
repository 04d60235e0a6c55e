// The identity of gigabytes, at about the speed of memory: tensors, pages. A tree: leaves of 4 MiB, of which each
// stretch of 4 KiB is first folded to 32 bytes by NH (the sum of products of RFC 4418's universal hash, with four
// independent keys), then everything by BLAKE2s (identity.h). Two different contents have the same digest with
// probability 2^-128 if they were not made for it; the keys are no secret, so it proves nothing against somebody who
// computes a collision. The same on every machine. Any thread.
#pragma once

#include <span>

#include "cache/identity.h"

namespace millrace {

Identity bulk_digest(std::span<const std::byte> bytes);

}  // namespace millrace
