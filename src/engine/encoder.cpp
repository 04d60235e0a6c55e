#include "engine/encoder.h"

#include "backend/ranks/ranks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/human.h"
#include "model/forward.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int32_t kPageTokens = 16;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) & -kAlignment; }
int64_t array_bytes(int64_t count) { return aligned(count * static_cast<int64_t>(sizeof(int32_t))); }
int32_t pages_of(int64_t tokens) { return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens); }

bool takes_one_row(Pooling pooling) { return pooling == Pooling::first || pooling == Pooling::last; }

int64_t arrays_bytes(const EncoderOptions& o) {
  return 6 * array_bytes(o.rows) + array_bytes(o.sequences + 1) +
         array_bytes(int64_t{o.sequences} * pages_of(o.context));
}

int64_t result_floats(const Model& model, const EncoderOptions& o) {
  const ModelSpec& spec = model.spec();
  return int64_t{o.sequences} * std::max(encoded_width(spec), o.logits ? spec.vocab : 0);
}

Result<EncoderOptions> settled(const ModelSpec& spec, EncoderOptions options) {
  if (options.context == 0) options.context = std::min(spec.context, EncoderOptions::kMostContext);
  if (options.rows == 0) options.rows = std::max(options.context, EncoderOptions::kUsualRows);
  if (options.context < 1 || options.rows < options.context || options.sequences < 1) {
    return error(Code::invalid,
                 "texts of {} tokens, {} rows and {} texts a step: each at least 1, and rows for the "
                 "longest text",
                 options.context, options.rows, options.sequences);
  }
  if (spec.positions > 0 && options.context > spec.positions - spec.position_offset) {
    return error(Code::invalid, "texts of {} tokens, but the model knows {} positions only; ask for at most that many",
                 options.context, spec.positions - spec.position_offset);
  }
  if (!options.kv.plain()) {
    return error(Code::unsupported, "keys and values cannot be kept as {}; choose f32, f16 or bf16", options.kv.name());
  }
  options.sequences = std::min(options.sequences, options.rows);
  return options;
}

// The bytes of one layer's keys and values in a page.
int64_t layer_bytes(const KvShape& shape) {
  const int64_t keys = bytes_of(shape.form.k, int64_t{shape.kv_heads} * kPageTokens * shape.k_dim);
  return aligned(keys) + bytes_of(shape.form.k, int64_t{shape.kv_heads} * kPageTokens * shape.v_dim);
}

}  // namespace

void normalise(std::span<float> vector) {
  double square = 0;
  for (const float value : vector) square += static_cast<double>(value) * value;
  if (!(square > 0)) return;
  const double factor = 1 / std::sqrt(square);
  for (float& value : vector) value = static_cast<float>(value * factor);
}

float yes_share(float yes, float no) { return static_cast<float>(1 / (1 + std::exp(static_cast<double>(no) - yes))); }

int32_t Encoder::width() const { return encoded_width(model_.spec()); }

Result<Encoder::Plan> Encoder::plan(const Model& model, const Backend& backend, const EncoderOptions& options) {
  const ModelSpec& spec = model.spec();
  Plan plan;
  TRY(plan.options, settled(spec, options));
  if (backend.apart() && plan.options.kv == DType::f32)
    return error(Code::unsupported, "{} keeps keys and values in 16 bits; choose f16 or bf16", backend.description());
  if (comm_of(backend) != nullptr)
    return error(Code::unsupported, "vectors and scores of texts are computed on one rank so far; leave out --ranks");
  if (plan.options.logits && !spec.head)
    return error(Code::invalid, "{} is an encoder: it gives no logits of tokens", spec.architecture);
  plan.pooling = options.pooling ? *options.pooling : spec.pool ? spec.pool->pooling : Pooling::last;
  for (const LayerSpec& layer : spec.layers) {
    if (kv_source(layer.mixer) >= 0)
      return error(Code::unsupported, "layers of {} read the keys of others, which an encoder does not keep",
                   spec.architecture);
  }
  for (const KvShape& shape : kv_shapes(spec, plan.options.kv))
    plan.page_bytes = std::max(plan.page_bytes, aligned(layer_bytes(shape)));
  const EncoderOptions& o = plan.options;
  plan.pages = pages_of(o.rows) + o.sequences;
  const Checked kv = Checked(plan.pages) * Checked(plan.page_bytes);
  if (!kv.get()) return error(Code::no_memory, "{} pages of {} bytes are too many", plan.pages, plan.page_bytes);
  plan.kv_bytes = *kv.get();
  plan.staging_bytes = backend.staging_bytes(arrays_bytes(o)) +
                       (backend.apart() ? result_floats(model, o) * static_cast<int64_t>(sizeof(float)) : 0);
  plan.workspace_bytes = encode_workspace_bytes(model, o.rows, o.sequences, plan.pooling);
  if (o.logits) plan.workspace_bytes = std::max(plan.workspace_bytes, workspace_bytes(model, o.rows, o.sequences));
  plan.workspace_bytes += backend.fixed_workspace();
  return plan;
}

Result<std::unique_ptr<Encoder>> Encoder::create(const Model& model, Backend& backend, const EncoderOptions& options) {
  TRY(Plan plan, Encoder::plan(model, backend, options));
  std::unique_ptr<Encoder> encoder(new Encoder(model, plan, backend.apart()));
  auto taken = encoder->take_memory(backend);
  if (taken.ok()) return encoder;
  return within(
      fmt::format("no room for texts of {} tokens and {} of them at a time (KV {}, workspace {}, staging "
                  "{}); ask for shorter texts (-c)",
                  plan.options.context, plan.options.sequences, brief_bytes(static_cast<uint64_t>(plan.kv_bytes)),
                  brief_bytes(static_cast<uint64_t>(plan.workspace_bytes)),
                  brief_bytes(static_cast<uint64_t>(plan.staging_bytes))),
      taken.error());
}

