#include "shrink/width.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "model/mixers/mixers.h"
#include "shrink/eigen.h"

namespace millrace {
namespace {

enum class Role : uint8_t { table, reader, writer, norm, apart, unknown };

std::string stem_of(const Slot& slot) {
  return slot.layer < 0 ? slot.name : slot.name.substr(slot.name.find('.', 4) + 1);
}

bool one_of(std::string_view stem, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), stem) != list.end();
}

// What a slot has to do with the stream.
Role role_of(const Slot& slot, int64_t width) {
  const std::string stem = stem_of(slot);
  if (one_of(stem, {"token_embd", "position_embd", "token_types"})) return Role::table;
  if (one_of(stem, {"attn_norm", "ffn_norm", "output_norm"})) return Role::norm;
  if (one_of(stem, {"attn_q", "attn_k", "attn_v", "attn_gate", "ffn_gate", "ffn_up", "ffn_gate_inp", "ffn_gate_exps",
                    "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_gate_inp_shexp", "output"}))
    return Role::reader;
  if (one_of(stem, {"attn_output", "ffn_down", "ffn_down_exps", "ffn_down_shexp"})) return Role::writer;
  if (one_of(stem, {"attn_q_norm", "attn_k_norm", "attn_v_norm", "attn_sub_norm", "attn_sinks", "ffn_sub_norm",
                    "exp_probs_b"}))
    return Role::apart;
  return slot.rows == width || slot.cols == width ? Role::unknown : Role::apart;
}

// The norm whose result a matrix reads.
std::string norm_of(const ModelSpec& spec, const Slot& slot) {
  if (slot.layer < 0) return "output_norm";
  const LayerSpec& layer = spec.layers[static_cast<size_t>(slot.layer)];
  const bool of_mixer = stem_of(slot).starts_with("attn_");
  return fmt::format("blk.{}.{}", slot.layer, of_mixer || !layer.ffn_norm ? "attn_norm" : "ffn_norm");
}

std::string_view unfit(const ModelSpec& spec, const LayerSpec& layer) {
  if (!std::holds_alternative<GqaSpec>(layer.mixer)) return "its layers are not all attention over heads";
  if (!std::holds_alternative<DenseSpec>(layer.ffn) && !std::holds_alternative<MoeSpec>(layer.ffn))
    return "its feed-forward parts are of a kind of their own";
  if (layer.mixer_post_norm || layer.ffn_post_norm || layer.stream_norms)
    return "norms stand between halves and stream, and turning would not pass them";
  if (layer.beside || layer.shared || layer.laurel > 0 || layer.scaled || layer.number >= 0)
    return "layers have paths beside their halves";
  if (!layer.mixer_norm || (!layer.ffn_norm && !layer.shared_norm)) return "a half reads the stream without a norm";
  for (const auto* norm : {&layer.mixer_norm, &layer.ffn_norm}) {
    if (*norm && ((*norm)->kind != spec.final_norm->kind || !(*norm)->weight || !spec.final_norm->weight))
      return "its norms are of several kinds, or have no weights";
    if (*norm && (*norm)->epsilon != spec.final_norm->epsilon) return "its norms have several epsilons";
  }
  return "";
}

// Norms with biases need matrices with biases behind them.
bool takes_biases(const ModelSpec& spec, const std::vector<Slot>& all) {
  if (spec.final_norm && spec.final_norm->bias && !spec.head_bias) return false;
  for (const Slot& slot : all) {
    if (role_of(slot, spec.width) != Role::reader) continue;
    const LayerSpec* layer = slot.layer < 0 ? nullptr : &spec.layers[static_cast<size_t>(slot.layer)];
    const bool shifted = layer == nullptr ? spec.final_norm->bias
                                          : layer->mixer_norm->bias || (layer->ffn_norm && layer->ffn_norm->bias);
    if (shifted && !slot.bias) return false;
  }
  return true;
}

std::string_view unfit(const ModelSpec& spec) {
  if (!spec.final_norm || !spec.head) return "it has no norm before its head, or no head";
  if (spec.embed_norm || spec.streams || spec.layer_input || spec.pool || spec.embed_width > 0)
    return "its tables, streams or layers' inputs are of a kind of their own";
  if (spec.embed_scale != 1 || spec.logit_scale != 1)
    return "its table or logits are scaled by what follows from the width";
  for (const LayerSpec& layer : spec.layers) {
    if (const std::string_view why = unfit(spec, layer); !why.empty()) return why;
  }
  return "";
}

