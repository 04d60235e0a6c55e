// Sinks and a window (StreamingLLM): every attention layer reads the first few tokens and the last so many, and the
// cache keeps no others, so that a chat without end has a fixed size. A row at position p reads what it would read if
// the tokens between had never been: the sinks are seen from sinks + window - 1 at the most, so no distance grows
// beyond what the model was trained for. Until something is forgotten nothing differs. Or only some layers do so
// (streaming layers): then the cache grows with the others. Any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/spec.h"

namespace millrace {

inline constexpr int32_t kMostSinks = 128;  // kernels read them at once
inline constexpr int32_t kMostWindow = 1 << 24;

// "sinks:4,window:4096", in any order; without sinks there are 4. With "layers:0-3+7" only these forget. The error says
// what was expected.
Result<KvKeep> kv_keep_from(std::string_view text);

// How far back rows of so long a sequence see at the most, themselves included: what rotations are chosen for.
int64_t reach_of(const KvKeep& keep, int64_t context);

// Gives the layers these windows. Refused with the reason where a layer that is to forget has a window or state of its
// own, or where forgetting makes no sense; nothing to be kept changes nothing.
Result<void> forget(ModelSpec& spec, const KvKeep& keep);

}  // namespace millrace
