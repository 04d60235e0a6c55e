#include "hub/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "hub/listing.h"
#include "hub/name.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsed = ".used";
constexpr const char* kPartial = ".partial";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return out;
}

// What is in a folder, by name; hidden things are not.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator next(folder, failed), end; !failed && next != end; next.increment(failed)) {
    if (!next->path().filename().string().starts_with('.')) found.push_back(next->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

uint64_t bytes_below(const fs::path& place) {
  std::error_code failed;
  if (fs::is_regular_file(place, failed)) return fs::file_size(place, failed);
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator next(place, failed), end; !failed && next != end; next.increment(failed)) {
    std::error_code ignored;
    if (next->is_regular_file(ignored)) bytes += next->file_size(ignored);
  }
  return bytes;
}

// The empty file whose time is that of the last use: in a model's folder, beside one that is a file.
fs::path use_mark(const LocalModel& model) {
  std::error_code failed;
  if (fs::is_directory(model.folder, failed)) return model.folder / kUsed;
  return model.folder.parent_path() / fmt::format(".{}{}", model.folder.filename().string(), kUsed);
}

void look_at(LocalModel& model) {
  std::error_code failed;
  model.bytes = bytes_below(model.folder);
  model.modified = fs::last_write_time(model.folder, failed);
  const auto used = fs::last_write_time(use_mark(model), failed);
  if (!failed) model.used = used;
}

std::optional<LocalModel> pulled_model(const fs::path& folder) {
  auto text = read_file(folder / kModelNotes, size_t{16} << 20);
  if (!text.ok()) return std::nullopt;
  auto notes = parse_json(*text);
  if (!notes.ok()) return std::nullopt;
  auto name = get_string(*notes, "name", ""), model = get_string(*notes, "model", "");
  if (!name.ok() || !model.ok() || name->empty() || (!model->empty() && !is_plain_path(*model))) return std::nullopt;
  LocalModel found{.name = *name, .folder = folder, .model = folder, .pulled = true};
  if (!model->empty()) found.model /= *model;
  found.notes = std::move(*notes);
  look_at(found);
  return found;
}

// What someone put there: a GGUF file, a folder with config.json, or one with a GGUF file in it.
std::optional<LocalModel> placed_model(const fs::path& path) {
  std::error_code failed;
  LocalModel found{.name = path.filename().string(), .folder = path, .model = path};
  if (fs::is_regular_file(path, failed)) {
    if (path.extension() != ".gguf") return std::nullopt;
    found.name = path.stem().string();
  } else if (!fs::is_regular_file(path / "config.json", failed)) {
    fs::path first;
    for (const fs::path& file : entries(path)) {
      if (file.extension() == ".gguf" && fs::is_regular_file(file, failed) && first.empty()) first = file;
    }
    if (first.empty()) return std::nullopt;
    found.model = first;
  }
  look_at(found);
  return found;
}

// "hf.co/owner/name:tag" and every shorter form it may be called by, longest first.
std::vector<std::string> spellings(const LocalModel& model, const fs::path& root) {
  std::vector<std::string> all = {lower(model.name)};
  if (!model.pulled) return all;
  std::vector<std::string> parts;
  for (const fs::path& part : model.folder.lexically_relative(root)) parts.push_back(lower(part.string()));
  if (parts.size() != 4) return all;
  const size_t colon = all[0].rfind(':');
  if (colon != std::string::npos && all[0].find('/', colon) == std::string::npos)
    all.push_back(all[0].substr(0, colon));  // with the host's port, which the folder has not
  for (size_t from = 0; from < 3; ++from) {
    std::string name;
    for (size_t i = from; i < 3; ++i) name += (i == from ? "" : "/") + parts[i];
    all.push_back(fmt::format("{}:{}", name, parts[3]));
    all.push_back(name);
  }
  return all;
}

}  // namespace

fs::path models_folder(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* data = std::getenv("XDG_DATA_HOME");
  const char* home = std::getenv("HOME");
  const fs::path root = data != nullptr && *data != '\0'   ? fs::path(data)
                        : home != nullptr && *home != '\0' ? fs::path(home) / ".local/share"
                                                           : fs::temp_directory_path();
  return root / "millrace" / "models";
}

Json registry_values(const fs::path& model) {
  std::error_code failed;
  const fs::path folder = model.parent_path();
  if (!fs::is_regular_file(folder / kModelNotes, failed)) return nullptr;
  auto text = read_file(folder / "params.json", size_t{1} << 20);
  if (!text.ok()) return nullptr;
  auto values = parse_json(*text);
  return values.ok() && values->is_object() ? std::move(*values) : Json();
}

