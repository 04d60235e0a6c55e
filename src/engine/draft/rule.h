// Rules by which guesses are kept. 'exact' is the rule of everything else here: a guess is kept if it is the token that
// would have been chosen anyway, so an answer is the plain one. The other two draw differently, so an answer is not the
// plain one for the same seed:
//
//   reject    Leviathan et al., Chen et al. (2023): a guess x drawn from q is kept with chance min(1, p(x) / q(x)); if
//             not, the token comes from what p has above q. Tokens have exactly the distribution p.
//   typical   Cai et al. (2024), Medusa: a guess is kept if p(x) > min(0.09, 0.3 exp(-entropy of p)). Approximate.
//
// There a token depends on where windows of guesses begin. So that an answer still does not depend on its neighbours,
// a window is whole or the answer waits, and only drafters that go by the answer's own tokens may guess. At temperature
// 0 all three come to the same. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/rng.h"
#include "base/token.h"
#include "engine/sampler.h"

namespace millrace {

enum class DraftRule : uint8_t { exact, reject, typical };
std::string_view rule_name(DraftRule rule);
Result<DraftRule> rule_named(std::string_view name);

// By reject: the guess itself, if it is kept, else another token. `p` and `q` by ascending id, as
// Sampler::distribution() gives them; without `q`, or with one that the guess cannot be from, the guess was certain.
// `at` names the answer and the position; the numbers drawn here are nobody else's.
Token take_or_reject(std::span<const TokenProbability> p, std::span<const TokenProbability> q, Token guess,
                     const Draw& at);
// By typical: whether the guess is kept.
bool is_typical(std::span<const TokenProbability> p, Token guess);

}  // namespace millrace
