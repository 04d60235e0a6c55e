// Sinks and a window (StreamingLLM): every attention layer reads the first few tokens and the last so many, and the
// cache keeps no others, so that a chat without end has a fixed size. A row at position p reads what it would read if
// the tokens between had never been: the sinks are seen from sinks + window - 1 at the most, so no distance grows
// beyond what the model was trained for. Until something is forgotten nothing differs. Any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/spec.h"

namespace millrace {

inline constexpr int32_t kMostSinks = 128;  // kernels read them at once
inline constexpr int32_t kMostWindow = 1 << 24;

// "sinks:4,window:4096", in any order; without sinks there are 4. The error says what was expected.
Result<KvKeep> kv_keep_from(std::string_view text);

// Gives the layers these windows. Refused with the reason where a model has windows or states of its own, or where
// forgetting makes no sense; nothing to be kept changes nothing.
Result<void> forget(ModelSpec& spec, const KvKeep& keep);

}  // namespace millrace
