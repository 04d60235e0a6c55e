#include "backend/ranks/staged.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
constexpr int64_t kPieceBytes = int64_t{4} << 20;  // of all ranks together, moved at a time

// A rank's part of rows [first, end), and where its numbers lie in the dense row: as Movement::pack has them.
struct Rectangle {
  std::byte* at;
  int64_t apart;  // bytes from row to row
  int64_t place, place_apart;
  int64_t bytes, rows;
};
template <class F>
void each_rectangle(const Movement& movement, int rank, int64_t first, int64_t end, F&& body) {
  const auto r = static_cast<size_t>(rank);
  int64_t place = 0;
  auto at = [](const Tensor& tensor, int64_t row, int64_t column) {
    return tensor.data + row * tensor.stride + column * kFloat;
  };
  const int64_t row_bytes = movement.columns.empty() ? 0 : movement.bytes(rank, first, first + 1);
  for (const SharedColumns& each : movement.columns) {
    CHECK(each.tensor.rows == movement.row_count(), "{} rows beside {}", each.tensor.rows, movement.row_count());
    const int64_t width = each.tensor.cols / each.parts, bytes = (each.begins[r + 1] - each.begins[r]) * kFloat;
    for (int64_t part = 0; part < each.parts && bytes > 0; ++part, place += bytes)
      body(Rectangle{at(each.tensor, first, part * width + each.begins[r]), each.tensor.stride, place, row_bytes, bytes,
                     end - first});
  }
  const int64_t bytes = movement.rows.cols * kFloat;
  for (int64_t row = first; row < end && !movement.owners.empty();) {
    int64_t next = row;
    while (next < end && movement.owners[static_cast<size_t>(next)] == rank) ++next;
    if (next > row) body(Rectangle{at(movement.rows, row, 0), movement.rows.stride, place, bytes, bytes, next - row});
    place += (next - row) * bytes;
    row = std::max(next, row + 1);
  }
}

int64_t of_all(const Movement& movement, int ranks, int64_t first, int64_t end) {
  int64_t bytes = 0;
  for (int r = 0; r < ranks; ++r) bytes += movement.bytes(r, first, end);
  return bytes;
}

}  // namespace

void StagedMoves::give_rows(Tensor rows, int from) {
  const std::vector<int32_t> owners(static_cast<size_t>(rows.rows), from);
  gather_rows(rows, owners);
}

void StagedMoves::move(const Movement& movement) {
  const auto r = static_cast<size_t>(comm_.rank());
  for (const SharedColumns& each : movement.columns) reach_.settle(each.tensor, each.begins[r + 1] > each.begins[r]);
  if (!movement.owners.empty())
    reach_.settle(movement.rows, std::ranges::find(movement.owners, comm_.rank()) != movement.owners.end());
  const int64_t rows = movement.row_count();
  for (int64_t first = 0; first < rows;) {
    int64_t end = first + 1, bytes = of_all(movement, comm_.ranks(), first, end);
    while (end < rows) {
      const int64_t more = of_all(movement, comm_.ranks(), end, end + 1);
      if (bytes + more > kPieceBytes) break;
      bytes += more, ++end;
    }
    move_piece(movement, first, end);
    first = end;
  }
}

void StagedMoves::move_piece(const Movement& movement, int64_t first, int64_t end) {
  const int ranks = comm_.ranks(), rank = comm_.rank();
  begins_.assign(1, 0);
  for (int r = 0; r < ranks; ++r) begins_.push_back(begins_.back() + movement.bytes(r, first, end) / kFloat);
  const int64_t bytes = begins_.back() * kFloat;
  if (bytes == 0) return;
  if (device_ == nullptr && static_cast<int64_t>(room_.size()) < bytes) room_.resize(static_cast<size_t>(bytes));
  std::byte* const room = device_ != nullptr ? device_->room(bytes) : room_.data();
  auto place_of = [&](int one) { return room + begins_[static_cast<size_t>(one)] * kFloat; };
  each_rectangle(movement, rank, first, end, [&](const Rectangle& part) {
    reach_.copy(place_of(rank) + part.place, part.place_apart, part.at, part.apart, part.bytes, part.rows);
  });
  reach_.wait();
  const SharedColumns dense = {{room, DType::f32, 1, begins_.back(), bytes}, 1, begins_};
  comm_.gather_columns({&dense, 1});
  for (int r = 0; r < ranks; ++r) {
    if (r == rank && ranks > 1) continue;  // of one rank alone, it shows that the way there and back is whole
    each_rectangle(movement, r, first, end, [&](const Rectangle& part) {
      reach_.copy(part.at, part.apart, place_of(r) + part.place, part.place_apart, part.bytes, part.rows);
    });
  }
  reach_.wait();
}

}  // namespace millrace
