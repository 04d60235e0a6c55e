// How large anything a specification names may be, and the checks that its kinds share. Any thread.
#pragma once

#include <optional>
#include <string_view>

#include "model/spec.h"

namespace millrace {

inline constexpr int64_t kMaxWidth = 1 << 20;  // of any vector of a layer; the largest known models have 2^17
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

Result<void> in_range(std::string_view what, int64_t value, int64_t max);  // from 1
Result<void> check_norm(const std::optional<NormSpec>& norm);

}  // namespace millrace
