#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/file.h"
#include "base/json.h"
#include "machine/ceilings.h"
#include "machine/stolen.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRead = size_t{8} << 20;
constexpr int kReaders = 4;

struct Files {
  std::vector<fs::path> paths;
  int64_t bytes = 0;
};

// The files that weights lie in: one, all parts of a split one, or a directory's.
Result<Files> files_of(const fs::path& path) {
  Files files;
  std::error_code code;
  const bool folder = fs::is_directory(path, code);
  const std::string stem = path.stem().string();
  const size_t split = stem.rfind("-00001-of-");
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder ? path : fs::absolute(path).parent_path(), code)) {
    const std::string name = entry.path().filename().string();
    const bool part = split != std::string::npos && name.starts_with(stem.substr(0, split) + "-0") &&
                      name.ends_with(stem.substr(split + 6) + ".gguf");
    const bool whole = folder ? entry.path().extension() == ".safetensors" : entry.path().filename() == path.filename();
    if (part || whole) files.paths.push_back(entry.path());
  }
  for (const fs::path& one : files.paths) files.bytes += static_cast<int64_t>(fs::file_size(one, code));
  if (files.bytes <= 0) return error(Code::not_found, "{}: there are no weights in it", path.string());
  return files;
}

// An open file, closed in the end.
class Opened {
 public:
  Opened(const fs::path& path, int flags) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {}
  ~Opened() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Asks the system to forget the files. The share that is still in memory afterwards: others may have them mapped.
double forget(const Files& files) {
  double left = 0, pages = 0;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (const fs::path& path : files.paths) {
    const Opened file(path, 0);
    ::fdatasync(file.fd());
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
    std::error_code code;
    const size_t bytes = fs::file_size(path, code);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (mapped == MAP_FAILED) continue;
    std::vector<unsigned char> present((bytes + page - 1) / page);
    if (::mincore(mapped, bytes, present.data()) == 0)
      left += static_cast<double>(std::ranges::count_if(present, [](unsigned char one) { return (one & 1) != 0; }));
    pages += static_cast<double>(present.size());
    ::munmap(mapped, bytes);
  }
  return pages > 0 ? left / pages : 1;
}

// Seconds to read all of them once, `direct` past the system's cache. Negative: that cannot be done here.
double read_all(const Files& files, bool direct) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<bool> failed = false;
  for (const fs::path& path : files.paths) {
    std::error_code code;
    const auto size = static_cast<int64_t>(fs::file_size(path, code));
    std::atomic<int64_t> next = 0;
    auto reader = [&] {
      const Opened file(path, direct ? O_DIRECT : 0);
      const std::unique_ptr<void, decltype(&std::free)> room(std::aligned_alloc(4096, kRead), &std::free);
      if (file.fd() < 0 || room == nullptr) failed = true;
      while (!failed) {
        const int64_t at = next.fetch_add(kRead);
        if (at >= size) return;
        if (::pread(file.fd(), room.get(), kRead, at) <= 0) failed = true;
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kReaders; ++i) threads.emplace_back(reader);
    for (std::thread& thread : threads) thread.join();
  }
  return failed ? -1 : std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<double> load_once(const Arguments& arguments, const fs::path& path) {
  LoadChoice choice{.path = path, .device = arguments.text("device")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(choice.keep, kv_keep(arguments));
  choice.memory_limit = memory_limit(arguments);
  const auto start = std::chrono::steady_clock::now();
  TRY(const auto loaded, LoadedModel::load(choice));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Row {
  std::string what;
  bool storage = false;
  double seconds = 0, limit = 0;  // limit: of reading the same bytes; 0: not measured
};

void print(const std::vector<Row>& rows, int64_t bytes, const Terminal& terminal) {
  using Align = Table::Align;
  Table table(
      {{"load"}, {"ms", Align::right}, {"GB/s", Align::right}, {"limit, GB/s", Align::right}, {"of it", Align::right}});
  const auto speed = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
  for (const Row& row : rows)
    table.row({row.what, fmt::format("{:.1f}", row.seconds * 1000), fmt::format("{:.2f}", speed(row.seconds)),
               row.limit > 0 ? fmt::format("{:.2f}", speed(row.limit)) : "unknown",
               row.limit > 0 ? share_of_limit(row.limit / row.seconds) : ""});
  table.print(terminal);
}

// Why a row is over 100 %, after its limit was measured again; empty if it is not. `left` stayed in memory.
std::string why_over(const Row& row, double left) {
  if (row.limit <= 0 || !over_limit(row.limit / row.seconds)) return "";
  if (!row.storage)
    return "'from memory' is over 100 %: weights are read where the system has them, and its limit is of a copy";
  if (left > 0.01)
    return fmt::format("'from storage' is over 100 %: {:.0f} % of the files were still in memory", 100 * left);
  return fmt::format("'from storage' is over 100 %: the system reads ahead faster than {} threads asked, twice",
                     kReaders);
}

Result<int> run_bench_load(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(const fs::path path, model_path(arguments));
  TRY(const Files files, files_of(path));
  const auto runs = arguments.integer("runs");
  std::vector<Row> rows = {{"from memory", false}, {"from storage", true}};
  double left = 0;
  const auto least = [](double& kept, double seconds) {
    if (seconds > 0) kept = kept > 0 ? std::min(kept, seconds) : seconds;
  };
  const StolenTime stolen;
  for (int64_t turn = 0; turn < runs; ++turn) {
    least(rows[1].limit, read_all(files, true));
    left = std::max(left, forget(files));
    TRY(const double cold, load_once(arguments, path));
    least(rows[1].seconds, cold);
    least(rows[0].limit, read_all(files, false));
    TRY(const double warm, load_once(arguments, path));
    least(rows[0].seconds, warm);
  }
  for (Row& row : rows) {  // what was passed was no limit
    for (int64_t turn = 0; turn < runs && row.limit > 0 && over_limit(row.limit / row.seconds); ++turn)
      least(row.limit, read_all(files, row.storage));
  }
  if (arguments.toggle("json")) {
    JsonArray list;
    for (const Row& row : rows) {
      const std::string why = why_over(row, left);
      list.push_back(JsonObject{{"from", row.what},
                                {"seconds", row.seconds},
                                {"limit_seconds", row.limit},
                                {"over_limit", why.empty() ? Json(nullptr) : Json(why)}});
    }
    terminal.print("{}\n", to_text(JsonObject{{"bytes", files.bytes},
                                              {"stayed_in_memory", left},
                                              {"rows", list},
                                              {"stolen", stolen_json(stolen.share())}}));
    return kExitOk;
  }
  print(rows, files.bytes, terminal);
  terminal.note("{} in {} files; best of {}; limits: the same bytes read by {} threads, and nothing done with them",
                human_bytes(static_cast<uint64_t>(files.bytes)), files.paths.size(), runs, kReaders);
  for (const Row& row : rows) {
    if (const std::string why = why_over(row, left); !why.empty()) terminal.note("{}", why);
  }
  if (const auto text = stolen_text(stolen.share())) terminal.note("{}", *text);
  if (left > 0.01)
    terminal.warn(
        "{:.0f} % of the files stayed in memory though the system was asked to forget them: 'from storage' is "
        "faster than it is",
        100 * left);
  if (rows[1].limit <= 0) terminal.warn("this file system reads nothing past its cache, so its own speed is unknown");
  return kExitOk;
}

}  // namespace

Verb bench_load_verb() {
  return {
      .name = "bench load",
      .summary = "measure how fast a model is loaded, beside the speed of its storage",
      .group = "Measure and check",
      .flags = joined({{model_flag(),
                        integer_flag("runs", "-r", "3", 1, 100, "times each is done; the best counts"),
                        {.name = "json", .help = "as a JSON object"}},
                       machine_flags()}),
      .examples = {{"bench load -m model.gguf", "from memory and from storage"}},
      .notes =
          "Loading reads every byte of the weights and packs it for the machine. 'From storage' is after the system "
          "was asked to forget the files; its limit is the same bytes read past the system's cache. 'From memory' "
          "is with the files in that cache; its limit is copying them out of it.",
      .run = run_bench_load};
}

}  // namespace millrace::apps
