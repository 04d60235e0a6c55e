// One rank of several: a backend over another that keeps a part of a model. All ranks must run the same steps
// (engine/ranks.h), and every number is the one a single rank computes, bit for bit.
//
//   outputs  this rank's outputs of every matrix and this rank's heads of the cache; its Ops compute those and gather
//            the rest, so inputs are whole on every rank. Weights keep their whole shape; what they point to is this
//            rank's part (ranks/share.h).
//   experts  the same, but of experts some whole ones: those of a row that it has, its two products after one another.
//   layers   whole layers, one after another, with their cache; rows go from rank to rank (model/forward.cpp).
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "backend/comm.h"

namespace millrace {

enum class RankCut : uint8_t { outputs, experts, layers };

// Refused on a machine apart.
Result<std::unique_ptr<Backend>> make_rank_backend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm,
                                                   RankCut cut = RankCut::outputs);

// The layers [begin, end) of a rank that has whole layers.
struct Stage {
  Comm* comm = nullptr;
  int32_t begin = 0, end = 0;

  bool has(int32_t layer) const { return layer >= begin && layer < end; }
  bool first() const { return comm->rank() == 0; }
  bool last() const { return comm->rank() + 1 == comm->ranks(); }
};
// None: the backend has all layers, or parts of all.
std::optional<Stage> stage_of(const Backend& backend, size_t layers);

// What a backend charges for the matrices of so many experts (or heads): for those it has, if it has whole ones.
int64_t experts_bytes(const Backend& backend, DType type, int64_t experts, int64_t rows, int64_t cols);

// The ranks that run the same steps with a backend; null: it is no rank.
Comm* comm_of(const Backend& backend);
// The backend that computes: the one below a rank, or itself.
const Backend& below(const Backend& backend);

}  // namespace millrace
