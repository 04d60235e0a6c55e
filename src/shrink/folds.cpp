#include "shrink/folds.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "shrink/student.h"

namespace millrace {
namespace {

using Stems = std::vector<std::string_view>;

// Matrices of a mixer that read what its layer's norm gives. RWKV mixes rows with the ones before them first, column by
// column, which factors pass through.
Stems read_by(const MixerSpec& mixer) {
  if (std::get_if<GqaSpec>(&mixer)) return {"attn_q", "attn_gate", "attn_k", "attn_v"};
  if (const auto* mla = std::get_if<MlaSpec>(&mixer)) return {mla->q_rank > 0 ? "attn_q_a" : "attn_q", "attn_kv_a_mqa"};
  if (std::get_if<SsmSpec>(&mixer)) return {"ssm_in"};
  if (std::get_if<DeltaSpec>(&mixer)) return {"attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha"};
  if (std::get_if<DecaySpec>(&mixer)) return {"attn_q", "attn_k", "attn_v", "attn_gate"};
  if (std::get_if<ShortConvSpec>(&mixer)) return {"shortconv.in_proj"};
  if (std::get_if<LruSpec>(&mixer)) return {"lru_gate", "lru_x"};
  if (std::get_if<TimeMixSpec>(&mixer)) return {"time_mix_key", "time_mix_value", "time_mix_receptance"};
  if (std::get_if<ChannelMixSpec>(&mixer)) return {"channel_mix_key", "channel_mix_receptance"};
  if (std::get_if<HyenaSpec>(&mixer)) return {"hyena_in"};
  return {};
}

Stems read_by(const FfnSpec& ffn) {
  if (std::get_if<DenseSpec>(&ffn)) return {"ffn_gate", "ffn_up"};
  if (std::get_if<MoeSpec>(&ffn))
    return {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp"};
  return {};
}

class Planner {
 public:
  explicit Planner(const ModelSpec& spec) : spec_(spec), slots_(slots(spec)) {}

  FoldPlan plan() {
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      layer_ = static_cast<int32_t>(i);
      plan_layer(spec_.layers[i]);
    }
    for (const auto& [why, layers] : reasons_) {
      plan_.left_out.push_back(
          layers.size() == spec_.layers.size() ? why : fmt::format("{} (layers {})", why, fmt::join(layers, ", ")));
    }
    return std::move(plan_);
  }

 private:
  std::optional<Slot> find(std::string_view stem) const {
    const std::string ending = "." + std::string(stem);
    for (const Slot& slot : slots_) {
      if (slot.layer == layer_ && slot.name.ends_with(ending)) return slot;
    }
    return std::nullopt;
  }
  void leave_out(const std::string& what) { reasons_[what].push_back(layer_); }

  // Readers of what a norm gives.
  void add_norm(std::string_view stem, const std::optional<NormSpec>& norm, const Stems& stems, std::string_view what) {
    if (stems.empty()) return;
    if (!norm) return leave_out(fmt::format("inputs of the {}: no norm before them", what));
    if (!norm->weight) return leave_out(fmt::format("inputs of the {}: the norm before them has no weight", what));
    const std::optional<Slot> giver = find(stem);
    CHECK(giver && giver->weight, "blk.{}.{}", layer_, stem);
    FoldGroup group = {.giver = *giver, .readers = {}, .size = giver->cols};
    for (const std::string_view each : stems) {
      if (const auto reader = find(each)) group.readers.push_back(*reader);
    }
    plan_.groups.push_back(std::move(group));
  }

  // Columns of one matrix that another gives row by row. Both may have experts.
  void add_matrix(const Slot& giver, const Slot& reader, std::vector<int32_t> shares) {
    plan_.groups.push_back({.giver = giver, .readers = {reader}, .size = giver.rows, .shares = std::move(shares)});
  }

  void plan_layer(const LayerSpec& layer) {
    Stems mixing = read_by(layer.mixer), feeding = read_by(layer.ffn);
    if (layer.beside) {
      for (const std::string_view each : read_by(*layer.beside)) mixing.push_back(each);
    }
    if (layer.laurel > 0) {
      leave_out("inputs of the mixer: what the norm gives is added to the stream too");
      mixing.clear();
    }
    if (layer.stream_norms) {
      leave_out("inputs of both halves: their norms change the stream itself");
    } else {
      if (layer.parallel && layer.shared_norm)
        for (const std::string_view each : feeding) mixing.push_back(each);
      add_norm(layer.second ? "ffn_norm" : "attn_norm", layer.mixer_norm, mixing, "mixer");
      if (!layer.shared_norm) add_norm("ffn_norm", layer.ffn_norm, feeding, "ffn");
    }
    if (std::get_if<TwofoldSpec>(&layer.ffn)) leave_out("the ffn: a dense network and experts side by side");
    add_inside(layer.mixer);
    if (layer.beside) add_inside(*layer.beside);
    if (const auto* dense = std::get_if<DenseSpec>(&layer.ffn)) add_inside(*dense);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) add_inside(*moe);
  }

