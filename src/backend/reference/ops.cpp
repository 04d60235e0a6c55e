#include "backend/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/row_math.h"
#include "base/check.h"

namespace millrace {
namespace {

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::none:
      return x;
  }
  return x;
}

void read_row(const Weight& weight, int64_t row, std::vector<float>& out) {
  out.resize(static_cast<size_t>(weight.cols));
  format(weight.type).to_float(weight.data + row * bytes_of(weight.type, weight.cols), out.data(), weight.cols);
}

void norm_part(const Norm& norm, const float* weight, const float* bias, const float* in, float* out, int64_t width) {
  double mean = 0, square = 0;
  if (norm.kind == NormKind::layer) {
    for (int64_t i = 0; i < width; ++i) mean += in[i];
    mean /= static_cast<double>(width);
  }
  for (int64_t i = 0; i < width; ++i) square += (in[i] - mean) * (in[i] - mean);
  double factor = 1 / std::sqrt(square / static_cast<double>(width) + norm.epsilon);
  for (int64_t i = 0; i < width; ++i) {
    double value = (in[i] - mean) * factor;
    if (weight != nullptr) value *= weight[i];
    if (bias != nullptr) value += bias[i];
    out[i] = static_cast<float>(value);
  }
}

// One key or value of the cache as float32.
struct CacheReader {
  const Step& step;
  const KvView& kv;
  int32_t sequence, head;

  int64_t page(int64_t position) const {
    const PageTables& tables = step.groups[static_cast<size_t>(kv.group)];
    return tables.pages[int64_t{sequence} * tables.stride + position / kv.page_tokens];
  }
  void read(DType type, const std::byte* part, int64_t position, int32_t dim, float* out) const {
    const int64_t within = position % kv.page_tokens;
    kv_read(type, part + kv_codes_at(type, dim, within), part + kv_factor_at(type, dim, kv.page_tokens, within), dim,
            out);
  }
  void write(DType type, const std::byte* part, int64_t position, int32_t dim, const float* in) const {
    const int64_t within = position % kv.page_tokens;
    auto* to = const_cast<std::byte*>(part);
    kv_write(type, in, dim, to + kv_codes_at(type, dim, within), to + kv_factor_at(type, dim, kv.page_tokens, within));
  }
  void key(int64_t position, float* out) const {
    read(kv.form.k, kv.keys(page(position), head), position, kv.k_dim, out);
  }
  void value(int64_t position, float* out) const {
    if (kv.v_dim == 0) return key(position, out);  // its first numbers
    read(kv.form.v, kv.values(page(position), head), position, kv.v_dim, out);
  }
};

// What a row that stands at `from` makes of positions [begin, end).
struct Scored {
  int64_t position;
  double score;
};
void add_scores(const Attention& attention, const CacheReader& cache, int64_t from, int64_t begin, int64_t end,
                int32_t head, std::vector<float> query, std::vector<Scored>& scores) {
  const KvView& kv = cache.kv;
  std::vector<float> read(static_cast<size_t>(kv.k_dim));
  if (kv.form.turns_keys()) kv_turn(query.data(), kv.k_dim);
  for (int64_t p = begin; p < end; ++p) {
    cache.key(p, read.data());
    double score = 0;
    for (int32_t i = 0; i < kv.k_dim; ++i)
      score += static_cast<double>(query[static_cast<size_t>(i)]) * read[static_cast<size_t>(i)];
    score *= attention.scale;
    if (attention.softcap > 0) score = attention.softcap * std::tanh(score / attention.softcap);
    if (attention.slopes != nullptr) score += attention.slopes[head] * static_cast<double>(p - from);
    scores.push_back({p, score});
  }
}

