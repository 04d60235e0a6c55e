// KnownDigests: digests of weights that were taken before, kept in a file of the user's cache folder under what tells
// their files apart (device, inode, size, and both times to the nanosecond), so that whoever loads a file again need
// not hash it again. A file that cannot be read or written there is no error: the digest is taken. One thread.
//
// A time has a grain. A file whose entry changed in the last two seconds could change again and keep its times, so its
// digest is not kept.
#pragma once

#include <filesystem>
#include <optional>

#include "cache/identity.h"
#include "model/source.h"

namespace millrace {

class KnownDigests {
 public:
  // An empty folder: nothing is known, nothing is kept.
  KnownDigests(const std::filesystem::path& folder, const ModelSource& source);

  std::optional<Identity> find() const;
  void keep(const Identity& digest) const;

 private:
  std::filesystem::path path_;
  Identity key_;
};

}  // namespace millrace
