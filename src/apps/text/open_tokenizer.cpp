#include "apps/text/open_tokenizer.h"

#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// Null if the file is not there.
Result<Json> optional_json(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json();
  TRY(std::string text, read_file(path));
  auto json = parse_json(text);
  if (!json.ok()) return within(path.string(), std::move(json).error());
  return json;
}

Result<Tokenizer> from_file(const fs::path& path) {
  fs::path folder = path.parent_path();
  TRY(std::string text, read_file(path));
  TRY(Json config, optional_json(folder / "tokenizer_config.json"));
  TRY(Json generation, optional_json(folder / "generation_config.json"));
  auto tokenizer = Tokenizer::from_json(text, config, generation);
  if (!tokenizer.ok()) return within(path.string(), std::move(tokenizer).error());
  return tokenizer;
}

}  // namespace

Result<Tokenizer> open_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (path.extension() == ".json" && fs::is_regular_file(path, ignored)) return from_file(path);
  if (fs::is_regular_file(path / "tokenizer.json", ignored)) return from_file(path / "tokenizer.json");
  TRY(Checkpoint checkpoint, Checkpoint::open(path));
  return Tokenizer::open(checkpoint);
}

}  // namespace millrace::apps