std::vector<LocalModel> ModelFolder::list() const {
  std::vector<LocalModel> all;
  for (const fs::path& top : entries(root_)) {
    if (auto placed = placed_model(top)) {
      all.push_back(std::move(*placed));
      continue;
    }
    for (const fs::path& owner : entries(top)) {
      for (const fs::path& name : entries(owner)) {
        for (const fs::path& tag : entries(name)) {
          if (auto pulled = pulled_model(tag)) all.push_back(std::move(*pulled));
        }
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

Result<LocalModel> ModelFolder::find(std::string_view typed) const {
  std::string wanted = lower(typed);
  for (std::string_view prefix : {"https://", "http://"}) {
    if (wanted.starts_with(prefix)) wanted.erase(0, prefix.size());
  }
  if (wanted.starts_with("huggingface.co/")) wanted.replace(0, 14, "hf.co");
  if (wanted.ends_with(".gguf") && wanted.find('/') == wanted.npos) wanted.resize(wanted.size() - 5);
  std::vector<LocalModel> matches;
  for (LocalModel& model : list()) {
    if (lower(model.name) == wanted) return std::move(model);
    const auto all = spellings(model, root_);
    if (std::find(all.begin(), all.end(), wanted) != all.end()) matches.push_back(std::move(model));
  }
  if (matches.size() == 1) return std::move(matches.front());
  if (matches.empty()) return error(Code::not_found, "there is no model '{}' in {}", typed, root_.string());
  std::string names;
  for (const LocalModel& model : matches) names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  return error(Code::invalid, "'{}' may mean {}: name one of them", typed, names);
}

Result<LocalModel> ModelFolder::at(const fs::path& place) const {
  auto found = pulled_model(place);
  if (!found) return error(Code::corrupt, "{}: there is no model with a readable {}", place.string(), kModelNotes);
  return std::move(*found);
}

fs::path ModelFolder::place_of(std::string_view host, std::string_view owner, std::string_view name,
                               std::string_view tag) const {
  std::string first(host);
  std::replace(first.begin(), first.end(), ':', '_');
  return root_ / first / owner / name / tag;
}

fs::path ModelFolder::gathering_place(const fs::path& place) const {
  return root_ / kPartial / place.lexically_relative(root_);
}

// Out of the way by one rename, then removed at leisure.
Result<void> ModelFolder::set_aside(const fs::path& place) const {
  std::error_code failed;
  const fs::path aside = root_ / kPartial / fmt::format("removed-{}", ::getpid());
  fs::create_directories(aside.parent_path(), failed);
  fs::remove_all(aside, failed);
  fs::rename(place, aside, failed);
  if (failed) return error(Code::io, "{}: cannot be moved away: {}", place.string(), failed.message());
  fs::remove_all(aside, failed);
  if (failed) return error(Code::io, "{}: cannot be removed: {}", aside.string(), failed.message());
  return {};
}

Result<void> ModelFolder::publish(const fs::path& gathered, const fs::path& place) const {
  std::error_code failed;
  fs::create_directories(place.parent_path(), failed);
  if (fs::exists(place, failed)) TRY_VOID(set_aside(place));
  fs::rename(gathered, place, failed);
  if (failed) return error(Code::io, "{} cannot become {}: {}", gathered.string(), place.string(), failed.message());
  for (fs::path empty = gathered.parent_path(); empty != root_ && !empty.empty(); empty = empty.parent_path()) {
    if (::rmdir(empty.c_str()) != 0) break;
  }
  return {};
}

Result<void> ModelFolder::remove(const LocalModel& model) const {
  std::error_code failed;
  if (!fs::is_directory(model.folder, failed)) ::unlink(use_mark(model).c_str());
  if (fs::is_symlink(model.folder, failed)) {
    if (::unlink(model.folder.c_str()) != 0) return os_error(model.folder, "remove");
    return {};
  }
  TRY_VOID(set_aside(model.folder));
  for (fs::path empty = model.folder.parent_path(); empty != root_ && !empty.empty(); empty = empty.parent_path()) {
    if (::rmdir(empty.c_str()) != 0) break;
  }
  ::rmdir((root_ / kPartial).c_str());
  return {};
}

void ModelFolder::mark_used(const LocalModel& model) {
  const int fd = ::open(use_mark(model).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return;
  ::futimens(fd, nullptr);
  ::close(fd);
}

}  // namespace millrace
