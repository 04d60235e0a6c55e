#include "tier/disk_tier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <map>

#include "base/file.h"
#include "tier/queued_tier.h"

namespace millrace {
namespace {

constexpr std::string_view kMagic{"MRDISK1\0", 8};
constexpr int64_t kBlock = 4096;

// As many bytes as there are; fewer only at the file's end.
bool read_at(int file, char* out, size_t bytes, int64_t at) {
  while (bytes > 0) {
    const ssize_t got = ::pread(file, out, bytes, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_at(int file, std::string_view bytes, int64_t at) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
    at += put;
  }
  return true;
}

std::string file_head(const NodeSeal& seal, int64_t place_bytes) {
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(seal.identity.bytes.data()), seal.identity.bytes.size());
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<uint64_t>(place_bytes) >> (8 * i));
  return out;
}

class DiskTier : public QueuedTier {
 public:
  DiskTier(int file, const DiskOptions& options, NodeSeal seal, int64_t place_bytes)
      // A failure of a disk does not pass, so nobody asks for long. Until it is measured, a disk reads 200 MB a second.
      : QueuedTier({.most_waiting = options.most_waiting,
                    .breaker_seconds = 600,
                    .wait = options.wait,
                    .round_seconds = 0.0001,
                    .byte_seconds = 5e-9}),
        file_(file),
        seal_(seal),
        place_bytes_(place_bytes),
        places_((options.bytes - kBlock) / place_bytes) {}
  ~DiskTier() override {
    stop();
    ::close(file_);
  }

  // Finds what an earlier process has left.
  Result<void> open() {
    const std::string wanted = file_head(seal_, place_bytes_);
    std::string there(wanted.size(), '\0');
    if (!read_at(file_, there.data(), there.size(), 0) || there != wanted) {
      if (::ftruncate(file_, 0) != 0 || !write_at(file_, wanted, 0))
        return error(Code::io, "the file for pages cannot be written: {}", std::strerror(errno));
    }
    std::string head(sealed_lead(seal_), '\0');
    for (int64_t place = 0; place < places_; ++place) {
      if (!read_at(file_, head.data(), head.size(), at(place))) {
        used_ = place;
        break;
      }
      used_ = place + 1;
      const auto said = sealed_head(seal_, head);
      if (said && !index_.contains(said->chain))
        remember(said->chain, place);
      else
        free_.push_back(place);
    }
    start();
    return {};
  }

 private:
  struct Entry {
    int64_t place = 0;
    std::list<Identity>::iterator age;
  };

  int64_t at(int64_t place) const { return kBlock + place * place_bytes_; }

  void remember(const Identity& chain, int64_t place) {
    ages_.push_back(chain);
    index_[chain] = {place, std::prev(ages_.end())};
  }
  void forget(std::map<Identity, Entry>::iterator entry) {
    free_.push_back(entry->second.place);
    ages_.erase(entry->second.age);
    index_.erase(entry);
  }

  void look_up(std::span<const Identity> chains, Clock::time_point until, std::vector<TierNode>& found,
               size_t& bytes) override {
    std::string sealed(most_sealed_bytes(seal_), '\0');
    const size_t lead = sealed_lead(seal_);
    for (const Identity& chain : chains) {
      const auto entry = index_.find(chain);
      if (entry == index_.end()) return;
      if (seconds_until(until) <= 0) return count(&TierCounters::late);
      const int64_t begin = at(entry->second.place);
      if (!read_at(file_, sealed.data(), lead, begin)) return lost(entry);
      const auto said = sealed_head(seal_, sealed);
      if (!said || said->chain != chain ||
          !read_at(file_, sealed.data() + lead, said->bytes - lead, begin + static_cast<int64_t>(lead)))
        return lost(entry);
      bytes += said->bytes;
      auto node = open_node(seal_, chain, std::string_view(sealed).substr(0, said->bytes));
      if (!node.ok()) return lost(entry);
      ages_.splice(ages_.end(), ages_, entry->second.age);
      found.push_back(std::move(*node));
    }
  }
  // It is not what was put there.
  void lost(std::map<Identity, Entry>::iterator entry) {
    count(&TierCounters::refused);
    forget(entry);
  }

  bool store(const TierNode& node) override {
    if (index_.contains(node.chain)) return true;
    const std::string sealed = seal_node(seal_, node);
    if (std::ssize(sealed) > place_bytes_ || places_ < 1) return false;
    if (free_.empty() && used_ < places_) free_.push_back(used_++);
    if (free_.empty()) forget(index_.find(ages_.front()));
    const int64_t place = free_.back();
    if (!write_at(file_, sealed, at(place))) {
      if (errno == ENOSPC || errno == EDQUOT) return false;  // what is there can still be read
      break_off(&TierCounters::failed);
      return false;
    }
    free_.pop_back();
    remember(node.chain, place);
    return true;
  }

  const int file_;
  const NodeSeal seal_;
  const int64_t place_bytes_, places_;
  // The thread's, once it runs.
  std::map<Identity, Entry> index_;
  std::list<Identity> ages_;  // the one longest unused first
  std::vector<int64_t> free_;
  int64_t used_ = 0;  // places that were ever written
};

}  // namespace

Result<int> open_page_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return os_error(path, "open it for pages");
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const Error busy = error(Code::invalid, "{}: another server keeps its pages there", path.string());
  ::close(file);
  return busy;
}

Result<std::unique_ptr<PageTier>> make_disk_tier(int file, DiskOptions options, NodeSeal seal) {
  const auto sealed = static_cast<int64_t>(most_sealed_bytes(seal));
  const int64_t place = (sealed + kBlock - 1) / kBlock * kBlock;
  auto tier = std::make_unique<DiskTier>(file, options, seal, place);
  if (options.bytes < kBlock + place)
    return error(Code::invalid,
                 "a file of {} bytes has no place for the {} that a stretch of tokens takes; see "
                 "--page-store-size",
                 options.bytes, place);
  TRY_VOID(tier->open());
  return std::unique_ptr<PageTier>(std::move(tier));
}

}  // namespace millrace
