#include <algorithm>
#include <map>

#include "base/human.h"
#include "base/read_ahead.h"
#include "cache/bulk_digest.h"
#include "model/check_backend.h"
#include "model/ffns/ffns.h"
#include "model/known_digests.h"
#include "model/mixers/mixers.h"
#include "model/model.h"
#include "model/orders.h"
#include "model/shared.h"

namespace millrace {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Rotary frequencies and ALiBi slopes.
int64_t constant_bytes(const ModelSpec& spec) {
  int64_t values = 0;
  for (const RopeSpec& rope : spec.ropes) values += static_cast<int64_t>(rope.frequencies.size());
  for (const LayerSpec& layer : spec.layers)
    values += constants_of(layer.mixer) + (layer.beside ? constants_of(*layer.beside) : 0);
  return values * kFloat;
}

template <class FormOf>
WeightPlan plan(const ModelSpec& spec, const Backend& backend, FormOf form_of) {
  const std::optional<Stage> stage = stage_of(backend, spec.layers.size());
  WeightPlan plan = {.vectors = constant_bytes(spec)};
  Orders orders;
  for (const Slot& slot : slots(spec)) {
    plan.parameters += slot.values();
    if (!is_here(slot, spec, stage)) continue;
    if (slot.bias) plan.vectors += slot.bias_size() * kFloat;
    if (!slot.weight) continue;
    if (slot.kind != SlotKind::matrix) {
      plan.vectors += slot.cols * kFloat;
    } else {
      const MatrixForm form = slot.float32 ? DType::f32 : form_of(slot);
      plan.matrices += slot.experts > 0 ? experts_bytes(backend, form.type, slot.experts, slot.rows, slot.cols)
                                        : backend.weight_bytes(form.type, slot.rows, slot.cols, slot.use);
      plan.vectors += orders.bytes(form.order);
    }
  }
  return plan;
}

// Rows of so many columns, as columns.
std::vector<float> turned(const std::vector<float>& numbers, size_t columns) {
  std::vector<float> out(numbers.size());
  const size_t rows = numbers.size() / columns;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = numbers[r * columns + c];
  }
  return out;
}

void add_vector(Digest& digest, std::string_view name, std::span<const float> values) {
  digest.add_sized(name);
  digest.add(bulk_digest(std::as_bytes(values)));
}

// Of the settings as they were read, by name; of what they became where that depends on the context asked for; and of
// the weights.
Identity content_of(const ModelSource& source, const Identity& weights) {
  Digest content;
  std::map<std::string, std::string> settings;
  for (const auto& setting : source.config().values()) settings[setting.key()] = to_text(setting.value());
  for (const auto& [name, value] : settings) {
    content.add_sized(name);
    content.add_sized(value);
  }
  for (const RopeSpec& rope : source.spec().ropes) {
    add_vector(content, "rope", rope.frequencies);
    add_vector(content, "magnitude", std::vector<float>{rope.magnitude});
  }
  content.add(weights);
  return content.finish();
}

// Puts slots into a backend, and takes the digest of what it puts there if asked.
class Loader {
 public:
  Loader(const ModelSource& source, Backend& backend, bool digest)
      : source_(source), backend_(backend), digest_(digest) {}

  Result<void> norm(const Slot& slot, Norm& norm) {
    if (slot.weight) {
      TRY(const std::vector<float> weight, source_.norm_weight(slot));
      add_vector(slot.name, weight);
      TRY(norm.weight, backend_.upload_vector(weight));
    }
    if (slot.bias) {
      TRY(const std::vector<float> bias, source_.bias(slot));
      add_vector(slot.name, bias);
      TRY(norm.bias, backend_.upload_vector(bias));
    }
    return {};
  }