// a [rows, inner] times b [cols, inner] turned: [rows, cols], in double.
std::vector<float> times(Team& team, std::span<const float> a, std::span<const float> b, size_t inner) {
  const size_t rows = a.size() / inner, cols = b.size() / inner;
  std::vector<float> out(rows * cols);
  team.each(static_cast<int64_t>(rows), [&](int64_t r, int) {
    const float* x = &a[static_cast<size_t>(r) * inner];
    for (size_t c = 0; c < cols; ++c) {
      const float* y = &b[c * inner];
      double sums[4] = {};
      size_t k = 0;
      for (; k + 4 <= inner; k += 4) {
        for (size_t i = 0; i < 4; ++i) sums[i] += static_cast<double>(x[k + i]) * static_cast<double>(y[k + i]);
      }
      for (; k < inner; ++k) sums[0] += static_cast<double>(x[k]) * static_cast<double>(y[k]);
      out[static_cast<size_t>(r) * cols + c] = static_cast<float>((sums[0] + sums[2]) + (sums[1] + sums[3]));
    }
  });
  return out;
}

std::vector<float> transposed(std::span<const float> a, size_t cols) {
  const size_t rows = a.size() / cols;
  std::vector<float> out(a.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = a[r * cols + c];
  }
  return out;
}

std::vector<std::byte> as_stored(std::span<const float> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return {bytes.begin(), bytes.end()};
}

// The first matrix that reads each norm: watching it shows what all of them read.
std::map<std::string, std::string> first_readers(const ModelSpec& spec) {
  std::map<std::string, std::string> out;  // by norm
  for (const Slot& slot : slots(spec)) {
    if (role_of(slot, spec.width) == Role::reader && slot.experts == 0) out.emplace(norm_of(spec, slot), slot.name);
  }
  return out;
}

// The stream as every norm gives it, shown to somebody.
class StreamWatcher final : public Watcher {
 public:
  using Shown = std::function<void(size_t norm, Tensor rows)>;
  StreamWatcher(const Model& model, Shown shown) : shown_(std::move(shown)) {
    std::map<std::string, size_t> wanted;
    size_t number = 0;
    for (const auto& [norm, reader] : first_readers(model.spec())) wanted[reader] = number++;
    ModelWeights weights = model.weights();
    visit_slots(model.spec(), weights, [&](const Slot& slot, const Place& place) {
      const auto found = wanted.find(slot.name);
      if (found != wanted.end() && place.matrix != nullptr) by_data_[place.matrix->data] = found->second;
    });
  }

  void product(const Weight& weight, Tensor in, Tensor) override {
    const auto found = by_data_.find(weight.data);
    if (found != by_data_.end()) shown_(found->second, in);
  }
  void product_of_experts(const Weight&, const Routing&, ExpertInput, Tensor) override {}
  void added(Tensor, Tensor) override {}
  size_t norms() const { return by_data_.size(); }

 private:
  Shown shown_;
  std::map<const std::byte*, size_t> by_data_;
};

Result<void> watch(const Loaded& folded, std::span<const ScoredText> texts, StreamWatcher& watcher,
                   const PassProgress& progress) {
  ObservedBackend observed(*folded.backend, watcher);
  TRY(auto executor, Executor::create(*folded.model, observed, scoring_options(texts, folded.model->spec().vocab)));
  return run_pass(*executor, texts, progress);
}

}  // namespace

Result<void> check_narrowable(const ModelSpec& spec) {
  std::string why(unfit(spec));
  const std::vector<Slot> all = slots(spec);
  if (why.empty()) {
    for (const Slot& slot : all) {
      if (role_of(slot, spec.width) == Role::unknown) why = fmt::format("{} is as wide and of no known use", slot.name);
    }
    if (why.empty() && !takes_biases(spec, all)) why = "its norms have biases and the matrices behind them none";
  }
  if (why.empty()) return {};
  return error(Code::unsupported, "the stream of {} cannot be narrowed: {}; use --ffn, --kv-heads or --layers",
               spec.architecture, why);
}

