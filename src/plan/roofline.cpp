#include "plan/roofline.h"

#include <algorithm>

#include "model/forward.h"

namespace millrace {
namespace {

// Operations a second the machine has for a product with such weights.
double arithmetic(const TraceRecord& record, const Machine& machine, bool fast) {
  if (fast && record.op == "linear") {
    if (format(record.type).group > 1 && machine.int8_operations > 0) return machine.int8_operations;
    if (record.type == DType::bf16 && machine.bf16_operations > 0) return machine.bf16_operations;
  }
  return machine.f32_operations;
}

}  // namespace

std::vector<TraceRecord> trace_pass(const Model& model, DType kv, std::span<const PassRows> sequences) {
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
  std::vector<KvView> views;
  for (const KvShape& shape : kv_shapes(model.spec(), kv)) {
    views.push_back(
        {.page_tokens = 16, .kv_heads = shape.kv_heads, .k_dim = shape.k_dim, .v_dim = shape.v_dim, .type = kv});
  }
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
  TraceOps ops;
  forward(ops, model, views, step);
  return ops.records();
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
  Floor floor;
  for (const TraceRecord& record : records) {
    double bytes = static_cast<double>(record.cost.weight_bytes + record.cost.kv_bytes);
    double moving = bytes / machine.read_bytes;
    double computing = record.cost.flops / arithmetic(record, machine, fast);
    (moving >= computing ? floor.memory_seconds : floor.compute_seconds) += std::max(moving, computing);
    floor.seconds += std::max(moving, computing);
    floor.bytes += bytes;
    floor.flops += record.cost.flops;
  }
  return floor;
}

}  // namespace millrace
