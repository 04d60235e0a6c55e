#include "apps/serve/cache_keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include "apps/cli/flags.h"
#include "apps/cli/terminal.h"
#include "base/file.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

constexpr double kPatience = 600;     // for a save while the server works
constexpr double kLastPatience = 60;  // for the one at the end

// What a process that was killed while it saved has left behind.
void clear_leavings(const fs::path& path) {
  std::error_code code;
  const std::string begin = path.filename().string() + ".", end = ".tmp";
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), code)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) continue;
    const std::string number = name.substr(begin.size(), name.size() - begin.size() - end.size());
    if (number.size() > 9 || !std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) continue;
    if (::kill(std::stoi(number), 0) != 0 && errno == ESRCH) fs::remove(entry.path(), code);
  }
}

// A file that others write to; it gets its name when it is whole, and is gone if it never is.
class Saving {
 public:
  static Result<std::shared_ptr<Saving>> create(const fs::path& target) {
    std::shared_ptr<Saving> made(new Saving(target));
    made->fd_ = ::open(made->temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (made->fd_ < 0) return os_error(made->temporary_, "create");
    return made;
  }
  ~Saving() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  int fd() const { return fd_; }
  Result<void> commit() {
    if (::fsync(fd_) != 0) return os_error(temporary_, "sync");
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) return os_error(target_, "rename to");
    ::close(std::exchange(fd_, -1));
    return {};
  }
  std::promise<Result<CacheFileSummary>> promise;

 private:
  explicit Saving(const fs::path& target)
      : target_(target), temporary_(target.string() + "." + std::to_string(::getpid()) + ".tmp") {}
  const fs::path target_, temporary_;
  int fd_ = -1;
};

}  // namespace

std::vector<Flag> cache_file_flags() {
  Flag save = number_flag("cache-save", "", "60", 0.05, 86400, "with --cache-file: how often it is saved");
  save.value = "SECONDS";
  return {path_flag("cache-file", "FILE", "the prefix cache is saved here and found again at the next start"),
          save,
          {.name = "cache-restore", .otherwise = "true", .help = "with --cache-file: read it at the start"}};
}

Result<std::array<uint8_t, 32>> cache_secret(const fs::path& cache_file) {
  const fs::path path = cache_file.string() + ".key";
  std::array<uint8_t, 32> secret = {};
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    return error(Code::io, "no random numbers: {}", std::strerror(errno));
  std::error_code code;
  if (!fs::exists(path, code)) {
    TRY(AtomicFile file, AtomicFile::create(path, 0600));
    TRY_VOID(file.write(std::as_bytes(std::span(secret))));
    TRY_VOID(file.commit());
    return secret;
  }
  TRY(const std::string text, read_file(path, 1 << 16));
  if (text.size() != secret.size())
    return error(Code::corrupt, "{}: has {} bytes instead of {}; delete it, and {} with it", path.string(), text.size(),
                 secret.size(), cache_file.string());
  std::memcpy(secret.data(), text.data(), secret.size());
  return secret;
}

CacheKeeper::CacheKeeper(const Arguments& arguments, Service& service)
    : service_(service),
      terminal_(arguments.terminal()),
      path_(arguments.given("cache-file") ? fs::absolute(arguments.text("cache-file")) : fs::path()),
      seconds_(arguments.number("cache-save")) {
  if (path_.empty()) return;
  clear_leavings(path_);
  thread_ = std::thread([this] { loop(); });
}

CacheKeeper::~CacheKeeper() { stop(); }

void CacheKeeper::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CacheKeeper::finish() {
  stop();
  if (!path_.empty()) save(kLastPatience);
}

void CacheKeeper::loop() {
  for (std::unique_lock lock(mutex_);;) {
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds_), [this] { return stopping_; })) return;
    lock.unlock();
    save(kPatience);
    lock.lock();
  }
}

void CacheKeeper::save(double patience) {
  const auto served = service_.model();
  if (served == nullptr || served->engine == nullptr) return;
  const EngineSnapshot before = served->engine->snapshot();
  if (!before.present || before.metrics.steps == saved_steps_) return;
  auto created = Saving::create(path_);
  Result<CacheFileSummary> saved = created.ok() ? Result<CacheFileSummary>(CacheFileSummary()) : created.error();
  if (created.ok()) {
    // Whoever writes may do so after we have given up: the file stays until then.
    const std::shared_ptr<Saving> saving = *created;
    auto future = saving->promise.get_future();
    served->engine->save_cache(saving->fd(),
                               [saving](Result<CacheFileSummary> done) { saving->promise.set_value(std::move(done)); });
    if (future.wait_for(std::chrono::duration<double>(patience)) != std::future_status::ready) {
      saved = error(Code::overloaded, "{}: the cache was not saved within {:.0f} s", path_.string(), patience);
    } else {
      saved = future.get();
      if (saved.ok())
        if (auto committed = saving->commit(); !committed.ok()) saved = committed.error();
    }
  }
  if (saved.ok()) saved_steps_ = before.metrics.steps;
  // That an engine died or sleeps is said elsewhere, and the next time will do.
  if (!saved.ok() && saved.error().code != Code::overloaded && !failed_) terminal_.warn("{}", saved.error().message);
  failed_ = !saved.ok();
}

}  // namespace millrace::apps
