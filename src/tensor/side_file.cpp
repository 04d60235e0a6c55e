#include "tensor/side_file.h"

#include <algorithm>
#include <system_error>

#include "base/file.h"

namespace millrace {

namespace fs = std::filesystem;

namespace {

// Where the download cache keeps what a folder of its snapshots links to; nothing if the folder is none of those.
// Itself it must be no link, or it could lead anywhere.
fs::path blobs_of(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path())
    if (at.filename() == "snapshots") return at.parent_path() / "blobs";
  return {};
}

}  // namespace

bool lies_in(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

Result<void> check_side_file(const fs::path& folder, const fs::path& file) {
  std::error_code code;
  if (!fs::exists(file, code)) return {};
  const fs::path root = fs::canonical(folder.empty() ? fs::path(".") : folder, code);
  fs::path target;
  if (!code) target = fs::canonical(file, code);
  if (!code && lies_in(root, target)) return {};
  if (const fs::path blobs = blobs_of(root); !code && !blobs.empty() && lies_in(blobs, target)) return {};
  if (code) target = fs::read_symlink(file, code);  // what has no path, as what was deleted and is still open
  return error(Code::invalid,
               "{}: leads to {}, outside of the model's folder, so it is not read: put a copy of that file in its "
               "place, or give the folder in which the files themselves lie",
               file.string(), target.string());
}

Result<std::string> read_side_file(const fs::path& folder, const fs::path& file, size_t max_bytes) {
  TRY_VOID(check_side_file(folder, file));
  return read_file(file, max_bytes);
}

}  // namespace millrace
