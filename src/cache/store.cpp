#include "cache/store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/human.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

constexpr int64_t kMaxStoreBytes = int64_t{1} << 46;

}  // namespace

Result<CacheSpec> spec_of(const KvShape& shape) {
  CacheSpec spec;
  if (shape.kv_heads == 0) return spec;
  if (shape.kv_heads < 0 || shape.k_dim <= 0 || shape.v_dim < 0 || shape.window < 0 || shape.kept < 0)
    return error(Code::invalid, "a cache of {} heads of {} and {} values with window {} and {} kept makes no sense",
                 shape.kv_heads, shape.k_dim, shape.v_dim, shape.window, shape.kept);
  for (const auto& [type, dim] : {std::pair(shape.form.k, shape.k_dim), std::pair(shape.form.v, shape.v_dim)}) {
    if (!can_keep(type))
      return error(Code::unsupported, "keys and values cannot be kept as {}: choose {}", format(type).name, kKvNames);
    if (dim % format(type).group != 0)
      return error(Code::unsupported, "heads of {} values are no multiple of the {} that {} needs: choose q8 or fp8",
                   dim, format(type).group, shape.form.name());
  }
  if (shape.v_dim == 0 && shape.form.k == DType::q4_0)
    return error(Code::unsupported, "latent keys, which values are part of, cannot be kept as {}: choose q8 or fp8",
                 shape.form.name());
  spec.kind = shape.window > 0 ? CacheKind::windowed : shape.v_dim == 0 ? CacheKind::latent : CacheKind::paged;
  spec.window = shape.window;
  spec.kept = shape.kept;
  spec.bytes = {shape.kv_heads * kv_bytes(shape.form.k, shape.k_dim),
                shape.kv_heads * kv_bytes(shape.form.v, shape.v_dim)};
  return spec;
}

namespace {

Result<CacheSpec> spec_of(const StateShape& state) {
  constexpr int64_t kMostNumbers = int64_t{1} << 36;
  CacheSpec spec;
  if (state.convolution < 0 || state.scan < 0 || state.heads < 1 || state.convolution > kMostNumbers ||
      state.scan > kMostNumbers)
    return error(Code::invalid, "a state of {} and {} numbers in {} heads makes no sense", state.convolution,
                 state.scan, state.heads);
  if (!state.kept()) return spec;
  spec.kind = CacheKind::recurrent;
  spec.bytes = {bytes_of(DType::f32, state.convolution), bytes_of(DType::f32, state.scan)};
  spec.heads = state.heads;
  return spec;
}

// Where the state of a layer lies, by its place among the needs of states.
StateView state_view(const CacheLayout& layout, const StateShape& shape, const LayerPlace& place) {
  StateView view;
  view.page_stride = layout.page_bytes;
  view.offsets = place.offsets;
  view.numbers = {shape.convolution, shape.scan};
  view.group = place.group;
  view.cuts = place.cuts;
  return view;
}

}  // namespace

Result<std::vector<CacheSpec>> specs_of(std::span<const KvShape> shapes) {
  std::vector<CacheSpec> specs;
  const bool states = std::any_of(shapes.begin(), shapes.end(), [](const KvShape& each) { return each.state.kept(); });
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    auto spec = spec_of(shapes[layer]);
    if (!spec) return within(fmt::format("layer {}", layer), std::move(spec).error());
    specs.push_back(*spec);
  }
  for (size_t layer = 0; states && layer < shapes.size(); ++layer) {
    auto spec = spec_of(shapes[layer].state);
    if (!spec) return within(fmt::format("layer {}", layer), std::move(spec).error());
    specs.push_back(*spec);
  }
  return specs;
}

Result<int64_t> Store::bytes_needed(const CacheLayout& layout, int pages) {
  Checked bytes = Checked(layout.page_bytes) * Checked(pages);
  if (pages < 1 || !bytes.within(kMaxStoreBytes))
    return error(Code::invalid, "a cache of {} pages of {} is out of range", pages,
                 brief_bytes(static_cast<uint64_t>(layout.page_bytes)));
  return static_cast<int64_t>(*bytes.get());
}

int Store::pages_within(const CacheLayout& layout, int64_t bytes) {
  int64_t pages = bytes < 0 ? 0 : bytes / layout.page_bytes;
  return static_cast<int>(std::min<int64_t>(pages, INT32_MAX));
}

