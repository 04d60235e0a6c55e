#include "plan/roofline.h"

#include <algorithm>

#include "model/forward.h"

namespace millrace {
double Ceilings::operations(const TraceRecord& record) const {
  if (record.op == "attend") return attend;
  if (!record.op.starts_with("linear")) return f32;
  switch (record.type) {
    case DType::f32:
      return f32;
    case DType::f16:
      return f16;
    case DType::bf16:
      return bf16;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return f8;
    default:
      return grouped;
  }
}

Ceilings ceilings_of(const Machine& machine, bool fast) {
  auto or_f32 = [&](double operations) { return fast && operations > 0 ? operations : machine.f32_operations; };
  // Tiles multiply attention's rows as bfloat16, and quantised weights where asked to.
  const bool tiles = machine.isa.starts_with("amx");
  const double bf16 = or_f32(machine.bf16_operations);
  return {.read_bytes = machine.read_bytes,
          .grouped = machine.isa == "amx_bf16" ? bf16 : or_f32(machine.int8_operations),
          .f8 = machine.f32_operations,
          .f16 = or_f32(machine.f16_operations),
          .bf16 = bf16,
          .f32 = machine.f32_operations,
          .attend = tiles ? bf16 : machine.f32_operations};
}

void run_pass(Ops& ops, const Model& model, const KvForm& kv, std::span<const PassRows> sequences) {
  std::vector<int32_t> tokens, positions, visible, sequence, first_row = {0}, wanted_rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const PassRows& rows = sequences[s];
    for (int32_t i = 0; i < rows.count; ++i) {
      if (i >= rows.count - rows.wanted) wanted_rows.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(0);
      positions.push_back(rows.begin + i);
      visible.push_back(rows.begin + i + 1);
      sequence.push_back(static_cast<int32_t>(s));
    }
    first_row.push_back(static_cast<int32_t>(tokens.size()));
  }
  const std::vector<KvView> views = kv_outlines(model.spec(), kv);
  const PageTables none;
  Step step = {.rows = static_cast<int32_t>(tokens.size()),
               .sequences = static_cast<int32_t>(sequences.size()),
               .wanted = static_cast<int32_t>(wanted_rows.size()),
               .tokens = tokens.data(),
               .positions = positions.data(),
               .visible = visible.data(),
               .sequence = sequence.data(),
               .first_row = first_row.data(),
               .wanted_rows = wanted_rows.data(),
               .groups = {&none, 1}};
  forward(ops, model, views, step);
}

std::vector<TraceRecord> trace_pass(const Model& model, const KvForm& kv, std::span<const PassRows> sequences) {
  TraceOps ops;
  run_pass(ops, model, kv, sequences);
  return ops.records();
}

void count_costs(CallOps& timed, const Model& model, const KvForm& kv) {
  for (size_t i = 0; i < timed.steps().size(); ++i) {
    std::vector<PassRows> rows;
    for (const SequenceRows& each : timed.steps()[i].sequences)
      rows.push_back({.begin = each.begin, .count = each.count, .wanted = each.wanted});
    CallOps counted(nullptr);
    run_pass(counted, model, kv, rows);
    timed.adopt(i, counted);
  }
}

Floor& Floor::operator+=(const Floor& other) {
  seconds += other.seconds;
  memory_seconds += other.memory_seconds;
  compute_seconds += other.compute_seconds;
  bytes += other.bytes;
  flops += other.flops;
  return *this;
}

Floor floor_of(std::span<const TraceRecord> records, const Machine& machine, bool fast) {
  return floor_of(records, ceilings_of(machine, fast));
}

Floor floor_of(std::span<const TraceRecord> records, const Ceilings& ceilings) {
  Floor floor;
  for (const TraceRecord& record : records) {
    double bytes = static_cast<double>(record.cost.weight_bytes + record.cost.kv_bytes);
    double moving = bytes / ceilings.read_bytes;
    double computing = record.cost.flops / ceilings.operations(record);
    (moving >= computing ? floor.memory_seconds : floor.compute_seconds) += std::max(moving, computing);
    floor.seconds += std::max(moving, computing);
    floor.bytes += bytes;
    floor.flops += record.cost.flops;
  }
  return floor;
}

}  // namespace millrace
