#include "model/check_backend.h"
#include "model/model.h"
#include "model/orders.h"
#include "model/random_rows.h"

namespace millrace {

Result<void> Model::fill(Backend& backend, const std::function<Result<HostMatrix>(const Slot& slot)>& make) {
  Orders orders;
  auto fill_place = [&](const Slot& slot, const Place& place) -> Result<void> {
    const std::vector<float> zeros(slot.bias ? static_cast<size_t>(slot.bias_size()) : 0);
    Weight* matrix = place.matrix;
    Norm* norm = place.norm;
    if (place.vector != nullptr) {
      TRY(*place.vector, backend.upload_vector(std::vector<float>(static_cast<size_t>(slot.cols))));
      return {};
    }
    if (norm != nullptr) {
      const std::vector<float> ones(static_cast<size_t>(slot.cols), 1.0f);
      if (slot.weight) {
        TRY(norm->weight, backend.upload_vector(ones));
      }
      if (slot.bias) {
        TRY(norm->bias, backend.upload_vector(zeros));
      }
      return {};
    }
    if (!slot.weight) {  // a tied head with a bias of its own
      *matrix = weights_.embedding;
      TRY(matrix->bias, backend.upload_vector(zeros));
      return {};
    }
    if (slot.experts > 0) {
      TRY(const HostMatrix first, make(slot));
      const HostExperts experts = {
          .experts = slot.experts, .type = first.type, .rows = slot.rows, .cols = slot.cols, .part = [&](int64_t) {
            return Result<HostMatrix>(first);
          }};
      TRY(*matrix, backend.upload_experts(experts, zeros));
      return {};
    }
    TRY(const HostMatrix made, make(slot));
    TRY(*matrix, backend.upload(made, slot.use, zeros));
    TRY(matrix->order, orders.bring(made.order, backend));
    return {};
  };
  Result<void> failed;
  visit_slots(spec_, weights_, [&](const Slot& slot, const Place& place) {
    if (!failed.ok() || !is_here(slot, spec_, stage_)) return;
    failed = fill_place(slot, place);
    if (!failed.ok()) failed = within(slot.name, std::move(failed).error());
  });
  TRY_VOID(std::move(failed));
  if (!weights_.head && spec_.head) weights_.head = weights_.embedding;
  return upload_constants(backend);
}

Result<std::unique_ptr<Model>> Model::random(const ModelSpec& spec, DType type, uint64_t seed, Backend& backend) {
  return random(
      spec, [type](const Slot&) { return type; }, seed, backend);
}

Result<std::unique_ptr<Model>> Model::random(const ModelSpec& spec, const FormOf& form_of, uint64_t seed,
                                             Backend& backend) {
  TRY_VOID(check_spec(spec));
  TRY_VOID(check_runnable(spec));
  TRY_VOID(check_backend(spec, backend));
  std::unique_ptr<Model> model(new Model(spec, backend));
  // By name and layer, not by order: a stage of a pipeline fills some of the layers only. Experts come one by one.
  std::pair<std::string, int32_t> last;
  uint32_t salt = 0;
  auto next_salt = [&](const Slot& slot) {
    std::pair<std::string, int32_t> here(slot.name, static_cast<int32_t>(slot.layer));
    if (here == last) return ++salt;
    salt = 2166136261u ^ (static_cast<uint32_t>(slot.layer) + 1) * 2654435761u;
    for (const char letter : slot.name) salt = (salt ^ static_cast<unsigned char>(letter)) * 16777619u;
    last = std::move(here);
    return salt;
  };
  std::vector<std::byte> bytes;
  for (const Slot& slot : slots(spec)) {
    if (slot.kind != SlotKind::matrix || slot.float32) continue;
    const Format& f = format(form_of(slot).type);
    if (f.from_float == nullptr) return error(Code::unsupported, "weights of format {} cannot be made", f.name);
    if (slot.cols % f.group != 0) {
      return error(Code::unsupported, "{}: rows of {} numbers cannot be {}: expected a multiple of {}", slot.name,
                   slot.cols, f.name, f.group);
    }
  }
  model->plan_ = plan_weights(spec, form_of, backend);
  TRY_VOID(model->fill(backend, [&](const Slot& slot) -> Result<HostMatrix> {
    const DType kept = slot.float32 ? DType::f32 : form_of(slot).type;
    bytes = RowPool(kept, seed).matrix(slot.rows, slot.cols, next_salt(slot));
    return HostMatrix{.type = kept, .rows = slot.rows, .cols = slot.cols, .bytes = bytes};
  }));
  return model;
}

Result<std::unique_ptr<Model>> Model::outline(const ModelSpec& spec, const FormOf& form_of, Backend& trace) {
  TRY_VOID(check_spec(spec));
  std::unique_ptr<Model> model(new Model(spec, trace));
  model->plan_ = plan_weights(spec, form_of, trace);
  TRY_VOID(model->fill(trace, [&](const Slot& slot) -> Result<HostMatrix> {
    const MatrixForm form = slot.float32 ? DType::f32 : form_of(slot);
    return HostMatrix{.type = form.type, .rows = slot.rows, .cols = slot.cols, .bytes = {}, .order = form.order};
  }));
  return model;
}

Result<std::unique_ptr<Model>> Model::outline(const ModelSpec& spec, DType type, Backend& trace) {
  return outline(
      spec, [type](const Slot&) { return type; }, trace);
}

}  // namespace millrace
