// Who has what of a model, and how it is moved: every output and head is somebody's, and after a gathering everybody
// has everything, whatever the size.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "backend/comm.h"
#include "backend/ranks/share.h"

namespace millrace {
namespace {

TEST(Shares, EveryOutputIsOneRanks) {
  for (const int ranks : {2, 3, 4, 7, 64}) {
    for (int64_t rows = 1; rows < 2500; rows += rows < 200 ? 1 : 37) {
      if (!is_cut(rows, ranks)) continue;
      EXPECT_EQ(first_row(rows, ranks, 0), 0);
      EXPECT_EQ(first_row(rows, ranks, ranks), rows);
      for (int r = 0; r < ranks; ++r)
        ASSERT_GE(first_row(rows, ranks, r + 1) - first_row(rows, ranks, r), kLeastRows) << rows << " on " << ranks;
    }
  }
}

TEST(Shares, EveryHeadIsAttendedOnceByARankThatKeepsItsKeys) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 16}) {
    for (const int32_t kv_heads : {1, 2, 3, 4, 5, 8, 12}) {
      for (const int32_t group : {1, 2, 3, 8}) {
        const int32_t heads = kv_heads * group;
        int32_t next = 0;
        for (int r = 0; r < ranks; ++r) {
          const HeadShare share = head_share(heads, kv_heads, ranks, r);
          EXPECT_EQ(share.first, next);
          next += share.count;
          EXPECT_GE(share.kv_count, 1);
          EXPECT_LE(share.kv_count, kept_kv_heads(kv_heads, ranks));
          // A rank's view of its heads: as many for each key/value head.
          if (share.count > 0) {
            EXPECT_EQ(share.count % share.kv_count, 0);
            for (int32_t h = 0; h < share.count; ++h)
              EXPECT_EQ((share.first + h) / group, share.kv_first + h / (share.count / share.kv_count));
          }
        }
        EXPECT_EQ(next, heads) << heads << " heads, " << kv_heads << " kv heads, " << ranks << " ranks";
      }
    }
  }
}

// Fills what a rank has, gathers, and looks whether all is there.
void gather_and_check(Comm& comm, int64_t rows, int64_t cols, int64_t parts) {
  const int ranks = comm.ranks();
  const int64_t stride = cols + 5, each = cols / parts;
  std::vector<float> numbers(static_cast<size_t>(rows * stride), -1.0f);
  std::vector<int64_t> begins;
  for (int r = 0; r <= ranks; ++r) begins.push_back(each * r / ranks);
  const Tensor tensor = {reinterpret_cast<std::byte*>(numbers.data()), DType::f32, rows, cols, stride * 4};
  auto value = [&](int64_t row, int64_t col) { return static_cast<float>((row * 31 + col) % 4093); };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t c = begins[static_cast<size_t>(comm.rank())]; c < begins[static_cast<size_t>(comm.rank()) + 1]; ++c)
        tensor.row(row)[part * each + c] = value(row, part * each + c);
    }
  }
  const SharedColumns shared = {tensor, parts, begins};
  comm.gather_columns({&shared, 1});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(tensor.row(row)[c], value(row, c)) << row << " " << c;
    for (int64_t c = cols; c < stride && row + 1 < rows; ++c) ASSERT_EQ(tensor.row(row)[c], -1.0f);
  }
}

void be_a_rank(Comm& comm) {
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<std::byte> message(comm.rank() == 0 ? static_cast<size_t>(turn) + 1 : 0, std::byte(turn));
    comm.broadcast(message);
    ASSERT_EQ(message.size(), static_cast<size_t>(turn) + 1);
    ASSERT_EQ(message.back(), std::byte(turn));
    if (turn % 3 == 0) continue;  // several messages with nothing between
    gather_and_check(comm, 1 + turn % 5, 64, turn % 2 == 0 ? 1 : 4);
    if (turn % 20 == 1) gather_and_check(comm, 300, 700, 1);  // not by letter
    std::vector<float> rows(24, -1.0f);
    std::vector<int32_t> owners(6);
    const Tensor tensor = {reinterpret_cast<std::byte*>(rows.data()), DType::f32, 6, 4, 16};
    for (int32_t row = 0; row < 6; ++row) {
      owners[static_cast<size_t>(row)] = (row + turn) % comm.ranks();
      if (owners[static_cast<size_t>(row)] == comm.rank()) std::fill_n(tensor.row(row), 4, static_cast<float>(row));
    }
    comm.gather_rows(tensor, owners);
    for (int64_t row = 0; row < 6; ++row) ASSERT_EQ(tensor.row(row)[3], static_cast<float>(row));
    ASSERT_TRUE(comm.agree(true));
    ASSERT_FALSE(comm.agree(comm.rank() != turn % comm.ranks()));
  }
}

TEST(ThreadComm, EverybodyGetsEverything) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(ranks);
    std::vector<std::thread> others;
    for (int r = 1; r < ranks; ++r) others.emplace_back([&, r] { be_a_rank(*comms[static_cast<size_t>(r)]); });
    be_a_rank(*comms[0]);
    for (std::thread& other : others) other.join();
  }
}

}  // namespace
}  // namespace millrace
