#include "backend/comm.h"

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Calls body(numbers of the row, count) for each run of numbers that a rank has in rows [first, end).
template <class F>
void each_run(const Movement& movement, int rank, int64_t first, int64_t end, F&& body) {
  const auto r = static_cast<size_t>(rank);
  for (int64_t row = first; row < end; ++row) {
    for (size_t i = 0; i < movement.columns.size(); ++i) {
      const SharedColumns& each = movement.columns[i];
      if (row >= each.tensor.rows) continue;
      const int64_t apart = each.tensor.cols / each.parts, count = each.begins[r + 1] - each.begins[r];
      for (int64_t part = 0; part < each.parts && count > 0; ++part) body(i, row, part * apart + each.begins[r], count);
    }
    if (!movement.owners.empty() && movement.owners[static_cast<size_t>(row)] == rank)
      body(movement.columns.size(), row, 0, movement.rows.cols);
  }
}

const Tensor& tensor_of(const Movement& movement, size_t index) {
  return index < movement.columns.size() ? movement.columns[index].tensor : movement.rows;
}

}  // namespace

int64_t Movement::row_count() const {
  int64_t count = static_cast<int64_t>(owners.size());
  for (const SharedColumns& each : columns) count = std::max(count, each.tensor.rows);
  return count;
}

int64_t Movement::bytes(int rank, int64_t first, int64_t end) const {
  const auto r = static_cast<size_t>(rank);
  int64_t numbers = 0;
  for (const SharedColumns& each : columns)
    numbers += std::max<int64_t>(0, std::min(end, each.tensor.rows) - first) * each.parts *
               (each.begins[r + 1] - each.begins[r]);
  for (int64_t row = first; row < end && !owners.empty(); ++row)
    numbers += owners[static_cast<size_t>(row)] == rank ? rows.cols : 0;
  return numbers * kFloat;
}

void Movement::pack(int rank, int64_t first, int64_t end, std::byte* to) const {
  each_run(*this, rank, first, end, [&](size_t index, int64_t row, int64_t column, int64_t count) {
    std::memcpy(to, tensor_of(*this, index).row(row) + column, static_cast<size_t>(count * kFloat));
    to += count * kFloat;
  });
}

void Movement::unpack(int rank, int64_t first, int64_t end, const std::byte* from) const {
  each_run(*this, rank, first, end, [&](size_t index, int64_t row, int64_t column, int64_t count) {
    std::memcpy(tensor_of(*this, index).row(row) + column, from, static_cast<size_t>(count * kFloat));
    from += count * kFloat;
  });
}

void Movement::pull(int rank, const Movement& from) const {
  each_run(*this, rank, 0, row_count(), [&](size_t index, int64_t row, int64_t column, int64_t count) {
    std::memcpy(tensor_of(*this, index).row(row) + column, tensor_of(from, index).row(row) + column,
                static_cast<size_t>(count * kFloat));
  });
}

void Comm::count_and_move(const Movement& movement) {
  sent_ += movement.bytes(rank(), 0, movement.row_count());
  move(movement);
}

void Comm::give_rows(Tensor rows, int from) {
  owners_.assign(static_cast<size_t>(rows.rows), from);
  gather_rows(rows, owners_);
}

bool Comm::agree(bool yes) {
  std::vector<float> said(static_cast<size_t>(ranks()), 0.0f);
  std::vector<int64_t> begins;
  for (int r = 0; r <= ranks(); ++r) begins.push_back(r);
  said[static_cast<size_t>(rank())] = yes ? 1.0f : 0.0f;
  const SharedColumns all = {
      {reinterpret_cast<std::byte*>(said.data()), DType::f32, 1, ranks(), ranks() * kFloat}, 1, begins};
  move({{&all, 1}, {}, {}});
  return std::all_of(said.begin(), said.end(), [](float one) { return one == 1.0f; });
}

}  // namespace millrace