Result<void> check_width(const ModelSource& source, int64_t width) {
  const int64_t wide = source.spec().width;
  int64_t multiple = 32;
  std::string_view format_name = "matrices";
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind != SlotKind::matrix || !slot.weight || slot.cols != wide) continue;
    const Format& f = format(source.type_of(slot));
    if (f.group > multiple) multiple = f.group, format_name = f.name;
  }
  if (width >= multiple && width < wide && width % multiple == 0) return {};
  return error(Code::invalid, "--width {}: rows of {} come in multiples of {}, below the model's {}; {}", width,
               format_name, multiple, wide,
               multiple > 32 ? "convert the model to BF16 first for another" : "choose such a one");
}

Result<void> fold_norms(ModelSource& source) {
  ModelSpec spec = source.spec();
  const std::vector<Slot> before = slots(spec);
  std::vector<float> table;
  if (spec.tied) {
    TRY(table, read_matrix(source, before.front(), 0));
    spec.tied = false;
    TRY_VOID(source.reshape(spec));
  }
  const std::vector<Slot> all = slots(spec);
  if (!table.empty()) source.put_matrix(*find_slot(all, "output"), 0, DType::f32, as_stored(table));
  for (const Slot& slot : all) {
    if (role_of(slot, spec.width) != Role::reader) continue;
    const Slot& norm = *find_slot(all, norm_of(spec, slot));
    TRY(const std::vector<float> weight, source.norm_weight(norm));
    TRY(const std::vector<float> shift, source.bias(norm));
    TRY(std::vector<float> bias, source.bias(slot));
    const auto cols = static_cast<size_t>(slot.cols);
    std::vector<std::vector<std::byte>> parts;  // all are read before any is put
    for (int64_t e = 0; e < slot.matrices(); ++e) {
      TRY(std::vector<float> numbers, read_matrix(source, slot, e));
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (!shift.empty()) bias[static_cast<size_t>(e * slot.rows) + i / cols] += numbers[i] * shift[i % cols];
        numbers[i] *= weight[i % cols];
      }
      parts.push_back(as_stored(numbers));
    }
    for (size_t e = 0; e < parts.size(); ++e)
      source.put_matrix(slot, static_cast<int64_t>(e), DType::f32, std::move(parts[e]));
    if (!shift.empty()) source.put_bias(slot, std::move(bias));
  }
  for (const Slot& slot : all) {
    if (role_of(slot, spec.width) != Role::norm) continue;
    source.put_numbers(slot, std::vector<float>(static_cast<size_t>(slot.cols), 1.0f));
    if (slot.bias) source.put_bias(slot, std::vector<float>(static_cast<size_t>(slot.cols)));
  }
  return {};
}

Result<StreamSums> sum_stream(Team& team, const Loaded& folded, std::span<const ScoredText> texts,
                              const PassProgress& progress) {
  const int64_t wide = folded.model->spec().width;
  StreamSums out;
  out.products.resize(static_cast<size_t>(wide * wide));
  StreamWatcher watcher(*folded.model, [&](size_t, Tensor rows) {
    add_products(team, rows, rows, true, out.products.data());
    out.rows += rows.rows;
  });
  TRY_VOID(watch(folded, texts, watcher, progress));
  mirror(out.products.data(), wide);
  for (double each : out.products) {
    if (!std::isfinite(each)) return error(Code::corrupt, "the stream is not finite on this text");
  }
  return out;
}

Result<Narrowing> turned(Team& team, const ModelSpec& spec, const StreamSums& sums, int64_t width) {
  const auto wide = static_cast<size_t>(spec.width), narrow = static_cast<size_t>(width);
  TRY(const Eigen found, eigen(team, sums.products, spec.width));
  Narrowing out = {.wide = spec.width, .narrow = width, .rows = std::vector<float>(wide * narrow), .kept = {}};
  if (spec.final_norm->kind == NormKind::rms) {
    for (size_t i = 0; i < out.rows.size(); ++i) out.rows[i] = static_cast<float>(found.vectors[i]);
    return out;
  }
  // The norm takes off the mean of the new numbers too. One direction less is kept, and the others are spread so that
  // every new column's sum is zero: a reflection that carries the last unit vector to the diagonal leaves it out.
  const double n = static_cast<double>(narrow), last = 1 / std::sqrt(n);
  const double scale = 1 / (n * (1 - last));  // of (1 - e * sqrt(n)) (..)^T, twice over its squared length
  for (size_t c = 0; c < wide; ++c) {
    double sum = 0;
    for (size_t r = 0; r + 1 < narrow; ++r) sum += found.vectors[r * wide + c];
    for (size_t r = 0; r < narrow; ++r) {
      const double own = r + 1 < narrow ? found.vectors[r * wide + c] : 0;
      const double along = r + 1 < narrow ? 1 : 1 - std::sqrt(n);
      out.rows[r * wide + c] = static_cast<float>(own - scale * along * sum);
    }
  }
  return out;
}

