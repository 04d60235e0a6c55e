#include <algorithm>

#include "backend/ranks/apart.h"
#include "backend/ranks/ops.h"
#include "backend/ranks/ranks.h"
#include "backend/ranks/share.h"
#include "backend/reach.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

class RankBackend final : public Backend {
 public:
  RankBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm, RankCut cut)
      : inner_(std::move(inner)),
        comm_(std::move(comm)),
        cut_(cut),
        parts_(cut == RankCut::layers ? 1 : comm_->ranks()) {}

  std::string description() const override {
    return fmt::format("{}, rank {} of {} ({})", inner_->description(), comm_->rank(), comm_->ranks(), comm_->name());
  }
  std::string numerics() const override { return inner_->numerics(); }
  Comm* comm() const { return comm_.get(); }
  const Backend& inner() const { return *inner_; }
  RankCut cut() const { return cut_; }

  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    return inner_->weight_bytes(type, end(rows) - begin(rows), cols, use);
  }

  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    if (use != WeightUse::table) note_form(matrix.type);
    TRY(Weight weight, inner_->upload(part_of(matrix), use, {}));
    whole(weight, matrix.rows);
    if (!bias.empty()) {  // whole, as a tied head's own would be
      TRY(weight.bias, inner_->upload_vector(bias));
    }
    return weight;
  }

  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    if (cuts_experts(experts.experts)) return upload_whole(experts, bias);
    const int64_t first = begin(experts.rows), count = end(experts.rows) - first;
    HostExperts own = experts;
    own.rows = count;
    own.part = [&](int64_t expert) -> Result<HostMatrix> {
      TRY(const HostMatrix whole, experts.part(expert));
      return part_of(whole);
    };
    note_form(experts.type);
    TRY(Weight weight, inner_->upload_experts(own, {}));
    whole(weight, experts.rows);
    if (bias.empty()) return weight;
    // [experts, own rows], in as much room as the whole would take: that is what is planned.
    std::vector<float> part(bias.size());
    for (int64_t e = 0; e < experts.experts; ++e)
      std::copy_n(bias.begin() + e * experts.rows + first, count, part.begin() + e * count);
    TRY(weight.bias, inner_->upload_vector(part));
    return weight;
  }

  Result<const float*> upload_vector(std::span<const float> values) override { return inner_->upload_vector(values); }
  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override { return inner_->allocate(purpose, bytes); }
  int64_t used(Purpose purpose) const override { return inner_->used(purpose); }
  void set_limit(int64_t bytes) override { inner_->set_limit(bytes); }
  int64_t fixed_workspace() const override { return inner_->fixed_workspace(); }
  bool has_latents() const override { return inner_->has_latents(); }
  bool has_streams() const override { return inner_->has_streams(); }
  bool has_states() const override { return inner_->has_states(); }
  bool apart() const override { return inner_->apart(); }
  int64_t staging_bytes(int64_t bytes) const override { return inner_->staging_bytes(bytes); }
  Result<std::byte*> allocate_results(int64_t bytes) override { return inner_->allocate_results(bytes); }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override { inner_->copy(to, from, bytes); }
  // What a rank computes it writes where the whole belongs, so a rank needs the room of one that has all.
  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    if (apart() && comm_->ranks() > 1 && half_ && other_)
      return error(Code::unsupported,
                   "{} ranks on {}: it rounds what goes between products as most of the matrices are, and this model "
                   "has float16 ones and others, of which ranks have different parts; use one rank, or a file of one "
                   "format",
                   comm_->ranks(), inner_->description());
    TRY(auto ops, inner_->make_ops(workspace_bytes));
    if (apart() && dynamic_cast<Reach*>(ops.get()) == nullptr)
      return error(Code::unsupported, "{} ranks: rows of {} cannot be moved between ranks", comm_->ranks(),
                   inner_->description());
    if (cut_ == RankCut::layers) return ops;
    return std::unique_ptr<Ops>(std::make_unique<RankOps>(std::move(ops), *comm_, cut_));
  }

  int64_t own_experts(int64_t experts) const {
    if (!cuts_experts(experts)) return experts;
    return first_expert(experts, parts_, comm_->rank() + 1) - first_expert(experts, parts_, comm_->rank());
  }

 private:
  bool cuts_experts(int64_t experts) const { return cut_ == RankCut::experts && has_whole_experts(experts, parts_); }
  // This rank's experts, as they are.
  Result<Weight> upload_whole(const HostExperts& experts, std::span<const float> bias) {
    note_form(experts.type);
    const int64_t first = first_expert(experts.experts, parts_, comm_->rank()), count = own_experts(experts.experts);
    HostExperts own = experts;
    own.experts = count;
    own.part = [&](int64_t expert) { return experts.part(first + expert); };
    TRY(Weight weight, inner_->upload_experts(own, {}));
    weight.experts = static_cast<int32_t>(experts.experts);
    weight.bytes = weight.bytes * experts.experts / count;
    if (bias.empty()) return weight;
    // In as much room as the whole would take: that is what is planned.
    std::vector<float> part(bias.size());
    std::copy_n(bias.begin() + first * experts.rows, count * experts.rows, part.begin());
    TRY(weight.bias, inner_->upload_vector(part));
    return weight;
  }
  int64_t begin(int64_t rows) const { return is_cut(rows, parts_) ? first_row(rows, parts_, comm_->rank()) : 0; }
  int64_t end(int64_t rows) const { return is_cut(rows, parts_) ? first_row(rows, parts_, comm_->rank() + 1) : rows; }
  void note_form(DType type) { (type == DType::f16 ? half_ : other_) |= type != DType::f32; }
  // As the network knows it; its bytes are what all ranks read together.
  static void whole(Weight& weight, int64_t rows) {
    weight.bytes = weight.bytes * rows / weight.rows;
    weight.rows = rows;
  }
  // A matrix that is not what it says goes below as it is, to be refused there.
  HostMatrix part_of(const HostMatrix& matrix) const {
    HostMatrix part = matrix;
    const Format& f = format(matrix.type);
    if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.cols % f.group != 0) return part;
    const auto row = static_cast<size_t>(bytes_of(matrix.type, matrix.cols));
    if (matrix.bytes.size() / row != static_cast<size_t>(matrix.rows) || matrix.bytes.size() % row != 0) return part;
    part.rows = end(matrix.rows) - begin(matrix.rows);
    part.bytes =
        matrix.bytes.subspan(static_cast<size_t>(begin(matrix.rows)) * row, static_cast<size_t>(part.rows) * row);
    return part;
  }

  std::unique_ptr<Backend> inner_;
  std::shared_ptr<Comm> comm_;
  RankCut cut_;
  int parts_;                          // that outputs are cut into
  bool half_ = false, other_ = false;  // it has float16 matrices, and some of other formats
};

}  // namespace

