// Fingerprint: what decides an answer beside the request. Two processes with the same one give the same bytes to the
// same request, and may go on from each other's tokens and cached pages; whatever is kept or shared is kept under it.
// Any thread.
#pragma once

#include <string>

#include "cache/identity.h"
#include "session/loaded_model.h"
#include "tensor/dtype.h"

namespace millrace {

struct Fingerprint {
  Identity identity;
  std::string text() const;  // "fp_" and twelve hexadecimal digits, for people and clients
};

// Of the weights' bytes and settings (Model::content), the type of the cache, the arithmetic (backend/numerics.h) and
// its version. Not of names, threads, or how much memory there is. The model was loaded with its digest taken.
Fingerprint fingerprint_of(const Model& model, const Backend& backend, const KvForm& kv);

}  // namespace millrace
