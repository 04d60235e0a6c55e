#include "cache/cache_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "base/file.h"

namespace millrace {
namespace {

struct Home {
  explicit Home(int pages, int second_pages = 4,
                std::vector<KvShape> layers = {{1, 8, 8, DType::f32, 0}, {1, 8, 8, DType::f32, 6}})
      : shapes(std::move(layers)),
        layout(plan_layout(specs_of(shapes).value(), {.page_tokens = 4}).value()),
        cache(layout, pages, second_pages),
        store(Store::create(layout, shapes, pages, 1 << 20).value()),
        second(Store::create(layout, shapes, second_pages, 1 << 20).value()) {}

  // Computes the tokens: every byte of a page's token is that token and its layer.
  void tell(const std::vector<Token>& tokens, uint8_t tenant) {
    SequencePages sequence = cache.open(0, root(tenant));
    int begin = cache.reuse_prefix(sequence, tokens), end = static_cast<int>(tokens.size());
    ASSERT_TRUE(cache.reserve(sequence, begin, end));
    carry();
    for (int layer = 0; layer < 2; ++layer)
      for (int position = begin; position < end; ++position) {
        const KvView& view = store.view(layer);
        PageSlot slot = sequence.tables[static_cast<size_t>(view.group)].at(position);
        for (int64_t offset : {view.k_offset, view.v_offset})
          std::memset(view.base + slot.page * view.page_stride + offset + slot.offset * 8 * 4,
                      tokens[static_cast<size_t>(position)] + layer, 8 * 4);
      }
    cache.retire(sequence, tokens, end);
  }
  // Takes over what is cached and compares its bytes; returns how many tokens that is.
  int read(const std::vector<Token>& tokens, uint8_t tenant) {
    SequencePages sequence = cache.open(0, root(tenant));
    int found = cache.reuse_prefix(sequence, tokens);
    carry();
    for (int layer = 0; layer < 2; ++layer) {
      const KvView& view = store.view(layer);
      const PageTable& table = sequence.tables[static_cast<size_t>(view.group)];
      for (int position = table.first() * 4; position < found; ++position) {
        PageSlot slot = table.at(position);
        std::byte* k = view.base + slot.page * view.page_stride + view.k_offset + slot.offset * 8 * 4;
        for (int byte = 0; byte < 32; ++byte)
          EXPECT_EQ(std::to_integer<int>(k[byte]), tokens[static_cast<size_t>(position)] + layer) << position;
      }
    }
    cache.release(sequence);
    return found;
  }
  void carry() {
    auto moves = cache.take_moves();
    std::vector<uint8_t> failed;
    carry_out(moves, store, &second, failed);
    cache.settle(moves, failed);
  }
  static Identity root(uint8_t number) {
    Identity key;
    key.bytes[5] = number;
    return key;
  }

