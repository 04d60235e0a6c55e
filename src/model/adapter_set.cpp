#include "model/adapter_set.h"

#include <algorithm>
#include <bit>

#include "backend/memory.h"
#include "base/check.h"
#include "base/human.h"
#include "tensor/half.h"

namespace millrace {

// The table of everything that may be changed, empty.
Result<void> AdapterSet::prepare() {
  if (on_backend_ != nullptr) return {};
  std::vector<Matrix> matrices;
  std::unordered_map<std::string, size_t> by_slot;
  for (const PlacedSlot& each : placed_slots(model_.spec(), model_.weights())) {
    if (each.slot.kind != SlotKind::matrix || by_slot.contains(each.slot.name)) continue;
    by_slot.emplace(each.slot.name, matrices.size());
    matrices.push_back({.weight = static_cast<const Weight*>(each.place)});
  }
  const size_t entries = matrices.size() * kMostAdapters;
  TRY(on_backend_, backend_.allocate(Purpose::weights, static_cast<int64_t>(entries * sizeof(Delta))));
  table_.resize(entries);
  matrices_ = std::move(matrices);
  by_slot_ = std::move(by_slot);
  for (size_t i = 0; i < matrices_.size(); ++i) by_place_.emplace(matrices_[i].weight, i);
  return {};
}

// Room that was too small stays the backend's: ranks double, so it is never as much as what is used.
Result<void> AdapterSet::grow_low(int32_t rank) {
  if (rank <= low_rank_ || !backend_.apart()) return {};
  const auto room = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(std::max(rank, 16))));
  const int64_t bytes = int64_t{rows_} * room * static_cast<int64_t>(sizeof(float));
  TRY(std::byte * memory, backend_.allocate(Purpose::workspace, bytes));
  low_ = reinterpret_cast<float*>(memory);
  low_rank_ = room;
  return {};
}

// The smallest free memory that holds it, else new memory at a place that has none.
Result<int> AdapterSet::take_place(int64_t bytes) {
  int best = -1, bare = -1, any = -1;
  for (int i = 0; i < kMostAdapters; ++i) {
    const Place& place = used_[static_cast<size_t>(i)];
    if (place.held) continue;
    any = i;
    if (place.memory == nullptr && bare < 0) bare = i;
    if (place.room >= bytes && (best < 0 || place.room < used_[static_cast<size_t>(best)].room)) best = i;
  }
  if (best >= 0) return best;
  const int chosen = bare >= 0 ? bare : any;
  if (chosen < 0)
    return error(Code::no_memory, "{} adapters are loaded, and there is no place for more; unload one", kMostAdapters);
  auto memory = backend_.allocate(Purpose::weights, bytes);
  if (!memory.ok())
    return within(fmt::format("an adapter of {}", human_bytes(static_cast<uint64_t>(bytes))), memory.error());
  Place& place = used_[static_cast<size_t>(chosen)];
  place.memory = *memory;
  place.room = bytes;
  return chosen;
}

Result<int> AdapterSet::add(const Adapter& adapter) {
  TRY_VOID(prepare());
  for (const AdapterPart& part : adapter.parts) {
    if (!by_slot_.contains(part.slot))
      return error(Code::internal, "the adapter changes {}, which the model has not", part.slot);
  }
  TRY_VOID(grow_low(adapter.rank()));
  const int64_t bytes = adapter.bytes();
  TRY(const int chosen, take_place(bytes));
  Place& place = used_[static_cast<size_t>(chosen)];
  std::byte* at = place.memory;
  std::vector<uint16_t> halves;
  auto bring = [&](const std::vector<float>& numbers, DeltaNumbers lie) {
    const int64_t size = std::ssize(numbers) * bytes_of(lie);
    const void* from = numbers.data();
    if (lie != DeltaNumbers::f32) {
      halves.resize(numbers.size());
      std::ranges::transform(numbers, halves.begin(), lie == DeltaNumbers::bf16 ? f32_to_bf16 : f32_to_f16);
      from = halves.data();
    }
    backend_.copy(at, static_cast<const std::byte*>(from), size);
    return std::exchange(at, at + aligned(size));
  };
  for (size_t matrix = 0; matrix < matrices_.size(); ++matrix)
    table_[matrix * kMostAdapters + static_cast<size_t>(chosen)] = {};
  for (const AdapterPart& part : adapter.parts) {
    const size_t matrix = by_slot_.at(part.slot);
    matrices_[matrix].changed = true;
    const std::byte* down = bring(part.down, part.numbers);
    table_[matrix * kMostAdapters + static_cast<size_t>(chosen)] = {down, bring(part.up, part.numbers), part.rank,
                                                                    part.scale, part.numbers};
  }
  backend_.copy(on_backend_, reinterpret_cast<const std::byte*>(table_.data()),
                static_cast<int64_t>(table_.size() * sizeof(Delta)));
  place.held = true;
  place.bytes = bytes;
  place.rank = adapter.rank();
  rank_ = std::max(rank_, place.rank);
  ++count_;
  ++version_;
  return chosen;
}

void AdapterSet::remove(int place) {
  CHECK(has(place), "no adapter at place {}", place);
  used_[static_cast<size_t>(place)].held = false;
  --count_;
  ++version_;
  rank_ = 0;
  for (const Place& each : used_)
    if (each.held) rank_ = std::max(rank_, each.rank);
}

const Delta* AdapterSet::listed(const Weight& weight) const {
  const auto found = by_place_.find(&weight);
  if (found == by_place_.end() || !matrices_[found->second].changed) return nullptr;
  return table_.data() + found->second * kMostAdapters;
}

RowDeltas AdapterSet::deltas(const Delta* listed) const {
  return {.changes = reinterpret_cast<const Delta*>(on_backend_) + (listed - table_.data()),
          .listed = listed,
          .low = low_,
          .rank = rank_};
}

}  // namespace millrace
