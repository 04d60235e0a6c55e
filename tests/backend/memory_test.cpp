// What a backend holds is counted to the byte, whether pieces of it share a region or not.
#include "backend/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace millrace {
namespace {

TEST(BackendMemory, PiecesAreApartZeroedAndCounted) {
  Memory memory;
  struct Piece {
    std::byte* at;
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  int64_t weights = 0;
  // Small ones share regions, large ones have their own; enough of them that several regions are needed.
  for (int64_t bytes : {1, 64, 65, 4096, 1 << 20, 3 << 20, 9 << 20, 7 << 20, 7 << 20, 7 << 20, 7 << 20, 5 << 20, 100}) {
    auto place = memory.take(Purpose::weights, bytes);
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*place) % kAlignment, 0u) << bytes;
    EXPECT_TRUE(std::all_of(*place, *place + bytes, [](std::byte b) { return b == std::byte{0}; })) << bytes;
    std::fill_n(*place, bytes, static_cast<std::byte>(pieces.size() + 1));
    pieces.push_back({*place, bytes});
    weights += bytes;
  }
  EXPECT_EQ(memory.used(Purpose::weights), weights);
  EXPECT_EQ(memory.used(), weights);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto number = static_cast<std::byte>(i + 1);
    EXPECT_TRUE(std::all_of(pieces[i].at, pieces[i].at + pieces[i].bytes, [&](std::byte b) { return b == number; }))
        << "piece " << i << " was written over";
  }
}

TEST(BackendMemory, RefusesWhatIsBeyondTheLimitAndCountsNothingForIt) {
  Memory memory;
  memory.set_limit(1000);
  ASSERT_TRUE(memory.take(Purpose::weights, 900).ok());
  const auto refused = memory.take(Purpose::weights, 101);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::no_memory);
  EXPECT_EQ(memory.used(), 900);
  EXPECT_TRUE(memory.take(Purpose::kv, 100).ok());
  EXPECT_EQ(memory.used(), 1000);
}

}  // namespace
}  // namespace millrace