Comm* comm_of(const Backend& backend) {
  const auto* rank = dynamic_cast<const RankBackend*>(&backend);
  return rank != nullptr ? rank->comm() : nullptr;
}

const Backend& below(const Backend& backend) {
  const auto* rank = dynamic_cast<const RankBackend*>(&backend);
  return rank != nullptr ? rank->inner() : backend;
}

int64_t experts_bytes(const Backend& backend, DType type, int64_t experts, int64_t rows, int64_t cols) {
  const auto* rank = dynamic_cast<const RankBackend*>(&backend);
  if (rank == nullptr || rank->own_experts(experts) == experts)
    return experts * backend.weight_bytes(type, rows, cols, WeightUse::experts);
  return rank->own_experts(experts) * rank->inner().weight_bytes(type, rows, cols, WeightUse::experts);
}

std::optional<Stage> stage_of(const Backend& backend, size_t layers) {
  const auto* rank = dynamic_cast<const RankBackend*>(&backend);
  if (rank == nullptr || rank->cut() != RankCut::layers) return {};
  const auto all = static_cast<int64_t>(layers);
  const int ranks = rank->comm()->ranks(), one = rank->comm()->rank();
  return Stage{rank->comm(), first_layer(all, ranks, one), first_layer(all, ranks, one + 1)};
}

Result<std::unique_ptr<Backend>> make_rank_backend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm,
                                                   RankCut cut) {
  if (inner->apart())
    return error(Code::unsupported, "{} ranks: the host does not read the rows of {}", comm->ranks(),
                 inner->description());
  return std::unique_ptr<Backend>(std::make_unique<RankBackend>(std::move(inner), std::move(comm), cut));
}

std::unique_ptr<Backend> make_apart_rank_backend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm,
                                                 RankCut cut) {
  return std::make_unique<RankBackend>(std::move(inner), std::move(comm), cut);
}

}  // namespace millrace
