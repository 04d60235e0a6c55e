// Any text as what people type for a model, and as what hubs and registries answer. The first byte says which.
#include "base/check.h"
#include "hub/listing.h"
#include "hub/name.h"

namespace millrace {
namespace {

void check_files(const std::vector<RemoteFile>& files) {
  for (const RemoteFile& file : files) {
    CHECK(is_plain_path(file.path) && file.path.find("..") != 0 && file.path[0] != '/');
    CHECK(file.sha256.empty() || file.sha256.size() == 64);
    CHECK(file.git.empty() || file.git.size() == 40);
  }
}

void name(std::string_view text) {
  const auto parsed = parse_name(text);
  if (!parsed.ok()) return;
  for (const std::string& part : {parsed->owner, parsed->name}) CHECK(is_plain_part(part));
  CHECK(parsed->tag.empty() || is_plain_part(parsed->tag));
  CHECK(parsed->file.empty() || is_plain_path(parsed->file));
  // What is shown means the same again, wherever it says where.
  const std::string shown = shown_name(parsed->host, parsed->owner, parsed->name, parsed->tag);
  if (parsed->host != "hf.co" && parsed->host != "ollama.com") return;
  const auto again = parse_name(shown);
  CHECK(again.ok() && again->owner == parsed->owner && again->name == parsed->name && again->host == parsed->host);
}

void tree(std::string_view text) {
  const auto listed = parse_hub_tree(text);
  if (!listed.ok()) return;
  check_files(listed->files);
  for (std::string_view tag : {"", "Q4_K_M", "latest"}) {
    const auto chosen = choose_files(listed->files, tag, "");
    if (!chosen.ok()) continue;
    CHECK(!chosen->files.empty() && is_plain_part(chosen->tag));
    CHECK(chosen->model.empty() || is_plain_path(chosen->model));
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      name(text);
      break;
    case 1:
      tree(text);
      break;
    case 2:
      if (const auto files = parse_registry_manifest(text); files.ok()) check_files(*files);
      break;
    case 3:
      if (const auto model = parse_hub_model(text); model.ok()) CHECK(model->commit.size() <= 64);
      break;
    default:
      if (const auto next = next_page(text)) CHECK(next->size() < text.size());
  }
  return 0;
}
