#include "cache/store.h"

#include <gtest/gtest.h>

#include <cstring>

namespace millrace {
namespace {

struct Fixture {
  std::vector<KvShape> shapes;
  CacheLayout layout;
};

Fixture make(std::vector<KvShape> shapes, int page_tokens) {
  auto specs = specs_of(shapes);
  EXPECT_TRUE(specs.ok()) << specs.error().message;
  auto layout = plan_layout(*specs, {.page_tokens = page_tokens});
  EXPECT_TRUE(layout.ok()) << layout.error().message;
  return {std::move(shapes), *layout};
}

TEST(Store, EveryValueHasAPlaceOfItsOwn) {
  // Two full layers, a windowed one with other heads, and one that keeps nothing.
  Fixture fixture = make({{2, 8, 8, DType::f32, 0}, {}, {2, 8, 8, DType::f32, 0}, {1, 16, 4, DType::f16, 12}}, 4);
  auto store = Store::create(fixture.layout, fixture.shapes, 6, 1 << 20);
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ(store->view(1).base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(store->base()) % 64, 0u);
  for (std::byte value : std::span(store->base(), static_cast<size_t>(store->bytes()))) ASSERT_EQ(value, std::byte{0});

  // Mark each value's bytes through the view as kernels address them; none may be marked twice.
  for (int layer : {0, 2, 3}) {
    const KvView& view = store->view(layer);
    int64_t size = format(view.form.k).group_bytes;
    for (PageId page = 0; page < 6; ++page) {
      // A page belongs to one group at a time.
      if (page % static_cast<int>(fixture.layout.groups.size()) != view.group) continue;
      for (auto [offset, dim] : {std::pair{view.k_offset, view.k_dim}, std::pair{view.v_offset, view.v_dim}})
        for (int64_t row = 0; row < int64_t{view.kv_heads} * view.page_tokens; ++row)
          for (int64_t byte = 0; byte < dim * size; ++byte) {
            std::byte* place = view.base + page * view.page_stride + offset + row * dim * size + byte;
            ASSERT_LT(place, store->base() + store->bytes());
            ASSERT_EQ(*place, std::byte{0});
            *place = std::byte{1};
          }
    }
  }
}

TEST(Store, CopiesPagesInOrder) {
  Fixture fixture = make({{1, 4, 4, DType::bf16, 0}}, 4);
  auto store = Store::create(fixture.layout, fixture.shapes, 4, 1 << 20);
  auto second = Store::create(fixture.layout, fixture.shapes, 2, 1 << 20);
  ASSERT_TRUE(store.ok() && second.ok());
  for (int page = 0; page < 4; ++page) std::memset(store->page(page).data(), page + 1, store->page(page).size());
  store->copy(std::vector<PageCopy>{{0, 1}, {1, 2}, {3, 3}});
  for (int page : {0, 1, 2}) EXPECT_EQ(store->page(page)[5], std::byte{1}) << page;
  EXPECT_EQ(store->page(3)[5], std::byte{4});
  second->copy_from(*store, 3, 1);
  EXPECT_EQ(std::memcmp(second->page(1).data(), store->page(3).data(), store->page(3).size()), 0);
  EXPECT_EQ(second->page(0)[0], std::byte{0});
}

TEST(Store, IsRefusedWithTheNumbers) {
  Fixture fixture = make({{2, 8, 8, DType::f32, 0}}, 16);
  EXPECT_EQ(fixture.layout.page_bytes, 2 * 2 * 8 * 4 * 16);
  auto store = Store::create(fixture.layout, fixture.shapes, 10, 10 * fixture.layout.page_bytes - 1);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Code::no_memory);
  EXPECT_NE(store.error().message.find("at most 9 pages"), std::string::npos) << store.error().message;
  EXPECT_TRUE(Store::create(fixture.layout, fixture.shapes, 10, 10 * fixture.layout.page_bytes).ok());
  EXPECT_FALSE(Store::create(fixture.layout, fixture.shapes, 0, 1 << 20).ok());
}

TEST(Store, LivesOverMemoryOfABackend) {
  Fixture fixture = make({{2, 8, 8, DType::f16, 0}}, 16);
  alignas(64) static std::byte memory[4 * 1024];
  ASSERT_EQ(Store::pages_within(fixture.layout, sizeof memory), 4);
  auto store = Store::over(fixture.layout, fixture.shapes, 4, memory);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->view(0).base, memory);
  EXPECT_FALSE(Store::over(fixture.layout, fixture.shapes, 5, memory).ok());
  EXPECT_FALSE(Store::over(fixture.layout, fixture.shapes, 3, std::span(memory).subspan(8)).ok());
}

TEST(Store, KnowsWhichFormatsACacheMayHave) {
  EXPECT_EQ(spec_of({2, 64, 64, DType::i8, 0})->bytes[0], 2 * (64 + 4));
  EXPECT_EQ(spec_of({2, 64, 64, DType::f8_e4m3, 0})->bytes[1], 2 * (64 + 4));
  EXPECT_EQ(spec_of({2, 64, 64, DType::q4_0, 0})->bytes[0], 2 * 2 * 18);
  EXPECT_TRUE(spec_of({2, 40, 40, DType::i8, 0}).ok());
  EXPECT_FALSE(spec_of({2, 40, 40, DType::q4_0, 0}).ok());  // no multiple of 32
  const CacheSpec apart = *spec_of({2, 64, 64, KvForm(DType::q4_0, DType::f16, true), 0});
  EXPECT_EQ(apart.bytes[0], 2 * 2 * 18);
  EXPECT_EQ(apart.bytes[1], 2 * 64 * 2);
  EXPECT_TRUE(spec_of({1, 576, 0, DType::i8, 0}).ok());
  EXPECT_FALSE(spec_of({1, 576, 0, DType::q4_0, 0}).ok());  // values are part of keys, which would be turned
  EXPECT_FALSE(spec_of({2, 64, 64, DType::q8_0, 0}).ok());
  EXPECT_FALSE(spec_of({2, 64, 64, DType::q4_k, 0}).ok());
  EXPECT_FALSE(spec_of({-2, 64, 64, DType::f16, 0}).ok());
  EXPECT_EQ(spec_of({1, 576, 0, DType::bf16, 0})->kind, CacheKind::latent);
  EXPECT_EQ(spec_of({1, 64, 64, DType::bf16, 9})->kind, CacheKind::windowed);
  EXPECT_EQ(spec_of({})->bytes[0], 0);
}

}  // namespace
}  // namespace millrace
