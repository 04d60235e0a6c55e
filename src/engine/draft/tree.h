// Which of a drafter's guesses are tried, where several are tried for one place: the likeliest path, and others that
// leave it somewhere. Rows are what they cost: one for each guess of the first path, and for every other one as many as
// it has guesses and one more, since it is computed from the last known token on (branches.h). Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "base/token.h"

namespace millrace {

inline constexpr int kMostBranches = 8;  // of one answer in one step

// How many guesses the first path has, of so many rows.
int main_depth(int rows, int branches);
// How many guesses for the place at this depth (from 0) can be of use.
int choices_at(int depth, int branches);

// `choices` has for each place what may come there, likeliest first. `free`: what comes at one place does not go by
// what was guessed before it (Medusa), so paths that leave the first one go on with its later guesses. At most
// `branches` paths come out, and all of them together take at most `rows`.
void plan_paths(std::span<const std::vector<Token>> choices, bool free, int rows, int branches,
                std::vector<Token>& main, std::vector<std::vector<Token>>& others);

}  // namespace millrace