// One row's one head: softmax over what it sees, then the mean of the values.
void attend_head(const Attention& attention, const CacheReader& cache, int64_t row, int32_t head, const float* q,
                 float* out) {
  const KvView& kv = cache.kv;
  int64_t position = cache.step.positions[row], end = attention.end(position, cache.step.visible[row]);
  std::vector<float> query(q, q + kv.k_dim);
  std::vector<Scored> scores;
  if (attention.apart(position)) {
    const int64_t from = attention.kept_from(position);
    std::vector<float> turned(query.size());
    std::vector<double> cosines(query.size()), sines(query.size());
    turn_angles(attention.turn, from - position, cosines.data(), sines.data());
    turn_head(attention.turn, cosines.data(), sines.data(), kv.k_dim, q, turned.data());
    add_scores(attention, cache, from, 0, attention.kept, head, turned, scores);
  }
  add_scores(attention, cache, position, std::min(attention.begin(position), end), end, head, query, scores);
  double most = attention.sinks != nullptr ? attention.sinks[head] : -INFINITY;
  for (const Scored& one : scores) most = std::max(most, one.score);
  double total = attention.sinks != nullptr ? std::exp(attention.sinks[head] - most) : 0;
  std::vector<float> read(static_cast<size_t>(std::max(kv.k_dim, kv.v_dim)));
  std::vector<double> sum(static_cast<size_t>(attention.value_width(kv)), 0.0);
  for (const Scored& one : scores) {
    double weight = std::exp(one.score - most);
    total += weight;
    cache.value(one.position, read.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * read[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) out[i] = total > 0 ? static_cast<float>(sum[i] / total) : 0.0f;
}

}  // namespace

void ReferenceOps::begin(const Step& step) {
  step_ = &step;
  arena_.begin_step();
}

void ReferenceOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  std::vector<float> values;
  for (int64_t r = 0; r < out.rows; ++r) {
    int64_t id = int64_t{ids[r]} + offset;
    CHECK(id >= 0, "row {} of a table of {}", id, table.rows);
    if (id >= table.rows) id = 0;
    read_row(table, id, values);
    for (int64_t i = 0; i < out.cols; ++i) {
      float value = values[static_cast<size_t>(i)] * scale;
      out.row(r)[i] = add ? out.row(r)[i] + value : value;
    }
  }
}

void ReferenceOps::norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) {
  int64_t width = in.cols / parts;
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t part = 0; part < parts; ++part) {
      int64_t shift = norm.width == width ? 0 : part * width;  // the weight repeats per part, or spans the row
      norm_part(norm, norm.weight != nullptr ? norm.weight + shift : nullptr,
                norm.bias != nullptr ? norm.bias + shift : nullptr, in.row(r) + part * width, out.row(r) + part * width,
                width);
    }
  }
}

void ReferenceOps::linear(const Weight& weight, Tensor in, Tensor out) {
  std::vector<float> values, ordered;
  for (int64_t n = 0; n < weight.rows; ++n) {
    read_row(weight, n, values);
    if (weight.order != nullptr) {
      ordered = values;
      for (size_t k = 0; k < ordered.size(); ++k) values[static_cast<size_t>(weight.order[k])] = ordered[k];
    }
    for (int64_t r = 0; r < in.rows; ++r) {
      double sum = weight.bias != nullptr ? weight.bias[n] : 0;
      for (int64_t k = 0; k < weight.cols; ++k)
        sum += static_cast<double>(in.row(r)[k]) * values[static_cast<size_t>(k)];
      out.row(r)[n] = static_cast<float>(sum);
    }
  }
}

void ReferenceOps::activate(Activation activation, Tensor in, Tensor out) {
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t i = 0; i < in.cols; ++i) out.row(r)[i] = static_cast<float>(activated(activation, in.row(r)[i]));
  }
}

void ReferenceOps::glu(Activation activation, Tensor gate, Tensor up, Tensor out) {
  for (int64_t r = 0; r < gate.rows; ++r) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      out.row(r)[i] = static_cast<float>(activated(activation, gate.row(r)[i]) * up.row(r)[i]);
    }
  }
}

void ReferenceOps::add(Tensor in, float scale, Tensor out) {
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t i = 0; i < in.cols; ++i) out.row(r)[i] += scale * in.row(r)[i];
  }
}

void ReferenceOps::clamp(float limit, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) {
    for (int64_t i = 0; i < inout.cols; ++i) inout.row(r)[i] = std::clamp(inout.row(r)[i], -limit, limit);
  }
}

void ReferenceOps::rope(const Rope& rope, int32_t heads, Tensor inout) {
  int64_t width = inout.cols / heads, half = rope.dims / 2;
  for (int64_t r = 0; r < inout.rows; ++r) {
    for (int64_t pair = 0; pair < half; ++pair) {
      double angle = static_cast<double>(step_->positions[r]) * rope.frequencies[pair];
      double c = std::cos(angle) * rope.magnitude, s = std::sin(angle) * rope.magnitude;
      for (int64_t head = 0; head < heads; ++head) {
        float* x = inout.row(r) + head * width + (rope.neighbours ? 2 * pair : pair);
        float* y = rope.neighbours ? x + 1 : x + half;
        double a = *x, b = *y;
        *x = static_cast<float>(a * c - b * s);
        *y = static_cast<float>(a * s + b * c);
      }
    }
  }
}

void ReferenceOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  for (int64_t r = 0; r < k.rows; ++r) {
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      CacheReader cache{*step_, kv, step_->sequence[r], head};
      int64_t p = step_->positions[r];
      const float* key = k.row(r) + int64_t{head} * kv.k_dim;
      std::vector<float> turned(key, key + kv.k_dim);
      if (kv.form.turns_keys()) kv_turn(turned.data(), kv.k_dim);
      cache.write(kv.form.k, kv.keys(cache.page(p), head), p, kv.k_dim, turned.data());
      if (kv.v_dim > 0)
        cache.write(kv.form.v, kv.values(cache.page(p), head), p, kv.v_dim, v.row(r) + int64_t{head} * kv.v_dim);
    }
  }
}

void ReferenceOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  int32_t group = attention.heads / kv.kv_heads;
  CHECK(attention.value_width(kv) > 0 && (kv.v_dim > 0 || attention.value_dim <= kv.k_dim),
        "values of {} from keys of {}", attention.value_width(kv), kv.k_dim);
  for (int64_t r = 0; r < q.rows; ++r) {
    for (int32_t head = 0; head < attention.heads; ++head) {
      CacheReader cache{*step_, kv, step_->sequence[r], head / group};
      attend_head(attention, cache, r, head, q.row(r) + int64_t{head} * kv.k_dim,
                  out.row(r) + int64_t{head} * attention.value_width(kv));
    }
  }
}

void ReferenceOps::gather(const int32_t* rows, Tensor in, Tensor out) {
  for (int64_t i = 0; i < out.rows; ++i)
    std::memcpy(out.row(i), in.row(rows[i]), static_cast<size_t>(in.cols) * sizeof(float));
}

void ReferenceOps::route(const Router& router, Tensor logits, const Routing& routing) {
  std::vector<float> scores(static_cast<size_t>(router.experts) * 2);
  for (int64_t r = 0; r < logits.rows; ++r) {
    route_row(router, logits.row(r), routing.expert + r * routing.chosen, routing.weight + r * routing.chosen,
              scores.data());
  }
  sort_pairs(routing);
}

void ReferenceOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in,
                                  Tensor out) {
  for (int32_t e = 0; e < weight.experts; ++e) {
    for (int32_t p = routing.first[e]; p < routing.first[e + 1]; ++p) {
      Tensor from = in, to = out;
      from.data += (input == ExpertInput::rows ? routing.row[p] : p) * in.stride;
      to.data += p * out.stride;
      from.rows = to.rows = 1;
      linear(weight.expert(e), from, to);
    }
  }
}

void ReferenceOps::glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) {
  for (int64_t r = 0; r < gate.rows; ++r) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      const double g = std::min(gate.row(r)[i], limit.limit), u = std::clamp(up.row(r)[i], -limit.limit, limit.limit);
      out.row(r)[i] = static_cast<float>((u + limit.shift) * g / (1 + std::exp(-limit.slope * g)));
    }
  }
}

void ReferenceOps::spread(const Routing& routing, Tensor in, Tensor out) {
  for (int64_t i = 0; i < routing.pairs(); ++i) {
    for (int64_t c = 0; c < in.cols; ++c)
      out.row(routing.place[i])[c] = routing.weight[i] * in.row(i / routing.chosen)[c];
  }
}

void ReferenceOps::combine(const Routing& routing, bool weighted, Tensor in, Tensor out) {
  for (int64_t r = 0; r < routing.rows; ++r) {
    for (int64_t c = 0; c < out.cols; ++c) {
      float sum = 0;
      for (int64_t i = r * routing.chosen; i < (r + 1) * routing.chosen; ++i)
        sum += (weighted ? routing.weight[i] : 1) * in.row(routing.place[i])[c];
      out.row(r)[c] = sum;
    }
  }
}

void ReferenceOps::add_gated(Tensor in, Tensor gate, Tensor out) {
  for (int64_t r = 0; r < in.rows; ++r) {
    const double share = 1 / (1 + std::exp(-static_cast<double>(gate.row(r)[0])));
    for (int64_t i = 0; i < in.cols; ++i) out.row(r)[i] = static_cast<float>(out.row(r)[i] + share * in.row(r)[i]);
  }
}

void ReferenceOps::scale_by_position(const PositionScale& scale, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) {
    const int64_t steps = (int64_t{step_->positions[r]} + scale.offset) / scale.every;
    const double by = 1 + scale.factor * std::log1p(static_cast<double>(steps));
    for (int64_t i = 0; i < inout.cols; ++i) inout.row(r)[i] = static_cast<float>(inout.row(r)[i] * by);
  }
}

void ReferenceOps::finish_logits(float scale, float softcap, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) {
    for (int64_t i = 0; i < inout.cols; ++i) {
      double value = static_cast<double>(inout.row(r)[i]) * scale;
      inout.row(r)[i] = static_cast<float>(softcap > 0 ? softcap * std::tanh(value / softcap) : value);
    }
  }
}

}  // namespace millrace