  std::vector<KvShape> shapes;
  CacheLayout layout;
  KvCache cache;
  Store store, second;
};

std::vector<Token> tokens(int count, int first) {
  std::vector<Token> made(static_cast<size_t>(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}

class CacheFile : public testing::Test {
 protected:
  std::filesystem::path path = std::filesystem::path(testing::TempDir()) / fmt::format("cache-{}.bin", ::getpid());
  Identity model = Home::root(77);
  void TearDown() override { std::filesystem::remove(path); }

  std::vector<char> contents() {
    std::string text = read_file(path).value();
    return {text.begin(), text.end()};
  }
  void write(const std::vector<char>& bytes) {
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
};

TEST_F(CacheFile, BringsBackEveryByte) {
  Home before(40);
  before.tell(tokens(11, 1), 1);
  before.tell(tokens(9, 100), 1);
  before.tell(tokens(11, 1), 2);
  std::vector<Token> branch = tokens(8, 1);
  branch.resize(14, 200);
  before.tell(branch, 1);
  auto saved = save_cache(before.cache, model, before.store, &before.second, path);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(saved->bytes, info.st_size);

  Home after(40);
  auto restored = restore_cache(after.cache, model, after.store, path);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(restored->nodes, saved->nodes);
  EXPECT_EQ(restored->pages, saved->pages);
  EXPECT_EQ(after.read(tokens(12, 1), 1), 11);
  EXPECT_EQ(after.read(tokens(10, 100), 1), 9);
  EXPECT_EQ(after.read(tokens(12, 1), 2), 11);
  EXPECT_EQ(after.read(tokens(10, 100), 2), 0);
  branch.push_back(3);
  EXPECT_EQ(after.read(branch, 1), 14);
  EXPECT_TRUE(after.cache.check({}).ok()) << after.cache.check({}).error().message;
  // Twice is as good as once.
  EXPECT_EQ(restore_cache(after.cache, model, after.store, path)->pages, 0);
  EXPECT_TRUE(after.cache.check({}).ok());
}

TEST_F(CacheFile, SavesWhatIsAwayAndRestoresWhatFits) {
  Home before(8, 8);
  before.cache.set_costs({1, 0, 0});
  before.tell(tokens(14, 1), 1);
  before.tell(tokens(14, 100), 1);
  ASSERT_GT(before.cache.second().used(), 0);
  auto saved = save_cache(before.cache, model, before.store, &before.second, path);
  ASSERT_TRUE(saved.ok());
  Home large(40), small(3);
  EXPECT_EQ(restore_cache(large.cache, model, large.store, path)->pages, saved->pages);
  EXPECT_EQ(large.read(tokens(15, 1), 1), 14);
  EXPECT_EQ(large.read(tokens(15, 100), 1), 14);
  auto part = restore_cache(small.cache, model, small.store, path);
  ASSERT_TRUE(part.ok());
  EXPECT_LE(part->pages, 3);
  EXPECT_GT(part->pages, 0);
  EXPECT_TRUE(small.cache.check({}).ok());
}

TEST_F(CacheFile, IsRefusedIfItIsOfSomethingElse) {
  Home before(40);
  before.tell(tokens(11, 1), 1);
  ASSERT_TRUE(save_cache(before.cache, model, before.store, nullptr, path).ok());
  Home after(40), other(40, 4, {{1, 8, 8, DType::f32, 0}, {1, 8, 8, DType::f32, 7}});
  EXPECT_EQ(restore_cache(after.cache, Home::root(78), after.store, path).error().code, Code::invalid);
  EXPECT_EQ(restore_cache(other.cache, model, other.store, path).error().code, Code::invalid);
  EXPECT_EQ(restore_cache(after.cache, model, after.store, path.string() + "x").error().code, Code::not_found);
  EXPECT_EQ(after.cache.pool().used(), 0);
}

TEST_F(CacheFile, EveryCutAndEveryFlippedBitIsNoticed) {
  Home before(40);
  before.tell(tokens(5, 1), 1);
  ASSERT_TRUE(save_cache(before.cache, model, before.store, nullptr, path).ok());
  std::vector<char> good = contents();
  Home after(40);
  for (size_t size = 0; size < good.size(); size += size < 200 ? 1 : 61) {
    write({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
    auto restored = restore_cache(after.cache, model, after.store, path);
    ASSERT_FALSE(restored.ok()) << size;
  }
  for (size_t byte = 0; byte < good.size(); byte += byte < 200 ? 1 : 61) {
    std::vector<char> bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    write(bad);
    ASSERT_FALSE(restore_cache(after.cache, model, after.store, path).ok()) << byte;
  }
  EXPECT_EQ(after.cache.pool().used(), 0);
  write(good);
  EXPECT_TRUE(restore_cache(after.cache, model, after.store, path).ok());
}

TEST_F(CacheFile, HeadersThatPromiseTooMuchAreRefusedBeforeAnythingIsAllocated) {
  Home before(40);
  before.tell(tokens(5, 1), 1);
  ASSERT_TRUE(save_cache(before.cache, model, before.store, nullptr, path).ok());
  std::vector<char> good = contents();
  for (size_t field : {40u, 48u, 52u, 57u, 57u + 36u}) {  // page bytes, tokens a node, slots; parent, tokens
    std::vector<char> bad = good;
    for (size_t byte = 0; byte < 4; ++byte) bad[field + byte] = static_cast<char>(byte == 3 ? 0x7F : 0xFF);
    EXPECT_FALSE(parse_cache_file(std::as_bytes(std::span(bad))).ok()) << field;
  }
}

// Saved a node at a time while others come and go: what is gone when its turn comes is left out with what continues it.
TEST_F(CacheFile, MayChangeWhileItIsSaved) {
  for (int turns : {1, 2, 3, 5, 8}) {
    Home before(16);
    before.tell(tokens(11, 1), 1);
    before.tell(tokens(9, 100), 1);
    CacheSaver saver(before.cache, model);
    std::vector<std::byte> bytes;
    bool more = true;
    for (int turn = 0; more; ++turn) {
      more = saver.next(before.store, &before.second, 1, bytes);
      if (turn == turns) before.tell(tokens(30, 200), 1);  // pushes others out
    }
    Digest digest;
    digest.add(bytes);
    const Identity end = digest.finish();
    std::vector<char> file(reinterpret_cast<const char*>(bytes.data()),
                           reinterpret_cast<const char*>(bytes.data()) + bytes.size());
    file.insert(file.end(), end.bytes.begin(), end.bytes.end());
    write(file);
    Home after(40);
    auto restored = restore_cache(after.cache, model, after.store, path);
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    EXPECT_EQ(restored->nodes, saver.summary().nodes);
    // read() compares every byte of what is found.
    after.read(tokens(12, 1), 1);
    after.read(tokens(10, 100), 1);
    after.read(tokens(31, 200), 1);
    EXPECT_TRUE(after.cache.check({}).ok()) << after.cache.check({}).error().message;
  }
}

TEST_F(CacheFile, MayBeEmpty) {
  Home before(4), after(4);
  ASSERT_TRUE(save_cache(before.cache, model, before.store, nullptr, path).ok());
  auto restored = restore_cache(after.cache, model, after.store, path);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(restored->nodes, 0);
}

TEST_F(CacheFile, WhatNobodyUsesIsForgotten) {
  Home home(40);
  home.tell(tokens(11, 1), 1);
  home.tell(tokens(9, 100), 2);
  SequencePages user = home.cache.open(3, Home::root(1));
  EXPECT_EQ(home.cache.reuse_prefix(user, tokens(9, 1)), 8);
  home.carry();
  EXPECT_GT(forget_unused(home.cache), 0);
  EXPECT_EQ(home.read(tokens(10, 100), 2), 0);
  EXPECT_EQ(home.cache.tree().nodes(), 3);  // the root and two nodes in use
  home.cache.release(user);
  EXPECT_EQ(forget_unused(home.cache), 2);
  EXPECT_EQ(home.cache.pool().used(), 0);
  EXPECT_TRUE(home.cache.check({}).ok()) << home.cache.check({}).error().message;
}

}  // namespace
}  // namespace millrace