  void add_inside(const MixerSpec& mixer) {
    if (const auto* gqa = std::get_if<GqaSpec>(&mixer)) return add_values(*gqa);
    if (const auto* mla = std::get_if<MlaSpec>(&mixer)) {
      if (mla->q_rank > 0) add_norm("attn_q_a_norm", mla->norm, {"attn_q_b"}, "queries out of their latent");
      return leave_out("attention's output and what comes out of the latent of keys and values");
    }
    if (const auto* ssm = std::get_if<SsmSpec>(&mixer); ssm != nullptr && ssm->norm && ssm->heads > 0)
      return add_norm("ssm_norm", ssm->norm, {"ssm_out"}, "mixer's output");
    if (const auto* decay = std::get_if<DecaySpec>(&mixer))
      return add_norm("ssm_norm", decay->norm, {"attn_output"}, "mixer's output");
    if (!std::get_if<NoMixer>(&mixer)) leave_out("the mixer's output: what it reads is no product's and no norm's");
  }

  // Values are added up by weights, so that factors of theirs come out as they went in.
  void add_values(const GqaSpec& gqa) {
    if (gqa.out_norm) return add_norm("attn_sub_norm", gqa.out_norm, {"attn_output"}, "attention's output");
    std::string_view why;
    if (gqa.kv_from >= 0) why = "its values are another layer's";
    if (gqa.v_norm) why = "values are normed";
    if (gqa.k_eq_v) why = "values are the keys";
    if (gqa.clip > 0) why = "values are clipped";
    for (const LayerSpec& other : spec_.layers) {
      const auto* reads = std::get_if<GqaSpec>(&other.mixer);
      if (reads != nullptr && reads->kv_from == layer_) why = "other layers read its values";
    }
    if (!why.empty()) return leave_out(fmt::format("attention's output: {}", why));
    std::vector<int32_t> shares;
    const int32_t together = gqa.heads / gqa.kv_heads;
    for (int32_t head = 0; head < gqa.heads; ++head) {
      for (int32_t d = 0; d < gqa.head_dim; ++d) shares.push_back(head / together * gqa.head_dim + d);
    }
    add_matrix(*find("attn_v"), *find("attn_output"), std::move(shares));
  }

  void add_inside(const DenseSpec& dense) {
    if (dense.inner_norm) return add_norm("ffn_sub_norm", dense.inner_norm, {"ffn_down"}, "way down");
    if (!dense.gated && dense.activation != Activation::relu)
      return leave_out("inputs of the way down: an activation that factors do not pass through");
    add_matrix(*find("ffn_up"), *find("ffn_down"), {});
  }

  void add_inside(const MoeSpec& moe) {
    if (!moe.gated && moe.activation != Activation::relu)
      return leave_out("inputs of the experts' way down: an activation that factors do not pass through");
    if (moe.limit.limit > 0) {
      leave_out("inputs of the experts' way down: what they read is cut off at a limit");
    } else {
      add_matrix(*find("ffn_up_exps"), *find("ffn_down_exps"), {});
    }
    if (moe.shared_width > 0) add_matrix(*find("ffn_up_shexp"), *find("ffn_down_shexp"), {});
  }

  const ModelSpec& spec_;
  std::vector<Slot> slots_;
  int32_t layer_ = 0;
  FoldPlan plan_;
  std::map<std::string, std::vector<int32_t>> reasons_;
};

}  // namespace

