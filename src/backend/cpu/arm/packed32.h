// What both rows know of weights with a factor per 32 of them (Q8_0, Q4_0, ...).
#pragma once

#include "backend/cpu/arm/panels.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kGroup = 32;
constexpr int kSteps = 4;  // of eight inputs, in a group

// How a row that comes alone is multiplied: as any other, as Q4_0's split row, or as Q8_0's.
enum class LoneRow : uint8_t { plain, split, bytes };

// A format F has: kBytes of a packed panel's group, kFileBytes of a group in the file, kMins, kShared, kStarts;
// factors() and minimums() of eight outputs; values(): steps 2j and 2j+1 of pair p, times a power of two that kAfter
// undoes; kWideValues, where in a packed group all values lie as a wide panel has them, or negative; pack() eight rows'
// groups (null: zeros) and unpack() one of them.
template <class F>
using Packed32 = Panels<F, kGroup>;

}  // namespace
}  // namespace millrace::cpu