Result<Narrowing> chosen(const ModelSource& folded, const StreamSums& sums, int64_t width) {
  const ModelSpec& spec = folded.spec();
  const auto wide = static_cast<size_t>(spec.width), narrow = static_cast<size_t>(width);
  std::vector<double> worth(wide);
  for (const Slot& slot : slots(spec)) {
    if (role_of(slot, spec.width) != Role::reader) continue;
    std::vector<double> own(wide);
    for (int64_t e = 0; e < slot.matrices(); ++e) {
      TRY(const std::vector<float> numbers, read_matrix(folded, slot, e));
      for (size_t i = 0; i < numbers.size(); ++i)
        own[i % wide] += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
    }
    double all = 0;
    for (size_t c = 0; c < wide; ++c) all += own[c] *= sums.products[c * wide + c];
    for (size_t c = 0; c < wide; ++c) worth[c] += all > 0 ? own[c] / all : 0;  // every matrix counts alike
  }
  std::vector<size_t> order(wide);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth[a] > worth[b]; });
  order.resize(narrow);
  std::sort(order.begin(), order.end());
  Narrowing out = {
      .wide = spec.width, .narrow = width, .rows = std::vector<float>(wide * narrow), .kept = {}, .chosen = true};
  for (size_t r = 0; r < narrow; ++r) out.rows[r * wide + order[r]] = 1;
  return out;
}

Result<void> measure_kept(Team& team, const Loaded& folded, std::span<const ScoredText> texts, Narrowing& narrowing,
                          const PassProgress& progress) {
  constexpr int64_t kEvery = 8;  // rows: a mean needs no more
  const auto wide = static_cast<size_t>(narrowing.wide);
  std::vector<double> all(first_readers(folded.model->spec()).size()), stays(all.size());
  StreamWatcher watcher(*folded.model, [&](size_t norm, Tensor rows) {
    std::vector<float> some;
    for (int64_t r = 0; r < rows.rows; r += kEvery) some.insert(some.end(), rows.row(r), rows.row(r) + wide);
    for (float each : some) all[norm] += static_cast<double>(each) * static_cast<double>(each);
    for (float each : times(team, some, narrowing.rows, wide))
      stays[norm] += static_cast<double>(each) * static_cast<double>(each);
  });
  TRY_VOID(watch(folded, texts, watcher, progress));
  narrowing.kept.clear();
  for (size_t i = 0; i < all.size(); ++i) narrowing.kept.push_back(all[i] > 0 ? std::sqrt(stays[i] / all[i]) : 1);
  return {};
}

namespace {

// One slot of the model with the narrower stream.
struct Narrowed {
  std::string slot;
  std::vector<std::vector<float>> parts;
  std::vector<float> numbers, bias;
};

Result<Narrowed> narrowed(Team& team, const ModelSource& source, const Slot& slot, Role role,
                          const Narrowing& narrowing) {
  Narrowed out = {.slot = slot.name, .parts = {}, .numbers = {}, .bias = {}};
  const auto wide = static_cast<size_t>(narrowing.wide);
  TRY(out.bias, source.bias(slot));
  if (role == Role::writer && !out.bias.empty()) out.bias = times(team, out.bias, narrowing.rows, wide);
  for (int64_t e = 0; slot.weight && e < slot.matrices(); ++e) {
    TRY(const std::vector<float> numbers, read_matrix(source, slot, e));
    if (role == Role::writer) {
      const auto cols = static_cast<size_t>(slot.cols);
      out.parts.push_back(times(team, narrowing.rows, transposed(numbers, cols), wide));
    } else {
      out.parts.push_back(times(team, numbers, narrowing.rows, wide));
    }
  }
  return out;
}

}  // namespace

