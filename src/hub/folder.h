// The folder models lie in, by name. A pulled model is the folder HOST/OWNER/NAME/TAG with its files and millrace.json,
// which says where they came from; a GGUF file or a folder with a model that someone put straight into it goes by its
// own name. What is being fetched lies under .partial until it is whole. Any thread; several processes at once are
// fine, since a model appears and goes by one rename.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace millrace {

inline constexpr const char* kModelNotes = "millrace.json";

struct LocalModel {
  std::string name;              // "unsloth/Qwen3-0.6B-GGUF:Q4_K_M", or that of the file
  std::filesystem::path folder;  // all of it; a file for one that is a file
  std::filesystem::path model;   // what to open: a GGUF file or a directory
  bool pulled = false;
  uint64_t bytes = 0;
  std::filesystem::file_time_type modified = {};
  std::optional<std::filesystem::file_time_type> used;  // when a verb last opened it by name
  Json notes;                                           // millrace.json; null if it was not pulled
};

// `chosen` if it is not empty, else $XDG_DATA_HOME/millrace/models or ~/.local/share/millrace/models.
std::filesystem::path models_folder(const std::string& chosen);

// What a registry gave with a model beside its weights, by the path of these: values for sampling as an object. Null if
// there are none.
Json registry_values(const std::filesystem::path& model);

class ModelFolder {
 public:
  explicit ModelFolder(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }

  // All that are there, by name. Nothing if the folder is not there.
  std::vector<LocalModel> list() const;
  // By what someone types: the name, with or without host, owner and tag, case aside, as long as it means one model.
  Result<LocalModel> find(std::string_view typed) const;
  // A pulled one, by its folder.
  Result<LocalModel> at(const std::filesystem::path& place) const;

  std::filesystem::path place_of(std::string_view host, std::string_view owner, std::string_view name,
                                 std::string_view tag) const;
  // Where files gather that will be place_of().
  std::filesystem::path gathering_place(const std::filesystem::path& place) const;
  // Puts a gathered model in its place, instead of one that was there.
  Result<void> publish(const std::filesystem::path& gathered, const std::filesystem::path& place) const;

  Result<void> remove(const LocalModel& model) const;
  // Notes the time; that a folder cannot be written to is no matter.
  static void mark_used(const LocalModel& model);

 private:
  Result<void> set_aside(const std::filesystem::path& place) const;
  std::filesystem::path root_;
};

}  // namespace millrace
