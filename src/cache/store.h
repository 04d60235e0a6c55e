// Store: the bytes of pages. One region, planned before it is taken: page p starts at base + p * page_bytes, and inside
// it every layer of the page's group has its part at a fixed offset, keys head after head, then values, each part
// starting at a multiple of 64 bytes (backend/kv_form.h says how a head lies). Which page belongs to whom is the
// KvCache's matter. Engine thread only, except that views may be read by the workers of a step.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "cache/spec.h"
#include "tensor/dtype.h"

namespace millrace {

// The state of one layer, in float32: how many numbers each of its parts has, and between how many heads it may be cut.
struct StateShape {
  int64_t convolution = 0, scan = 0;
  int32_t heads = 1;

  bool kept() const { return convolution > 0 || scan > 0; }
  friend bool operator==(const StateShape&, const StateShape&) = default;
};

// The keys and values of one layer, and its state. kv_heads 0: the layer keeps no keys (it reads another layer's, or
// has a state instead).
struct KvShape {
  int32_t kv_heads = 0;
  int32_t k_dim = 0, v_dim = 0;  // v_dim 0: one latent vector
  KvForm form;
  int32_t window = 0;  // 0: sees everything
  int32_t kept = 0;    // with a window: first positions that stay
  StateShape state;

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// What such a layer needs of the cache, in the forms of backend/kv_form.h.
Result<CacheSpec> spec_of(const KvShape& shape);
// Of all layers; if any has a state, as many follow as there are layers: what their states need.
Result<std::vector<CacheSpec>> specs_of(std::span<const KvShape> shapes);

class Store {
 public:
  // What a store of so many pages takes, to the byte; bad if out of range.
  static Result<int64_t> bytes_needed(const CacheLayout& layout, int pages);
  // Pages that fit into so many bytes.
  static int pages_within(const CacheLayout& layout, int64_t bytes);

  // A store in host memory of its own, refused with the numbers if it needs more than `budget` bytes.
  static Result<Store> create(const CacheLayout& layout, std::span<const KvShape> shapes, int pages, int64_t budget);
  // A store over memory somebody else keeps (a backend's), zeroed, at least bytes_needed() long, 64-byte aligned.
  // `copier` moves bytes to and from it where the host cannot; none: as host memory.
  using Copier = std::function<void(std::byte* to, const std::byte* from, int64_t bytes)>;
  static Result<Store> over(const CacheLayout& layout, std::span<const KvShape> shapes, int pages,
                            std::span<std::byte> memory, Copier copier = {});

  int pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  int64_t bytes() const { return page_bytes_ * pages_; }
  std::byte* base() const { return base_; }
  std::span<std::byte> page(PageId page) const;  // not to be touched if the store is apart()
  bool apart() const { return copier_ != nullptr; }
  // Part of this store to host memory, and back.
  void read(const std::byte* from, std::span<std::byte> to) const;
  void write(std::span<const std::byte> from, std::byte* to) const;

  const KvView& view(int layer) const {
    return views_[static_cast<size_t>(layer)];
  }  // base is null if the layer keeps none, and so is that of its state

  void copy(std::span<const PageCopy> copies);                 // within this store, in order
  void copy_from(const Store& other, PageId from, PageId to);  // between stores of the same layout

 private:
  struct Unmap {
    Unmap() : bytes(0) {}
    explicit Unmap(size_t size) : bytes(size) {}
    void operator()(std::byte* memory) const;
    size_t bytes;
  };
  Store() = default;
  static Result<Store> with_views(const CacheLayout& layout, std::span<const KvShape> shapes, int pages);

  std::unique_ptr<std::byte, Unmap> own_;
  std::byte* base_ = nullptr;
  Copier copier_;
  int pages_ = 0;
  int64_t page_bytes_ = 0;
  std::vector<KvView> views_;
};

// Carries out the moves of a step in order; `second` may be null if none goes there. failed[i] is set where one could
// not be done; in host memory none fails.
void carry_out(std::span<const PageMove> moves, Store& store, Store* second, std::vector<uint8_t>& failed);

}  // namespace millrace