  Result<void> matrix(const Slot& slot, const Weight& embedding, Weight& place) {
    TRY(const std::vector<float> bias, source_.bias(slot));
    if (!bias.empty()) add_vector(slot.name, bias);
    if (!slot.weight) {  // a tied head with a bias of its own
      place = embedding;
      TRY(place.bias, backend_.upload_vector(bias));
      return {};
    }
    if (slot.experts > 0) {
      for (int64_t expert = 0; digest_ && expert < slot.experts; ++expert) {
        TRY(const HostMatrix matrix, source_.matrix(slot, expert, room_));
        add_matrix(slot, matrix);
      }
      const HostExperts experts = {.experts = slot.experts,
                                   .type = source_.type_of(slot),
                                   .rows = slot.rows,
                                   .cols = slot.cols,
                                   .part = [&](int64_t expert) { return source_.matrix(slot, expert, room_); }};
      TRY(place, backend_.upload_experts(experts, bias));
    } else {
      TRY(const HostMatrix matrix, source_.matrix(slot, 0, room_));
      if (digest_) add_matrix(slot, matrix);
      TRY(place, backend_.upload(matrix, slot.use, bias));
      TRY(place.order, orders_.bring(matrix.order, backend_));
    }
    source_.done_with(slot);
    done_ += place.bytes;
    return {};
  }

  // What another rank has: only its digest is taken.
  Result<void> read(const Slot& slot) {
    if (!digest_) return {};
    if (slot.kind == SlotKind::norm) {
      if (slot.weight) {
        TRY(const std::vector<float> weight, source_.norm_weight(slot));
        add_vector(slot.name, weight);
      }
    } else if (slot.kind != SlotKind::matrix) {
      TRY(const std::vector<float> numbers, source_.vector(slot));
      add_vector(slot.name, numbers);
      return {};
    }
    TRY(const std::vector<float> bias, source_.bias(slot));
    if (!bias.empty()) add_vector(slot.name, bias);
    for (int64_t part = 0; slot.kind == SlotKind::matrix && slot.weight && part < slot.matrices(); ++part) {
      TRY(const HostMatrix matrix, source_.matrix(slot, part, room_));
      add_matrix(slot, matrix);
    }
    return {};
  }

  Result<void> vector(const Slot& slot, const float*& place) {
    TRY(const std::vector<float> numbers, source_.vector(slot));
    add_vector(slot.name, numbers);
    TRY(place, backend_.upload_vector(slot.turned > 0 ? turned(numbers, static_cast<size_t>(slot.turned)) : numbers));
    return {};
  }

  int64_t done() const { return done_; }  // bytes of matrices
  Identity digest() { return weights_.finish(); }

 private:
  void add_matrix(const Slot& slot, const HostMatrix& matrix) {
    weights_.add_sized(fmt::format("{} {} {} {}", slot.name, format(matrix.type).name, matrix.rows, matrix.cols));
    weights_.add(bulk_digest(matrix.bytes));
    if (!matrix.order.empty()) weights_.add(bulk_digest(std::as_bytes(matrix.order)));
  }
  void add_vector(std::string_view name, std::span<const float> values) {
    if (digest_) millrace::add_vector(weights_, name, values);
  }

  const ModelSource& source_;
  Backend& backend_;
  bool digest_;
  Digest weights_;
  int64_t done_ = 0;
  std::vector<std::byte> room_;  // for rows that lie in another order in the file
  Orders orders_;
};

// What is read of the files, slot by slot.
std::vector<std::span<const std::byte>> parts_to_read(const ModelSource& source, const std::optional<Stage>& stage,
                                                      std::vector<size_t>& ends) {
  std::vector<std::span<const std::byte>> parts;
  for (const Slot& slot : slots(source.spec())) {
    if (slot.kind == SlotKind::matrix && slot.weight && is_here(slot, source.spec(), stage))
      std::ranges::copy(source.places(slot), std::back_inserter(parts));
    ends.push_back(parts.size());
  }
  return parts;
}

}  // namespace

WeightPlan plan_weights(const ModelSource& source, const Backend& backend) {
  return plan(source.spec(), backend, [&](const Slot& slot) { return source.form_of(slot); });
}

WeightPlan plan_weights(const ModelSpec& spec, const FormOf& form_of, const Backend& backend) {
  return plan(spec, backend, form_of);
}