Result<Store> Store::with_views(const CacheLayout& layout, std::span<const KvShape> shapes, int pages) {
  Store store;
  store.pages_ = pages;
  store.page_bytes_ = layout.page_bytes;
  if (layout.layers.size() != shapes.size() && layout.layers.size() != 2 * shapes.size())
    return error(Code::internal, "{} layers have shapes, {} are laid out", shapes.size(), layout.layers.size());
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const LayerPlace& place = layout.layers[layer];
    TRY(CacheSpec spec, spec_of(shapes[layer]));
    KvView view;
    if (place.group >= 0) {
      const CacheGroup& group = layout.groups[static_cast<size_t>(place.group)];
      // A recurrent layer has no keys and values; its states are addressed through the layout.
      if (!group.recurrent() && group.spec != spec)
        return error(Code::internal, "layer {}: its shape is not what was laid out", layer);
      if (!group.recurrent())
        view = {nullptr,
                layout.page_bytes,
                place.offsets[0],
                place.offsets[1],
                group.page_tokens,
                shapes[layer].kv_heads,
                shapes[layer].k_dim,
                shapes[layer].v_dim,
                shapes[layer].form,
                place.group};
    }
    if (shapes[layer].state.kept()) {
      const size_t own = shapes.size() + layer;
      if (own >= layout.layers.size() || layout.layers[own].group < 0)
        return error(Code::internal, "layer {}: there is no place for its state", layer);
      view.state = state_view(layout, shapes[layer].state, layout.layers[own]);
    }
    store.views_.push_back(view);
  }
  return store;
}

Result<Store> Store::over(const CacheLayout& layout, std::span<const KvShape> shapes, int pages,
                          std::span<std::byte> memory, Copier copier) {
  TRY(int64_t bytes, bytes_needed(layout, pages));
  if (memory.size() < static_cast<size_t>(bytes) || reinterpret_cast<uintptr_t>(memory.data()) % kPageAlignment != 0)
    return error(Code::internal, "{} bytes at {} are no place for {} bytes of cache", memory.size(),
                 static_cast<void*>(memory.data()), bytes);
  TRY(Store store, with_views(layout, shapes, pages));
  store.base_ = memory.data();
  store.copier_ = std::move(copier);
  for (auto& view : store.views_) {
    if (view.kv_heads > 0) view.base = store.base_;
    if (view.state.page_stride > 0) view.state.base = store.base_;
  }
  return store;
}

Result<Store> Store::create(const CacheLayout& layout, std::span<const KvShape> shapes, int pages, int64_t budget) {
  TRY(int64_t bytes, bytes_needed(layout, pages));
  if (bytes > budget)
    return error(Code::no_memory, "{} pages of {} need {}, the budget is {}: take at most {} pages", pages,
                 human_bytes(static_cast<uint64_t>(layout.page_bytes)), human_bytes(static_cast<uint64_t>(bytes)),
                 human_bytes(static_cast<uint64_t>(std::max<int64_t>(budget, 0))), pages_within(layout, budget));
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return error(Code::no_memory, "the system has no {} for the cache: {}", human_bytes(static_cast<uint64_t>(bytes)),
                 std::strerror(errno));
  std::unique_ptr<std::byte, Unmap> own(static_cast<std::byte*>(memory), Unmap(static_cast<size_t>(bytes)));
  TRY(Store store, over(layout, shapes, pages, {own.get(), static_cast<size_t>(bytes)}));
  store.own_ = std::move(own);
  return store;
}

void Store::Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

std::span<std::byte> Store::page(PageId page) const {
  CHECK(page >= 0 && page < pages_, "page {} of {}", page, pages_);
  return {base_ + page * page_bytes_, static_cast<size_t>(page_bytes_)};
}

void Store::copy(std::span<const PageCopy> copies) {
  for (const auto& copy : copies) copy_from(*this, copy.from, copy.to);
}

void Store::copy_from(const Store& other, PageId from, PageId to) {
  CHECK(other.page_bytes_ == page_bytes_, "copying pages of {} bytes to pages of {}", other.page_bytes_, page_bytes_);
  std::span<std::byte> source = other.page(from);
  if (source.data() == page(to).data()) return;
  const Copier& copier = copier_ ? copier_ : other.copier_;
  if (copier) return copier(page(to).data(), source.data(), page_bytes_);
  std::memcpy(page(to).data(), source.data(), source.size());
}

void Store::read(const std::byte* from, std::span<std::byte> to) const {
  if (copier_) return copier_(to.data(), from, static_cast<int64_t>(to.size()));
  std::memcpy(to.data(), from, to.size());
}

void Store::write(std::span<const std::byte> from, std::byte* to) const {
  if (copier_) return copier_(to, from.data(), static_cast<int64_t>(from.size()));
  std::memcpy(to, from.data(), from.size());
}

void carry_out(std::span<const PageMove> moves, Store& store, Store* second, std::vector<uint8_t>& failed) {
  failed.assign(moves.size(), 0);
  for (size_t index = 0; index < moves.size(); ++index) {
    const PageMove& move = moves[index];
    switch (move.kind) {
      case PageMove::Kind::copy:
        store.copy_from(store, move.from, move.to);
        break;
      case PageMove::Kind::out:
        if (second != nullptr) second->copy_from(store, move.from, move.to);
        break;
      case PageMove::Kind::in:
        if (second != nullptr) store.copy_from(*second, move.from, move.to);
        break;
    }
    failed[index] = move.kind != PageMove::Kind::copy && second == nullptr;
  }
}

}  // namespace millrace
