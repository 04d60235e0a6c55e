#include <algorithm>

#include "model/mixers/mixers.h"
#include "model/model.h"

namespace millrace {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Rotary frequencies and ALiBi slopes.
int64_t constant_bytes(const ModelSpec& spec) {
  int64_t values = 0;
  for (const RopeSpec& rope : spec.ropes) values += static_cast<int64_t>(rope.frequencies.size());
  for (const LayerSpec& layer : spec.layers) values += constants_of(layer.mixer);
  return values * kFloat;
}

template <class TypeOf>
WeightPlan plan(const ModelSpec& spec, const Backend& backend, TypeOf type_of) {
  WeightPlan plan = {.vectors = constant_bytes(spec)};
  for (const Slot& slot : slots(spec)) {
    plan.parameters += slot.values();
    if (slot.bias) plan.vectors += slot.bias_size() * kFloat;
    if (!slot.weight) continue;
    if (slot.kind != SlotKind::matrix) {
      plan.vectors += slot.cols * kFloat;
    } else {
      const DType type = slot.float32 ? DType::f32 : type_of(slot);
      plan.matrices += slot.matrices() * backend.weight_bytes(type, slot.rows, slot.cols, slot.use);
    }
  }
  return plan;
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

Result<void> load_norm(const ModelSource& source, Backend& backend, const Slot& slot, Norm& norm) {
  if (slot.weight) {
    TRY(const std::vector<float> weight, source.norm_weight(slot));
    TRY(norm.weight, backend.upload_vector(weight));
  }
  if (slot.bias) {
    TRY(const std::vector<float> bias, source.bias(slot));
    TRY(norm.bias, backend.upload_vector(bias));
  }
  return {};
}

Result<void> load_vector(const ModelSource& source, Backend& backend, const Slot& slot, const float*& place) {
  TRY(const std::vector<float> numbers, source.vector(slot));
  TRY(place, backend.upload_vector(numbers));
  return {};
}

}  // namespace

WeightPlan plan_weights(const ModelSource& source, const Backend& backend) {
  return plan(source.spec(), backend, [&](const Slot& slot) { return source.type_of(slot); });
}

WeightPlan plan_weights(const ModelSpec& spec, const TypeOf& type_of, const Backend& backend) {
  return plan(spec, backend, type_of);
}

WeightPlan plan_weights(const ModelSpec& spec, DType type, const Backend& backend) {
  return plan(spec, backend, [&](const Slot&) { return type; });
}

Result<void> Model::upload_constants(Backend& backend) {
  std::vector<Rope> ropes;
  for (const RopeSpec& rope : spec_.ropes) {
    TRY(const float* frequencies, backend.upload_vector(rope.frequencies));
    ropes.push_back(
        {.frequencies = frequencies, .dims = rope.dims, .magnitude = rope.magnitude, .neighbours = rope.neighbours});
  }
  for (size_t i = 0; i < spec_.layers.size(); ++i)
    TRY_VOID(millrace::upload_constants(backend, spec_.layers[i].mixer, ropes, weights_.layers[i].mixer));
  return {};
}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, Backend& backend, const LoadOptions& options) {
  TRY(const ModelSource source, ModelSource::open(checkpoint, options.context, options.keep));
  return load(source, backend, options);
}

Result<std::unique_ptr<Model>> Model::load(const ModelSource& source, Backend& backend, const LoadOptions& options) {
  TRY_VOID(check_runnable(source.spec()));
  std::unique_ptr<Model> model(new Model(source.spec()));
  model->plan_ = plan_weights(source, backend);
  if (options.weight_limit > 0 && model->plan_.bytes() > options.weight_limit) {
    return error(
        Code::no_memory,
        "the weights take {:.1f} MB, but only {:.1f} MB are free for them; use a smaller format (convert --type)",
        megabytes(model->plan_.bytes()), megabytes(options.weight_limit));
  }
  if (options.context > 0 && source.spec().positions > 0 && options.context > source.spec().context) {
    return error(Code::invalid, "a context of {} was asked for, but the model has learned only {} positions",
                 options.context, source.spec().context);
  }
  Result<void> failed;
  int64_t done = 0;
  std::vector<std::byte> room;  // for rows that lie in another order in the file
  auto load_matrix = [&](const Slot& slot, Weight& place) -> Result<void> {
    TRY(const std::vector<float> bias, source.bias(slot));
    if (!slot.weight) {  // a tied head with a bias of its own
      place = model->weights_.embedding;
      TRY(place.bias, backend.upload_vector(bias));
      return {};
    }
    if (slot.experts > 0) {
      const HostExperts experts = {.experts = slot.experts,
                                   .type = source.type_of(slot),
                                   .rows = slot.rows,
                                   .cols = slot.cols,
                                   .part = [&](int64_t expert) { return source.matrix(slot, expert, room); }};
      TRY(place, backend.upload_experts(experts, bias));
    } else {
      TRY(const HostMatrix matrix, source.matrix(slot, 0, room));
      TRY(place, backend.upload(matrix, slot.use, bias));
    }
    if (!source.keeps(slot, place.data)) source.done_with(slot);
    done += place.bytes;
    return {};
  };
  visit_slots(model->spec_, model->weights_, [&](const Slot& slot, const Place& place) {
    if (!failed.ok()) return;
    failed = place.matrix != nullptr ? load_matrix(slot, *place.matrix)
             : place.norm != nullptr ? load_norm(source, backend, slot, *place.norm)
                                     : load_vector(source, backend, slot, *place.vector);
    if (!failed.ok()) {
      failed = within(slot.name, std::move(failed).error());
    } else if (options.progress && !options.progress(done, model->plan_.matrices)) {
      failed = error(Code::cancelled, "loading was stopped");
    }
  });
  TRY_VOID(std::move(failed));
  if (!model->weights_.head) model->weights_.head = model->weights_.embedding;
  TRY_VOID(model->upload_constants(backend));
  return model;
}

}  // namespace millrace
