#include "hub/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/file.h"
#include "base/human.h"
#include "hub/download.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostAnswer = size_t{16} << 20;
constexpr int kMostPages = 50;
constexpr uint64_t kSpare = uint64_t{64} << 20;  // left free on the disk

// What is to be fetched, whoever has it.
struct Offer {
  ChosenFiles chosen;
  std::string revision, license;
  std::string page;  // for people
  std::function<std::string(const RemoteFile&)> address = nullptr;
};

// A path as part of an address.
std::string encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<std::vector<RemoteFile>> hub_files(Transport& transport, const std::string& tree, const PullOptions& options) {
  std::vector<RemoteFile> all;
  std::set<std::string> paths;
  std::string next = fmt::format("{}?recursive=true&expand=false", tree);
  for (int page = 0; !next.empty(); ++page) {
    if (page == kMostPages) return error(Code::corrupt, "{}: a list of more than {} pages", tree, kMostPages);
    HttpHead head;
    TRY(const std::string text, transport.get_text({.url = next}, kMostAnswer, &head));
    auto listed = parse_hub_tree(text);
    if (!listed.ok()) return within(tree, std::move(listed).error());
    if (listed->skipped > 0 && options.note != nullptr)
      options.note(fmt::format("{} files with names that could leave their folder are left out", listed->skipped));
    for (RemoteFile& file : listed->files) {
      if (!paths.insert(file.path).second) return error(Code::corrupt, "{}: '{}' is listed twice", tree, file.path);
      all.push_back(std::move(file));
    }
    next = next_page(head.get("link")).value_or("");
    if (!next.empty() && origin_of(next) != origin_of(tree))
      return error(Code::corrupt, "{}: the list goes on at another host, {}", tree, origin_of(next));
  }
  return all;
}

Result<Offer> hub_offer(Transport& transport, const ModelName& name, const PullOptions& options) {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  const std::string api = fmt::format("{}/api/models/{}/{}", name.origin, name.owner, name.name);
  TRY(const std::string text, transport.get_text({.url = fmt::format("{}/revision/{}", api, revision)}, kMostAnswer));
  auto model = parse_hub_model(text);
  if (!model.ok()) return within(api, std::move(model).error());
  // Everything else is asked of that commit, so that a change meanwhile mixes nothing.
  const std::string commit = model->commit.empty() ? revision : model->commit;
  TRY(const auto files, hub_files(transport, fmt::format("{}/tree/{}", api, commit), options));
  Offer offer{.revision = commit, .license = model->license};
  offer.page = fmt::format("{}/{}/{}", name.origin, name.owner, name.name);
  auto chosen = choose_files(files, name.tag, name.file);
  if (!chosen.ok()) return within(offer.page, std::move(chosen).error());
  offer.chosen = std::move(*chosen);
  if (!name.revision.empty() && name.revision != "main") offer.chosen.tag += "@" + name.revision;
  offer.address = [base = fmt::format("{}/resolve/{}", offer.page, commit)](const RemoteFile& file) {
    return fmt::format("{}/{}", base, encoded(file.path));
  };
  return offer;
}

Result<Offer> registry_offer(Transport& transport, const ModelName& name) {
  const std::string base = fmt::format("{}/v2/{}/{}", name.origin, name.owner, name.name);
  Offer offer{.page = fmt::format("{}/manifests/{}", base, name.tag)};
  TRY(const std::string text,
      transport.get_text({.url = offer.page, .accept = "application/vnd.docker.distribution.manifest.v2+json"},
                         kMostAnswer));
  auto files = parse_registry_manifest(text);
  if (!files.ok()) return within(offer.page, std::move(files).error());
  offer.chosen = {.files = std::move(*files), .model = "model.gguf", .tag = name.tag};
  offer.address = [base](const RemoteFile& file) { return fmt::format("{}/blobs/sha256:{}", base, file.sha256); };
  return offer;
}

