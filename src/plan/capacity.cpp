#include "plan/capacity.h"

#include <algorithm>

#include "base/checked.h"
#include "model/forward.h"

namespace millrace {
namespace {

constexpr int32_t kMostSequences = 65536;
constexpr double kHalf = 2;  // bytes of a number on the way between devices

// Bytes a device sends so that all have the sum of their parts: a ring passes every part on twice.
double ring_bytes(double bytes, int32_t ranks) { return 2 * bytes * (ranks - 1) / ranks; }

Result<CacheLayout> layout_of(const ModelSpec& spec, const KvForm& kv, int32_t page_tokens) {
  TRY(auto specs, specs_of(kv_shapes(spec, kv)));
  return plan_layout(specs, {.page_tokens = page_tokens, .snapshot_tokens = usual_snapshot_tokens(specs)});
}

Result<int64_t> store_bytes(const CacheLayout& layout, int32_t batch, int32_t context, int32_t chunk) {
  const Checked pages = Checked(layout.peak_pages_for(context, chunk) + layout.kept_pages()) * Checked(batch);
  if (!pages.within(INT32_MAX)) {
    return error(Code::no_memory, "{} sequences of {} tokens need too many pages; ask for fewer or a shorter context",
                 batch, context);
  }
  return Store::bytes_needed(layout, std::max(1, static_cast<int>(*pages.get())));
}

}  // namespace

Result<Planner> Planner::create(const Model& model, const Backend& backend, Hardware hardware,
                                const DeployOptions& options) {
  if (!model.spec().head)
    return error(Code::unsupported,
                 "{} is an encoder; plans are of models that write text (`millrace inspect` shows its "
                 "bytes)",
                 model.spec().architecture);
  if (options.chunk < 1) return error(Code::invalid, "chunks of {} tokens; give at least 1", options.chunk);
  if (options.ranks > 1 && hardware.link_bytes <= 0) {
    return error(Code::invalid, "{} has no link to others of its kind, so a model cannot be cut over {} of them",
                 hardware.name, options.ranks);
  }
  Planner planner(model, backend, std::move(hardware), options);
  TRY(planner.layout_, layout_of(model.spec(), options.kv, options.page_tokens));
  return planner;
}

Result<MemoryPlan> Planner::memory(int32_t batch, int32_t context) {
  if (batch < 1 || batch > kMostSequences)
    return error(Code::invalid, "a batch of {} sequences; give 1 to {}", batch, kMostSequences);
  if (context < 1) return error(Code::invalid, "a context of {} tokens; give at least 1", context);
  // Room to compute in does not depend on how keys and values are kept.
  ExecutorOptions settings = {.context = context,
                              .rows = std::max(std::min(options_.chunk, context), batch),
                              .sequences = batch,
                              .pages = 1,
                              .kv = DType::f16,
                              .page_tokens = options_.page_tokens};
  MemoryPlan plan = {.weights = model_->weight_bytes(), .reserve = hardware_.reserve, .limit = hardware_.memory};
  suit_requests(model_->spec(), settings);
  const int32_t rows = settings.rows, wanted = settings.wanted > 0 ? settings.wanted : batch;
  auto& workspace = workspaces_[{rows, wanted}];
  if (workspace == 0) workspace = workspace_bytes(*model_, rows, wanted) + backend_->fixed_workspace();
  plan.workspace = workspace;
  TRY(plan.kv, store_bytes(layout_, batch, context, rows));
  TRY(plan.staging, Executor::staging_bytes(model_->spec(), layout_, settings, *backend_));
  return plan;
}

Result<int32_t> Planner::sequences_that_fit(int32_t context) {
  auto fits = [&](int32_t batch) {
    auto plan = memory(batch, context);
    return plan.ok() && plan->fits();
  };
  TRY_VOID(memory(1, context));
  if (!fits(1)) return 0;
  int32_t low = 1, high = 2;
  while (high <= kMostSequences && fits(high)) low = high, high *= 2;
  if (high > kMostSequences) return low;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

Result<int32_t> Planner::context_that_fits(int32_t batch) {
  const int32_t page = options_.page_tokens;
  auto fits = [&](int32_t context) {
    auto plan = memory(batch, context);
    return plan.ok() && plan->fits();
  };
  TRY_VOID(memory(batch, 1));
  int32_t low = 0, high = model_->spec().context / page + 1;  // in pages
  if (fits(model_->spec().context)) return model_->spec().context;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle * page) ? low : high) = middle;
  }
  return low * page;
}

PassPlan Planner::pass(std::span<const PassRows> rows) const {
  PassPlan plan = {.floor = floor_of(trace_pass(*model_, options_.kv, rows), hardware_.ceilings)};
  if (options_.ranks == 1) return plan;
  double tokens = 0, wanted = 0;
  for (const PassRows& each : rows) tokens += each.count, wanted += each.wanted;
  // After the embedding, each mixer and each ffn; then the logits of all parts of the vocabulary come together.
  const double reduces = 1 + 2.0 * static_cast<double>(model_->spec().layers.size());
  plan.reduce_bytes = reduces * ring_bytes(tokens * model_->spec().width * kHalf, options_.ranks) +
                      wanted * model_->spec().vocab * kHalf * (options_.ranks - 1);
  plan.reduce_seconds = plan.reduce_bytes / hardware_.link_bytes + (reduces + 1) * hardware_.link_seconds;
  return plan;
}

