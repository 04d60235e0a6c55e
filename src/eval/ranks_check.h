// The check behind "however many ranks": the logits of a text, in steps of several lengths and in a crowd, to be
// compared bit for bit with those of another number of ranks. The caller's thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cache/identity.h"
#include "engine/executor.h"

namespace millrace {

struct RanksWay {
  std::string name;
  std::vector<Identity> rows;  // a digest of each row's logits
};

// The model and the backend are those of one rank or of the first of several.
Result<std::vector<RanksWay>> run_ranks_ways(const Model& model, Backend& backend, std::span<const Token> tokens,
                                             const KvForm& kv);

// The first row that differs in any way, named; empty: none.
std::string first_difference(std::span<const RanksWay> expected, std::span<const RanksWay> found);

}  // namespace millrace
