// Fingerprint: what decides answers beside the requests, in three steps, each a digest of the one before and of more:
//
//   pages    what keys and values follow from: the weights' bytes and the model's settings, the form of the cache and
//            what it keeps, the arithmetic (Backend::numerics) and its version. Prefix trees, cache files and pages
//            shared by replicas are kept under it (or under what Drafters::identity makes of it), so servers that
//            differ in what follows share them.
//   tokens   what an engine's tokens follow from: that, the tokenizer, which bound answers go by, and where guesses
//            change answers (a draft rule other than the exact one) the rule, the number of guesses and whatever
//            guesses. An engine's process goes on with what another began only if it is the same.
//   text     what clients see as `system_fingerprint`, and what streams are resumed by: that, the chat template, the
//            tokens that end an answer, and what is taken for fields that a request leaves out.
//
// Where the last is equal, so are the bytes of answers to equal requests, as far as they fit both contexts. What a
// request names counts as the request's: an adapter is known by its own digest (AdapterInfo::content), and a template
// may ask for the date. Not in any: names of files, threads, memory, the context's length. Any thread.
#pragma once

#include <string>

#include "cache/identity.h"
#include "session/loaded_model.h"
#include "session/sampling_defaults.h"
#include "session/speculation.h"
#include "tensor/dtype.h"

namespace millrace {

struct Fingerprint {
  Identity pages, tokens;
};

// The model was loaded with LoadChoice::fingerprint. Without drafters nothing guesses.
Fingerprint fingerprint_of(const LoadedModel& loaded, const KvForm& kv, const Drafters* drafters = nullptr);

// "fp_" and twelve hexadecimal digits. The tokens may be another process's; `loaded` is what reads and writes text
// here, and may be without weights.
std::string fingerprint_text(const Fingerprint& print, const LoadedModel& loaded, const SamplingDefaults& defaults);

}  // namespace millrace