WeightPlan plan_weights(const ModelSpec& spec, DType type, const Backend& backend) {
  return plan(spec, backend, [&](const Slot&) { return MatrixForm(type); });
}

Result<void> Model::upload_constants(Backend& backend) {
  std::vector<Rope> ropes;
  for (const RopeSpec& rope : spec_.ropes) {
    TRY(const float* frequencies, backend.upload_vector(rope.frequencies));
    ropes.push_back(
        {.frequencies = frequencies, .dims = rope.dims, .magnitude = rope.magnitude, .neighbours = rope.neighbours});
  }
  hand_out_shared(spec_, weights_);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    if (layer.shared)
      TRY_VOID(millrace::upload_constants(backend, layer.shared->gqa, ropes, weights_.layers[i].shared.attention));
    TRY_VOID(millrace::upload_constants(backend, layer.mixer, ropes, weights_.layers[i].mixer));
    if (layer.beside) TRY_VOID(millrace::upload_constants(backend, *layer.beside, ropes, weights_.layers[i].beside));
  }
  return {};
}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, Backend& backend, const LoadOptions& options) {
  TRY(ModelSource source, ModelSource::open(checkpoint, reach_of(options.forget, options.context), options.keep));
  TRY_VOID(source.forget(options.forget));
  return load(source, backend, options);
}

Result<std::unique_ptr<Model>> Model::load(const ModelSource& source, Backend& backend, const LoadOptions& options) {
  TRY_VOID(check_runnable(source.spec()));
  TRY_VOID(check_backend(source.spec(), backend));
  std::unique_ptr<Model> model(new Model(source.spec(), backend));
  model->plan_ = plan_weights(source, backend);
  if (options.weight_limit > 0 && model->plan_.bytes() > options.weight_limit) {
    return error(Code::no_memory,
                 "the weights take {}, but only {} are free for them; use a smaller format (convert --type)",
                 human_bytes(static_cast<uint64_t>(model->plan_.bytes())),
                 human_bytes(static_cast<uint64_t>(options.weight_limit)));
  }
  if (options.context > 0 && source.spec().positions > 0 && options.context > source.spec().context) {
    return error(Code::invalid, "a context of {} was asked for, but the model has learned only {} positions",
                 options.context, source.spec().context);
  }
  Result<void> failed;
  const KnownDigests known(options.digest ? options.digests : std::filesystem::path(), source);
  std::optional<Identity> digest = known.find();
  Loader loader(source, backend, options.digest && !digest);
  std::vector<size_t> ends;
  ReadAhead ahead(parts_to_read(source, model->stage_, ends));
  size_t visited = 0;
  visit_slots(model->spec_, model->weights_, [&](const Slot& slot, const Place& place) {
    if (visited > 0) ahead.read(ends[visited - 1]);
    ++visited;
    if (!failed.ok()) return;
    if (!is_here(slot, model->spec_, model->stage_)) {
      failed = loader.read(slot);
      return;
    }
    failed = place.matrix != nullptr ? loader.matrix(slot, model->weights_.embedding, *place.matrix)
             : place.norm != nullptr ? loader.norm(slot, *place.norm)
                                     : loader.vector(slot, *place.vector);
    if (!failed.ok()) {
      failed = within(slot.name, std::move(failed).error());
    } else if (options.progress &&
               !options.progress(std::min(loader.done(), model->plan_.matrices), model->plan_.matrices)) {
      failed = error(Code::cancelled, "loading was stopped");
    }
  });
  // Files that change while they are read give any error, or none: that they changed is what a person must know.
  TRY_VOID(source.checkpoint().unchanged());
  TRY_VOID(std::move(failed));
  if (!model->weights_.head && model->spec_.head) model->weights_.head = model->weights_.embedding;
  TRY_VOID(model->upload_constants(backend));
  if (options.digest && !digest) known.keep(*(digest = loader.digest()));
  if (options.digest) {
    model->weights_digest_ = digest;
    model->content_ = content_of(source, *digest);
  }
  return model;
}

}  // namespace millrace
