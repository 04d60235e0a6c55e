// Who has what of a model, and how it is moved: every output and head is somebody's, and after a gathering everybody
// has everything, whatever the size.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "backend/comm.h"
#include "backend/ranks/ranks.h"
#include "backend/ranks/share.h"
#include "backend/ranks/staged.h"
#include "backend/rig.h"

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

// A machine apart of which the host can read everything after all: rows reach it by copies only.
class CopyingReach final : public Reach {
 public:
  void settle(Tensor, bool written) override { settled += written; }
  void copy(std::byte* to, int64_t to_apart, const std::byte* from, int64_t from_apart, int64_t bytes,
            int64_t rows) override {
    for (int64_t row = 0; row < rows; ++row)
      waiting.push_back({to + row * to_apart, from + row * from_apart, static_cast<size_t>(bytes)});
  }
  void wait() override {  // whatever was asked for is not done before
    for (const Copy& one : waiting) std::memcpy(one.to, one.from, one.bytes);
    waiting.clear();
  }
  void all_outputs(const std::byte*, int64_t) override {}
  void begin_part(Tensor, int32_t) override {}
  void end_part() override {}

  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  std::vector<Copy> waiting;
  int settled = 0;
};

float number_of(int64_t tensor, int64_t row, int64_t col) { return static_cast<float>(tensor * 7 + row * 31 + col); }

// Three tensors in one go, one of them in parts; then rows by who has them; then all rows of one.
void move_staged(Comm& comm, int64_t rows) {
  CopyingReach reach;
  StagedMoves moves(reach, comm);
  const int64_t cols = 96, stride = 104;
  const auto ranks = static_cast<int64_t>(comm.ranks());
  std::array<std::vector<float>, 3> numbers;
  std::array<std::vector<int64_t>, 3> begins;
  std::vector<SharedColumns> shared;
  for (size_t t = 0; t < numbers.size(); ++t) {
    const int64_t parts = t == 1 ? 4 : 1, each = cols / parts;
    numbers[t].assign(static_cast<size_t>(rows * stride), -1.0f);
    for (int64_t r = 0; r <= ranks; ++r) begins[t].push_back(t == 2 && r > 0 && r < ranks ? 5 : each * r / ranks);
    const Tensor tensor = {reinterpret_cast<std::byte*>(numbers[t].data()), DType::f32, rows, cols, stride * 4};
    const auto mine = static_cast<size_t>(comm.rank());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t part = 0; part < parts; ++part)
        for (int64_t c = begins[t][mine]; c < begins[t][mine + 1]; ++c)
          tensor.row(row)[part * each + c] = number_of(static_cast<int64_t>(t), row, part * each + c);
    shared.push_back({tensor, parts, begins[t]});
  }
  const int64_t before = comm.sent();
  moves.gather_columns(shared);
  EXPECT_EQ(comm.sent() - before, (Movement{shared, {}, {}}.bytes(comm.rank(), 0, rows)));
  EXPECT_GT(reach.settled, 0);
  for (size_t t = 0; t < numbers.size(); ++t)
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < cols; ++c)
        ASSERT_EQ(shared[t].tensor.row(row)[c], number_of(static_cast<int64_t>(t), row, c)) << t << " " << row;
      for (int64_t c = cols; c < stride; ++c) ASSERT_EQ(shared[t].tensor.row(row)[c], -1.0f);
    }
  const Tensor tensor = shared[0].tensor;
  std::vector<int32_t> owners;
  for (int64_t row = 0; row < rows; ++row) {
    owners.push_back(static_cast<int32_t>(row / 3 % ranks));
    std::fill_n(tensor.row(row), cols, owners.back() == comm.rank() ? static_cast<float>(row) : -2.0f);
  }
  moves.gather_rows(tensor, owners);
  for (int64_t row = 0; row < rows; ++row) ASSERT_EQ(tensor.row(row)[cols - 1], static_cast<float>(row));
  const int last = comm.ranks() - 1;
  for (int64_t row = 0; row < rows; ++row)
    std::fill_n(tensor.row(row), cols, comm.rank() == last ? static_cast<float>(row + 9) : -2.0f);
  moves.give_rows(tensor, last);
  for (int64_t row = 0; row < rows; ++row) ASSERT_EQ(tensor.row(row)[0], static_cast<float>(row + 9));
}

TEST(StagedMoves, EverybodyGetsEverything) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(ranks);
    auto be = [&](int rank) {
      for (const int64_t rows : {1, 2, 7, 40}) move_staged(*comms[static_cast<size_t>(rank)], rows);
      move_staged(*comms[static_cast<size_t>(rank)], 5000);  // in several pieces
    };
    std::vector<std::thread> others;
    for (int r = 1; r < ranks; ++r) others.emplace_back(be, r);
    be(0);
    for (std::thread& other : others) other.join();
  }
}

// Heads with biases, which are no experts': whole on every rank, whether heads or their outputs are parted.
TEST(RankOps, HeadsWithBiasesGiveTheBitsOfOneRank) {
  constexpr int64_t kHeads = 4, kOutputs = 96, kInputs = 64, kRows = 7;
  testing::Random random(11);
  const std::vector<std::byte> bytes = testing::random_matrix(DType::q8_0, kHeads * kOutputs, kInputs, random);
  const std::vector<float> bias = random.normals(kHeads * kOutputs);
  testing::Rows in(kRows, kHeads * kInputs, random);
  const auto each = static_cast<size_t>(bytes_of(DType::q8_0, kOutputs * kInputs));
  auto multiply = [&](testing::Machine machine) {
    const HostExperts experts = {.experts = kHeads,
                                 .type = DType::q8_0,
                                 .rows = kOutputs,
                                 .cols = kInputs,
                                 .part = [&](int64_t head) -> Result<HostMatrix> {
                                   return HostMatrix{DType::q8_0, kOutputs, kInputs,
                                                     std::span(bytes).subspan(static_cast<size_t>(head) * each, each)};
                                 }};
    Weight weight = machine.backend->upload_experts(experts, {}).value();
    weight.bias = machine.backend->upload_vector(bias).value();
    testing::Rows out(kRows, kHeads * kOutputs);
    machine.ops->linear_heads(weight, in.tensor(), out.tensor());
    std::vector<float> numbers;
    for (int64_t r = 0; r < kRows; ++r) numbers.insert(numbers.end(), out.row(r), out.row(r) + kHeads * kOutputs);
    return numbers;
  };
  auto one_thread = [] { return std::move(make_cpu_backend({.threads = 1})).value(); };
  const std::vector<float> expected = multiply(testing::Machine(one_thread()));
  for (const RankCut cut : {RankCut::outputs, RankCut::experts}) {
    for (const int ranks : {2, 3, 4}) {
      const std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(ranks);
      std::vector<std::vector<float>> found(static_cast<size_t>(ranks));
      std::vector<std::thread> all;
      for (size_t r = 0; r < found.size(); ++r)
        all.emplace_back(
            [&, r] { found[r] = multiply(testing::Machine(make_rank_backend(one_thread(), comms[r], cut).value())); });
      for (std::thread& one : all) one.join();
      for (const std::vector<float>& numbers : found) EXPECT_EQ(numbers, expected) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace millrace
