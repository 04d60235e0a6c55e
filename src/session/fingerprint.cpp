#include "session/fingerprint.h"

#include "backend/numerics.h"

namespace millrace {

std::string Fingerprint::text() const {
  return fmt::format("fp_{:02x}", fmt::join(std::span(identity.bytes).first(6), ""));
}

Fingerprint fingerprint_of(const Model& model, const Backend& backend, const KvForm& kv) {
  CHECK(model.content().has_value(), "a fingerprint needs the digest of the weights: LoadOptions::digest");
  Digest digest;
  digest.add_sized("millrace");
  digest.add_sized(fmt::format("numerics {}", kNumericsVersion));
  digest.add_sized(numerics_of(backend));
  digest.add_sized(kv.name());
  if (model.spec().keep) digest.add_sized(model.spec().keep.name());
  digest.add(*model.content());
  return {digest.finish()};
}

}  // namespace millrace