Result<void> Encoder::take_memory(Backend& backend) {
  const EncoderOptions& o = plan_.options;
  TRY(std::byte * kv, backend.allocate(Purpose::kv, plan_.kv_bytes));
  for (const KvShape& shape : kv_shapes(model_.spec(), o.kv)) {
    views_.push_back({.base = kv,
                      .page_stride = plan_.page_bytes,
                      .v_offset = aligned(bytes_of(shape.form.k, int64_t{shape.kv_heads} * kPageTokens * shape.k_dim)),
                      .page_tokens = kPageTokens,
                      .kv_heads = shape.kv_heads,
                      .k_dim = shape.k_dim,
                      .v_dim = shape.v_dim,
                      .form = shape.form});
  }
  if (apart_) {
    const int64_t bytes = result_floats(model_, o) * static_cast<int64_t>(sizeof(float));
    TRY(std::byte * results, backend.allocate_results(bytes));
    results_ = reinterpret_cast<float*>(results);
  }
  TRY(std::byte * memory, backend.allocate(Purpose::staging, arrays_bytes(o)));
  auto array = [&](int64_t count) {
    auto* start = reinterpret_cast<int32_t*>(memory);
    memory += array_bytes(count);
    return start;
  };
  step_.tokens = tokens_ = array(o.rows);
  step_.positions = positions_ = array(o.rows);
  step_.visible = visible_ = array(o.rows);
  step_.types = types_ = array(o.rows);
  step_.sequence = sequence_ = array(o.rows);
  step_.wanted_rows = wanted_rows_ = array(o.rows);
  step_.first_row = first_row_ = array(o.sequences + 1);
  pages_ = array(int64_t{o.sequences} * pages_of(o.context));
  tables_ = {pages_, pages_of(o.context)};
  step_.groups = {&tables_, 1};
  TRY(ops_, backend.make_ops(plan_.workspace_bytes - backend.fixed_workspace()));
  return {};
}

Result<void> Encoder::check(const Passage& passage) const {
  const auto tokens = static_cast<int64_t>(passage.tokens.size());
  if (tokens == 0) return error(Code::invalid, "the text has no tokens");
  if (tokens > plan_.options.context) {
    return error(Code::invalid, "the text has {} tokens and there is room for {}; shorten it, or ask for more (-c)",
                 tokens, plan_.options.context);
  }
  for (const Token token : passage.tokens) {
    if (token < 0 || token >= model_.spec().vocab)
      return error(Code::invalid, "token {} is not one of the model's {}", token, model_.spec().vocab);
  }
  return {};
}

size_t Encoder::fitting(std::span<const Passage> passages) const {
  size_t count = 0;
  int64_t rows = 0;
  for (const Passage& each : passages) {
    rows += static_cast<int64_t>(each.tokens.size());
    if (rows > plan_.options.rows || count == static_cast<size_t>(plan_.options.sequences)) break;
    ++count;
  }
  return std::max<size_t>(count, 1);
}

void Encoder::stage(std::span<const Passage> passages, bool all_rows) {
  const EncoderOptions& o = plan_.options;
  CHECK(!passages.empty() && passages.size() <= static_cast<size_t>(o.sequences), "{} texts of {}", passages.size(),
        o.sequences);
  const bool whole = sees_ahead(model_.spec()), first = plan_.pooling == Pooling::first && !all_rows;
  step_.rows = step_.wanted = 0;
  step_.sequences = static_cast<int32_t>(passages.size());
  first_row_[0] = 0;
  int32_t page = 0;
  for (int32_t s = 0; s < step_.sequences; ++s) {
    const Passage& passage = passages[static_cast<size_t>(s)];
    const auto count = static_cast<int32_t>(passage.tokens.size());
    CHECK(count > 0 && count <= o.context && step_.rows + count <= o.rows, "a text of {} tokens", count);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t row = step_.rows + i;
      tokens_[row] = passage.tokens[static_cast<size_t>(i)];
      positions_[row] = i;
      visible_[row] = whole ? count : i + 1;
      types_[row] = passage.second > 0 && i >= passage.second ? 1 : 0;
      sequence_[row] = s;
      if (all_rows || i == (first ? 0 : count - 1)) wanted_rows_[step_.wanted++] = row;
    }
    for (int32_t i = 0; i < pages_of(count); ++i) pages_[int64_t{s} * tables_.stride + i] = page++;
    step_.rows += count;
    first_row_[s + 1] = step_.rows;
  }
}

Result<Tensor> Encoder::fetched(Tensor rows) {
  if (!apart_) return rows;
  if (std::string failure = ops_->fetch(rows, results_, nullptr); !failure.empty())
    return error(Code::internal, "{}", failure);
  return Tensor{reinterpret_cast<std::byte*>(results_), DType::f32, rows.rows, rows.cols,
                rows.cols * static_cast<int64_t>(sizeof(float))};
}

Result<Tensor> Encoder::run(std::span<const Passage> passages) {
  stage(passages, !takes_one_row(plan_.pooling));
  return fetched(encode(*ops_, model_, views_, step_, plan_.pooling));
}

Result<Tensor> Encoder::logits(std::span<const Passage> passages) {
  CHECK(plan_.options.logits, "logits were not planned for");
  const Pooling pooling = std::exchange(plan_.pooling, Pooling::last);
  stage(passages, false);
  plan_.pooling = pooling;
  return fetched(forward(*ops_, model_, views_, step_));
}

}  // namespace millrace
