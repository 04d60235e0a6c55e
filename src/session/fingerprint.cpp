#include "session/fingerprint.h"

#include "backend/numerics.h"

namespace millrace {
namespace {

Identity pages_of(const Model& model, const Backend& backend, const KvForm& kv) {
  CHECK(model.content().has_value(), "a fingerprint needs the digest of the weights: LoadOptions::digest");
  Digest digest;
  digest.add_sized("millrace");
  digest.add_sized(fmt::format("numerics {}", kNumericsVersion));
  digest.add_sized(backend.numerics());
  digest.add_sized(kv.name());
  if (model.spec().keep) digest.add_sized(model.spec().keep.name());
  digest.add(*model.content());
  return digest.finish();
}

const TextDigests& text_of(const LoadedModel& loaded) {
  CHECK(loaded.text_digests().has_value(), "a fingerprint needs the digests of the text: LoadChoice::fingerprint");
  return *loaded.text_digests();
}

void add_token_list(Digest& digest, std::string_view name, std::span<const Token> tokens) {
  digest.add_sized(name);
  digest.add_sized(fmt::format("{}", fmt::join(tokens, " ")));
}

}  // namespace

Fingerprint fingerprint_of(const LoadedModel& loaded, const KvForm& kv, const Drafters* drafters) {
  Fingerprint print{.pages = pages_of(loaded.model(), loaded.backend(), kv), .tokens = {}};
  Digest digest;
  digest.add(print.pages);
  digest.add(text_of(loaded).tokenizer);
  const auto guessed = drafters != nullptr ? drafters->changes() : std::nullopt;
  if (guessed) digest.add(*guessed);
  print.tokens = digest.finish();
  return print;
}

std::string fingerprint_text(const Fingerprint& print, const LoadedModel& loaded, const SamplingDefaults& defaults) {
  Digest digest;
  digest.add(print.tokens);
  digest.add(text_of(loaded).tokenizer);  // of this process, which may not be the one whose tokens they are
  digest.add(text_of(loaded).chat);
  if (const auto begin = loaded.begin_token()) add_token_list(digest, "begin", {{*begin}});
  add_token_list(digest, "ends", loaded.end_tokens());
  digest.add_sized(to_text(sampling_json(defaults)));
  for (const std::string& breaker : defaults.dry_breakers) digest.add_sized(breaker);
  const FillAsk& fill = defaults.fill;
  digest.add_sized(fmt::format("fill {} {} {}", fill.steps, fill.block, remasking_name(fill.remasking)));
  const Identity whole = digest.finish();
  return fmt::format("fp_{:02x}", fmt::join(std::span(whole.bytes).first(6), ""));
}

}  // namespace millrace
