// Heads of random weights, as large as those that are published for a model of this size.
#include <algorithm>
#include <cmath>

#include "model/heads/head.h"
#include "model/random_rows.h"
#include "model/rope.h"

namespace millrace {
namespace {

constexpr int32_t kEagleVocab = 32000;  // as the heads for Llama 3's 128,256 tokens have it
constexpr int32_t kMedusaGuesses = 4;

class RandomHead {
 public:
  RandomHead(const Model& target, DType type, uint64_t seed, Backend& backend)
      : target_(target), rows_(type, seed), type_(type), backend_(backend) {}

  Result<void> medusa(HeadSpec& spec, HeadWeights& weights) {
    spec.taps = {layers()};
    spec.guesses = kMedusaGuesses;
    const std::vector<float> none(static_cast<size_t>(width()));
    for (int32_t i = 0; i < spec.guesses; ++i) {
      HeadWeights::Guess guess;
      TRY(guess.change, matrix(width(), width(), none));
      TRY(guess.out, matrix(spec.vocab, width()));
      weights.guesses.push_back(guess);
    }
    return {};
  }
  Result<void> layer(HeadSpec& spec, HeadWeights& weights) {
    const auto* attention = std::get_if<GqaSpec>(&target_.spec().layers.back().mixer);
    const auto* ffn = std::get_if<DenseSpec>(&target_.spec().layers.back().ffn);
    if (attention == nullptr || ffn == nullptr)
      return error(Code::unsupported, "heads of random weights are made for models with attention and a dense ffn");
    const bool eagle = spec.kind == HeadSpec::Kind::eagle3;
    if (eagle) spec.vocab = std::min(spec.vocab, kEagleVocab);
    spec.taps = {layers()};
    if (eagle) spec.taps = {2, layers() / 2, layers() - 3};
    spec.attention.heads = attention->heads;
    spec.attention.kv_heads = attention->kv_heads;
    spec.attention.head_dim = attention->head_dim;
    spec.attention.scale = 1 / std::sqrt(static_cast<float>(attention->head_dim));
    spec.ffn = {.width = ffn->width};
    const int64_t inputs = eagle ? 2 * width() : width(), dim = attention->head_dim;
    TRY(weights.fuse, matrix(width(), eagle ? spec.feature() : 2 * width()));
    TRY(weights.attention.q, matrix(attention->heads * dim, inputs));
    TRY(weights.attention.k, matrix(attention->kv_heads * dim, inputs));
    TRY(weights.attention.v, matrix(attention->kv_heads * dim, inputs));
    TRY(weights.attention.out, matrix(width(), attention->heads * dim));
    TRY(weights.ffn.gate, matrix(ffn->width, width()));
    TRY(weights.ffn.up, matrix(ffn->width, width()));
    TRY(weights.ffn.down, matrix(width(), ffn->width));
    for (Norm* norm :
         {&weights.token_norm, &weights.feature_norm, &weights.mixer_norm, &weights.ffn_norm, &weights.final_norm}) {
      TRY(*norm, ones());
    }
    if (eagle) {
      TRY(weights.out, matrix(spec.vocab, width()));
    }
    weights.attention.rope.dims = attention->head_dim;
    TRY(weights.attention.rope.frequencies, backend_.upload_vector(rotary_powers(10000, attention->head_dim)));
    return {};
  }

 private:
  int64_t width() const { return target_.spec().width; }
  int32_t layers() const { return static_cast<int32_t>(target_.spec().layers.size()); }
  Result<Weight> matrix(int64_t rows, int64_t cols, std::span<const float> bias = {}) {
    if (cols % format(type_).group != 0)
      return error(Code::unsupported, "a head's rows of {} numbers cannot be {}", cols, format(type_).name);
    const std::vector<std::byte> bytes = rows_.matrix(rows, cols, ++salt_);
    return backend_.upload({.type = type_, .rows = rows, .cols = cols, .bytes = bytes}, WeightUse::linear, bias);
  }
  Result<Norm> ones() {
    Norm norm{.kind = NormKind::rms, .epsilon = 1e-5F, .weight = nullptr, .bias = nullptr, .width = width()};
    TRY(norm.weight, backend_.upload_vector(std::vector<float>(static_cast<size_t>(width()), 1.0F)));
    return norm;
  }

  const Model& target_;
  RowPool rows_;
  DType type_;
  Backend& backend_;
  uint32_t salt_ = 0;
};

}  // namespace

Result<std::unique_ptr<Head>> Head::random(HeadSpec::Kind kind, const Model& target, DType type, uint64_t seed,
                                           Backend& backend) {
  TRY_VOID(check_target(target.spec()));
  if (format(type).from_float == nullptr)
    return error(Code::unsupported, "weights of format {} cannot be made", format(type).name);
  std::unique_ptr<Head> head(new Head(target));
  head->spec_.kind = kind;
  head->spec_.width = target.spec().width;
  head->spec_.vocab = target.spec().vocab;
  RandomHead maker(target, type, seed, backend);
  TRY_VOID(kind == HeadSpec::Kind::medusa ? maker.medusa(head->spec_, head->weights_)
                                          : maker.layer(head->spec_, head->weights_));
  for (Token token = 0; head->spec_.vocab < target.spec().vocab && token < head->spec_.vocab; ++token)
    head->tokens_.push_back(token);
  if (!head->weights_.embedding) head->weights_.embedding = target.weights().embedding;
  if (!head->weights_.out) head->weights_.out = target.weights().head;
  return head;
}

}  // namespace millrace