FoldPlan fold_plan(const ModelSpec& spec) { return Planner(spec).plan(); }

void Folds::set(const FoldGroup& group, int64_t expert, std::span<const float> wanted) {
  CHECK(static_cast<int64_t>(wanted.size()) == group.size, "{} factors of {}", wanted.size(), group.giver.name);
  std::vector<float> factors(wanted.begin(), wanted.end());
  for (float& each : factors)
    if (powers_of_two_) each = std::exp2(std::round(std::log2(each)));
  auto put = [](Factors& to, const Slot& slot, int64_t e, std::vector<float> numbers) {
    auto& experts = to[slot.name];
    experts.resize(static_cast<size_t>(slot.matrices()));
    experts[static_cast<size_t>(e)] = std::move(numbers);
  };
  put(rows_, group.giver, expert, factors);
  for (const Slot& reader : group.readers) {
    std::vector<float> columns(static_cast<size_t>(reader.cols));
    for (int64_t c = 0; c < reader.cols; ++c) columns[static_cast<size_t>(c)] = factors[group.factor_of(c)];
    // Of a norm all experts read the same; of a matrix each expert reads its own.
    if (group.by_norm() || group.giver.experts == 0) {
      for (int64_t e = 0; e < reader.matrices(); ++e) put(columns_, reader, e, columns);
    } else {
      put(columns_, reader, expert, std::move(columns));
    }
  }
}

std::span<const float> Folds::of(const Factors& factors, const Slot& slot, int64_t expert) {
  const auto found = factors.find(slot.name);
  return found != factors.end() ? std::span<const float>(found->second[static_cast<size_t>(expert)])
                                : std::span<const float>();
}

bool Folds::changes(const Slot& slot) const { return columns_.contains(slot.name) || rows_.contains(slot.name); }

Result<std::vector<float>> Folds::matrix(const ModelSource& wide, const Slot& slot, int64_t expert) const {
  TRY(std::vector<float> numbers, read_matrix(wide, slot, expert));
  const auto columns = of(columns_, slot, expert), rows = of(rows_, slot, expert);
  const auto cols = static_cast<size_t>(slot.cols);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!columns.empty()) numbers[i] *= columns[i % cols];
    if (!rows.empty()) numbers[i] /= rows[i / cols];
  }
  return numbers;
}

std::vector<float> Folds::importance(const Slot& slot, int64_t expert, std::span<const float> importance) const {
  std::vector<float> out(importance.begin(), importance.end());
  const auto columns = of(columns_, slot, expert);
  if (columns.empty()) return out;
  for (size_t i = 0; i < out.size(); ++i) out[i] /= columns[i] * columns[i];
  return out;
}

Result<void> Folds::put_beside(const ModelSource& wide, const std::function<bool(const Slot& slot)>& rounded,
                               ModelSource& student) const {
  for (const Slot& slot : slots(wide.spec())) {
    if (!changes(slot)) continue;
    const auto first = of(rows_, slot, 0);
    if (slot.kind == SlotKind::norm) {
      TRY(std::vector<float> weight, wide.norm_weight(slot));
      for (size_t i = 0; i < weight.size(); ++i) weight[i] /= first[i];
      student.put_numbers(slot, std::move(weight));
    } else if (!rounded(slot)) {
      for (int64_t e = 0; e < slot.matrices(); ++e) {
        TRY(const std::vector<float> numbers, matrix(wide, slot, e));
        const auto bytes = std::as_bytes(std::span(numbers));
        student.put_matrix(slot, e, DType::f32, {bytes.begin(), bytes.end()});
      }
    }
    if (!slot.bias || !rows_.contains(slot.name)) continue;
    TRY(std::vector<float> bias, wide.bias(slot));
    const size_t each = bias.size() / static_cast<size_t>(slot.matrices());
    for (size_t i = 0; i < bias.size(); ++i) {
      const auto rows = of(rows_, slot, static_cast<int64_t>(i / each));
      if (!rows.empty()) bias[i] /= rows[i % each];
    }
    student.put_bias(slot, std::move(bias));
  }
  return {};
}

}  // namespace millrace