Result<void> narrow_stream(Team& team, ModelSource& source, const Narrowing& narrowing) {
  ModelSpec spec = source.spec();
  const auto narrow = static_cast<size_t>(narrowing.narrow), wide = static_cast<size_t>(narrowing.wide);
  // A norm divides by the root of the mean over fewer numbers, which are not all of what there was.
  const double fewer = std::sqrt(static_cast<double>(wide) / static_cast<double>(narrow));
  std::map<std::string, double> gains;  // in the order that `kept` has
  for (const Slot& slot : slots(spec)) {
    if (role_of(slot, spec.width) == Role::norm) gains[slot.name] = fewer;
  }
  CHECK(gains.size() == narrowing.kept.size(), "{} norms, {} measured", gains.size(), narrowing.kept.size());
  for (size_t i = 0; auto& [norm, gain] : gains) gain *= narrowing.kept[i++];
  std::vector<Narrowed> changes;
  for (const Slot& slot : slots(spec)) {
    const Role role = role_of(slot, spec.width);
    if (role == Role::apart) continue;
    if (role != Role::norm) {
      TRY(Narrowed change, narrowed(team, source, slot, role, narrowing));
      changes.push_back(std::move(change));
      continue;
    }
    const auto gain = static_cast<float>(gains[slot.name]);
    Narrowed change = {.slot = slot.name, .parts = {}, .numbers = std::vector<float>(narrow, 1), .bias = {}};
    if (narrowing.chosen) {
      TRY(const std::vector<float> weight, source.norm_weight(slot));
      change.numbers = times(team, weight, narrowing.rows, wide);
    }
    for (float& each : change.numbers) each *= gain;
    if (slot.bias) change.bias.resize(narrow);
    changes.push_back(std::move(change));
  }
  spec.width = static_cast<int32_t>(narrow);
  for (LayerSpec& layer : spec.layers) {
    for (auto* norm : {&layer.mixer_norm, &layer.ffn_norm}) {
      if (*norm) (*norm)->epsilon *= static_cast<float>(fewer * fewer);
    }
  }
  spec.final_norm->epsilon *= static_cast<float>(fewer * fewer);
  TRY_VOID(source.reshape(std::move(spec)));
  const std::vector<Slot> all = slots(source.spec());
  for (Narrowed& change : changes) {
    const Slot& slot = *find_slot(all, change.slot);
    for (size_t e = 0; e < change.parts.size(); ++e)
      source.put_matrix(slot, static_cast<int64_t>(e), DType::f32, as_stored(change.parts[e]));
    if (!change.numbers.empty()) source.put_numbers(slot, std::move(change.numbers));
    if (!change.bias.empty()) source.put_bias(slot, std::move(change.bias));
  }
  return {};
}

std::vector<std::vector<HealPair>> heal_steps(const ModelSpec& student, const ModelSpec& teacher,
                                              std::span<const int32_t> layers) {
  constexpr int64_t kMostSums = int64_t{1} << 30;  // bytes of what a head's sums may take
  const std::vector<Slot> mine = slots(student), theirs = slots(teacher);
  std::vector<std::vector<HealPair>> out;
  auto readers = [&](size_t layer, std::initializer_list<std::string_view> stems) {
    std::vector<HealPair> step;
    for (std::string_view stem : stems) {
      const HealPair pair = {.slot = fmt::format("blk.{}.{}", layer, stem),
                             .target = fmt::format("blk.{}.{}", layers[layer], stem),
                             .outputs = true};
      const Slot *own = find_slot(mine, pair.slot), *other = find_slot(theirs, pair.target);
      if (own != nullptr && other != nullptr && own->rows == other->rows) step.push_back(pair);
    }
    if (!step.empty()) out.push_back(std::move(step));
  };
  for (const HealPair& pair : heal_order(student, layers, static_cast<int32_t>(teacher.layers.size()))) {
    const auto layer = static_cast<size_t>(find_slot(mine, pair.slot)->layer);
    if (pair.slot.ends_with("attn_output")) {
      readers(layer, {"attn_q", "attn_k", "attn_v"});
    } else {
      readers(layer, {"ffn_gate", "ffn_up"});
    }
    out.push_back({pair});
  }
  const Slot* head = find_slot(mine, "output");
  if (head != nullptr && head->weight && head->rows * head->cols * static_cast<int64_t>(sizeof(double)) <= kMostSums)
    out.push_back({{.slot = "output", .target = "output", .outputs = true}});
  return out;
}

}  // namespace millrace