std::vector<std::vector<PassRows>> Planner::chunks(int32_t prompt) const {
  std::vector<std::vector<PassRows>> passes;
  for (int32_t begin = 0; begin < prompt; begin += options_.chunk) {
    const int32_t count = std::min(options_.chunk, prompt - begin);
    passes.push_back({{.begin = begin, .count = count, .wanted = begin + count == prompt ? 1 : 0}});
  }
  return passes;
}

PassPlan Planner::decode(int32_t batch, int32_t context) const {
  const std::vector<PassRows> rows(static_cast<size_t>(batch), {.begin = context - 1});
  return pass(rows);
}

PassPlan Planner::check(int32_t batch, int32_t tokens, int32_t context) const {
  const std::vector<PassRows> rows(static_cast<size_t>(batch),
                                   {.begin = context - 1, .count = tokens, .wanted = tokens});
  return pass(rows);
}

PassPlan Planner::prefill(int32_t prompt) const {
  PassPlan sum;
  for (const auto& rows : chunks(prompt)) {
    const PassPlan one = pass(rows);
    sum.floor += one.floor;
    sum.reduce_bytes += one.reduce_bytes;
    sum.reduce_seconds += one.reduce_seconds;
  }
  return sum;
}

std::vector<OpPlan> Planner::ops(std::span<const std::vector<PassRows>> passes) const {
  std::vector<OpPlan> ops;
  for (const auto& rows : passes) {
    for (const TraceRecord& record : trace_pass(*model_, options_.kv, rows)) {
      auto found = std::find_if(ops.begin(), ops.end(), [&](const OpPlan& op) { return op.op == record.op; });
      if (found == ops.end()) found = ops.insert(ops.end(), {.op = std::string(record.op)});
      found->cost += record.cost;
      found->floor += floor_of({&record, 1}, hardware_.ceilings);
    }
  }
  std::stable_sort(ops.begin(), ops.end(),
                   [](const OpPlan& a, const OpPlan& b) { return a.floor.seconds > b.floor.seconds; });
  return ops;
}

std::vector<OpPlan> Planner::decode_ops(int32_t batch, int32_t context) const {
  const std::vector<PassRows> rows(static_cast<size_t>(batch), {.begin = context - 1});
  return ops({&rows, 1});
}

std::vector<OpPlan> Planner::prefill_ops(int32_t prompt) const { return ops(chunks(prompt)); }

int32_t Planner::compute_bound_batch() const {
  auto computes = [&](int32_t batch) {
    const std::vector<PassRows> rows(static_cast<size_t>(batch), PassRows{});
    double reading = 0, computing = 0;
    for (const TraceRecord& record : trace_pass(*model_, options_.kv, rows)) {
      if (!record.op.starts_with("linear")) continue;
      reading += static_cast<double>(record.cost.weight_bytes) / hardware_.ceilings.read_bytes;
      computing += record.cost.flops / hardware_.ceilings.operations(record);
    }
    return computing >= reading;
  };
  int32_t low = 0, high = 1;
  while (high <= kMostSequences && !computes(high)) low = high, high *= 2;
  if (high > kMostSequences) return 0;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (computes(middle) ? high : low) = middle;
  }
  return high;
}

double Planner::product_rate() const {
  const PassRows one;
  double flops = 0, seconds = 0;
  for (const TraceRecord& record : trace_pass(*model_, options_.kv, {&one, 1})) {
    if (!record.op.starts_with("linear")) continue;
    flops += record.cost.flops;
    seconds += record.cost.flops / hardware_.ceilings.operations(record);
  }
  return seconds > 0 ? flops / seconds : hardware_.ceilings.f32;
}

Result<LoadPlan> Planner::load(int32_t batch, int32_t prompt, int32_t output) {
  LoadPlan plan = {.batch = batch};
  TRY(plan.memory, memory(batch, prompt + output));
  const PassPlan step = decode(batch, prompt + std::max(1, output / 2));
  plan.first_token = prefill(prompt).seconds();
  plan.token = step.seconds();
  plan.bound = step.floor.bound();
  plan.decode_rate = batch / plan.token;
  plan.served_rate = batch * static_cast<double>(output) / (batch * plan.first_token + output * plan.token);
  return plan;
}

Result<std::vector<LoadPlan>> Planner::frontier(int32_t prompt, int32_t output) {
  TRY(const int32_t most, sequences_that_fit(prompt + output));
  std::vector<LoadPlan> points;
  for (int32_t batch = 1; batch < 2 * most && batch <= 4096; batch *= 2) {
    TRY(LoadPlan plan, load(std::min(batch, most), prompt, output));
    points.push_back(plan);
  }
  return points;
}

Result<int64_t> kv_bytes(const ModelSpec& spec, const KvForm& form, int32_t batch, int32_t context,
                         int32_t page_tokens) {
  if (batch < 1 || context < 1)
    return error(Code::invalid, "{} sequences of {} tokens; give at least one of each", batch, context);
  TRY(const CacheLayout layout, layout_of(spec, form, page_tokens));
  return store_bytes(layout, batch, context, 1);
}

ScoreMemory score_memory(const ModelSpec& spec, int32_t batch, int32_t tokens, int32_t score_bytes) {
  double heads = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    const auto* mla = std::get_if<MlaSpec>(&layer.mixer);
    heads = std::max(heads, static_cast<double>(gqa != nullptr ? gqa->heads : mla != nullptr ? mla->heads : 0));
  }
  const double rows = static_cast<double>(batch) * tokens * heads;
  return {.stored = rows * tokens * score_bytes, .running = rows * 2 * static_cast<double>(sizeof(float))};
}

}  // namespace millrace