// One process at a time gathers a model; the lock goes with the process.
class GatherLock {
 public:
  explicit GatherLock(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~GatherLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  GatherLock(const GatherLock&) = delete;
  GatherLock& operator=(const GatherLock&) = delete;
  bool held() const { return fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }

 private:
  int fd_;
};

Result<void> check_room(const fs::path& folder, uint64_t needed) {
  struct statvfs disk = {};
  if (::statvfs(folder.c_str(), &disk) != 0) return os_error(folder, "look at");
  const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (needed <= free && free - needed >= kSpare) return {};
  return error(Code::io,
               "{} more are needed and {} are free at {} (of which {} stay free): remove a model (`millrace list`, "
               "`millrace rm NAME`) or choose another folder (--models-dir)",
               human_bytes(needed), human_bytes(free), folder.string(), human_bytes(kSpare));
}

Result<void> write_notes(const fs::path& gathered, const ModelName& name, const Offer& offer) {
  JsonArray files;
  for (const RemoteFile& file : offer.chosen.files) {
    JsonObject row = {{"path", file.path}, {"size", file.size}};
    if (!file.sha256.empty()) row["sha256"] = file.sha256;
    if (!file.git.empty()) row["git"] = file.git;
    files.push_back(std::move(row));
  }
  using namespace std::chrono;
  const JsonObject notes = {{"name", shown_name(name.host, name.owner, name.name, offer.chosen.tag)},
                            {"source", offer.page},
                            {"revision", offer.revision},
                            {"license", offer.license},
                            {"model", offer.chosen.model},
                            {"pulled", duration_cast<seconds>(system_clock::now().time_since_epoch()).count()},
                            {"files", std::move(files)}};
  TRY(AtomicFile out, AtomicFile::create(gathered / kModelNotes));
  TRY_VOID(out.write(to_pretty_text(notes) + "\n"));
  return out.commit();
}

std::vector<Download> downloads_of(const Offer& offer, const fs::path& gathered, const PullOptions& options) {
  std::vector<Download> all;
  for (const RemoteFile& file : offer.chosen.files) {
    all.push_back({.url = offer.address(file),
                   .target = gathered / file.path,
                   .file = file,
                   .retries = options.retries,
                   .note = options.note,
                   .go_on = options.go_on});
  }
  return all;
}

Result<void> fetch_all(Transport& transport, std::vector<Download> downloads, const fs::path& gathered,
                       const PullOptions& options) {
  uint64_t total = 0, here = 0;
  for (const Download& download : downloads) {
    if (download.file.sha256.empty() && download.file.git.empty())
      return error(Code::unsupported, "{}: the hub states no digest for it, so it could not be checked", download.url);
    total += download.file.size;  // at most 10,000 files of 2^50 bytes
    here += bytes_here(download);
  }
  TRY_VOID(check_room(gathered, total - here));
  if (options.note != nullptr) {
    options.note(fmt::format("{} in {} {}{}", human_bytes(total), downloads.size(),
                             downloads.size() == 1 ? "file" : "files",
                             here > 0 ? fmt::format(", {} of it here already", human_bytes(here)) : ""));
  }
  uint64_t before = 0;
  for (Download& download : downloads) {
    std::error_code failed;
    fs::create_directories(download.target.parent_path(), failed);
    if (failed)
      return error(Code::io, "{}: cannot be made: {}", download.target.parent_path().string(), failed.message());
    download.progress = [&](uint64_t done) {
      if (options.progress != nullptr) options.progress(before + done, total);
    };
    TRY_VOID(fetch_file(transport, download));
    before += download.file.size;
  }
  return {};
}

// Files of an earlier try that this one has no use for: another quantisation's, another commit's.
void drop_strangers(const std::vector<Download>& downloads, const fs::path& gathered) {
  std::set<fs::path> wanted;
  for (const Download& download : downloads) wanted.insert({download.target, part_path(download)});
  std::vector<fs::path> strangers;
  std::error_code failed;
  for (fs::recursive_directory_iterator next(gathered, failed), end; !failed && next != end; next.increment(failed)) {
    std::error_code ignored;
    if (!next->is_directory(ignored) && !wanted.contains(next->path())) strangers.push_back(next->path());
  }
  for (const fs::path& stranger : strangers) fs::remove(stranger, failed);
}

bool is_current(const fs::path& place, const Offer& offer) {
  auto text = read_file(place / kModelNotes, kMostAnswer);
  if (!text.ok()) return false;
  auto notes = parse_json(*text);
  const Json* files = notes.ok() ? find(*notes, "files") : nullptr;
  if (files == nullptr || !files->is_array() || files->get_array().size() != offer.chosen.files.size()) return false;
  for (size_t i = 0; i < offer.chosen.files.size(); ++i) {
    const RemoteFile& file = offer.chosen.files[i];
    const Json& row = files->get_array()[i];
    auto path = get_string(row, "path", ""), sha256 = get_string(row, "sha256", ""), git = get_string(row, "git", "");
    std::error_code failed;
    if (!path.ok() || !sha256.ok() || !git.ok() || *path != file.path || *sha256 != file.sha256 || *git != file.git ||
        fs::file_size(place / file.path, failed) != file.size)
      return false;
  }
  return true;
}

Result<LocalModel> gather(Transport& transport, const ModelFolder& folder, const ModelName& name, const Offer& offer,
                          const PullOptions& options) {
  const fs::path place = folder.place_of(name.host, name.owner, name.name, offer.chosen.tag);
  const std::string shown = shown_name(name.host, name.owner, name.name, offer.chosen.tag);
  if (is_current(place, offer)) {
    if (options.note != nullptr) options.note(fmt::format("{} is here already, as {} has it", shown, offer.page));
    return folder.at(place);
  }
  const fs::path gathered = folder.gathering_place(place);
  std::error_code failed;
  fs::create_directories(gathered, failed);
  if (failed) return error(Code::io, "{}: cannot be made: {}", gathered.string(), failed.message());
  const GatherLock lock(gathered);
  if (!lock.held()) return error(Code::overloaded, "another process is pulling {}", shown);
  const std::vector<Download> downloads = downloads_of(offer, gathered, options);
  drop_strangers(downloads, gathered);
  TRY_VOID(fetch_all(transport, downloads, gathered, options));
  TRY_VOID(write_notes(gathered, name, offer));
  TRY_VOID(folder.publish(gathered, place));
  return folder.at(place);
}

}  // namespace

Result<LocalModel> fetch_model(const ModelFolder& folder, const ModelName& name, const PullOptions& options) {
  const bool hub = name.source == ModelName::Source::hub;
  Transport transport({.ca_file = options.ca_file,
                       .token = hub ? options.token : "",
                       .token_origin = options.token_origin,
                       .go_on = options.go_on});
  auto offer = hub ? hub_offer(transport, name, options) : registry_offer(transport, name);
  if (!offer.ok() && offer.error().message.find("cannot be reached") != std::string::npos)
    return error(Code::io, "{}; {}", offer.error().message, by_hand(folder, name));
  if (!offer.ok()) return offer.error();
  return gather(transport, folder, name, *offer, options);
}

}  // namespace millrace
