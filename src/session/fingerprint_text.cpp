#include "session/fingerprint_text.h"

#include <map>
#include <type_traits>

#include "base/file.h"
#include "base/json.h"
#include "cache/bulk_digest.h"

namespace millrace {
namespace {

void add_bulk(Digest& digest, std::string_view name, std::span<const std::byte> bytes) {
  digest.add_sized(name);
  digest.add(bulk_digest(bytes));
}

void add_file(Digest& digest, const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (text.ok()) add_bulk(digest, path.filename().string(), std::as_bytes(std::span(*text)));
}

// By name, whatever their order; without the template, which has a digest of its own.
void add_settings(Digest& digest, const Json& settings) {
  const auto* object = settings.if_object();
  std::map<std::string, std::string> sorted;
  if (object != nullptr)
    for (const auto& member : *object) sorted[member.key()] = to_text(member.value());
  sorted.erase("chat_template");
  for (const auto& [name, value] : sorted) {
    digest.add_sized(name);
    digest.add_sized(value);
  }
}

// Of some models the name decides how control tokens are read.
bool is_of_tokenizer(std::string_view key) {
  return key == "general.name" ||
         (key.find("tokenizer.") != key.npos && key.find("chat_template") == std::string_view::npos);
}

void add_entry(Digest& digest, const MetaEntry& entry) {
  digest.add_sized(entry.key);
  std::visit(
      [&](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, MetaArray>) {
          add_bulk(digest, meta_type_name(value.type()), value.bytes());
        } else {
          digest.add_sized(fmt::format("{}", value));
        }
      },
      entry.value);
}

}  // namespace

Identity digest_of_tokenizer(const Checkpoint& checkpoint) {
  Digest digest;
  for (const MetaEntry& entry : checkpoint.metadata().entries())
    if (is_of_tokenizer(entry.key)) add_entry(digest, entry);
  if (checkpoint.kind() == Checkpoint::Kind::hugging_face)
    add_file(digest, checkpoint.tokenizer_json().value_or(checkpoint.path() / "vocab.txt"));
  add_settings(digest, checkpoint.tokenizer_config());
  return digest.finish();
}

#if MILLRACE_SESSION_TEXT
Identity digest_of_chat(const ChatFacts& facts) {
  Digest digest;
  for (const ChatFacts::Named& each : facts.templates) {
    digest.add_sized(each.name);
    digest.add_sized(each.source);
  }
  digest.add_sized(to_text(facts.tokens));
  return digest.finish();
}
#endif

}  // namespace millrace
