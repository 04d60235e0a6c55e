// Ranks as threads of one process. A rank counts its calls, and others wait for that count: they spin, then let others
// run, then sleep. A little goes through a rank's letter box, of which there are two used in turn: whoever is one call
// further has read the one before. Much is read where it lies, and a second count says that it was.
#include <sched.h>

#include <array>
#include <atomic>

#include "backend/comm.h"
#include "base/check.h"
#include "base/relax.h"
#include "base/team.h"

namespace millrace {
namespace {

constexpr int64_t kLetterBytes = 64 << 10;
constexpr int kSpins = 4000, kYields = 200;

struct alignas(64) Member {
  std::atomic<uint32_t> tick{0};
  std::atomic<uint32_t> sleepers{0};
  const Movement* posted = nullptr;
  std::array<std::vector<std::byte>, 2> letters;
};

bool reached(uint32_t tick, uint32_t wanted) { return static_cast<int32_t>(tick - wanted) >= 0; }

void await(Member& member, uint32_t wanted, int spins) {
  auto there = [&] { return reached(member.tick.load(std::memory_order_acquire), wanted); };
  for (int i = 0; i < spins; ++i) {
    if (there()) return;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (there()) return;
    sched_yield();
  }
  member.sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t now; !reached(now = member.tick.load(std::memory_order_seq_cst), wanted);)
    member.tick.wait(now, std::memory_order_seq_cst);
  member.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void arrive(Member& member, uint32_t tick) {
  member.tick.store(tick, std::memory_order_seq_cst);
  if (member.sleepers.load(std::memory_order_seq_cst) > 0) member.tick.notify_all();
}

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<std::vector<Member>> members, int rank)
      : members_(std::move(members)), rank_(rank), spins_(Team::processors() >= ranks() ? kSpins : 0) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(members_->size()); }
  const char* name() const override { return "threads"; }

  void broadcast(std::vector<std::byte>& message) override {
    const uint32_t tick = ++tick_;
    if (rank_ == 0) {
      for (int r = 1; r < ranks(); ++r) await(member(r), tick - 1, spins_);  // the letter box is free
      member(0).letters[tick % 2] = message;
      return arrive(member(0), tick);
    }
    await(member(0), tick, spins_);
    message = member(0).letters[tick % 2];
    arrive(member(rank_), tick);
  }

 protected:
  void move(const Movement& movement) override {
    const int64_t rows = movement.row_count();
    int64_t most = 0;
    for (int r = 0; r < ranks(); ++r) most = std::max(most, movement.bytes(r, 0, rows));
    most <= kLetterBytes ? move_letters(movement, rows) : move_in_place(movement);
  }

 private:
  Member& member(int rank) { return (*members_)[static_cast<size_t>(rank)]; }

  void move_letters(const Movement& movement, int64_t rows) {
    const uint32_t tick = ++tick_;
    for_others([&](int r) { await(member(r), tick - 1, spins_); });
    std::vector<std::byte>& letter = member(rank_).letters[tick % 2];
    if (letter.size() < kLetterBytes) letter.resize(kLetterBytes);
    movement.pack(rank_, 0, rows, letter.data());
    arrive(member(rank_), tick);
    for_others([&](int r) {
      await(member(r), tick, spins_);
      movement.unpack(r, 0, rows, member(r).letters[tick % 2].data());
    });
  }

  void move_in_place(const Movement& movement) {
    const uint32_t tick = ++tick_, done = ++tick_;
    member(rank_).posted = &movement;
    arrive(member(rank_), tick);
    for_others([&](int r) {
      await(member(r), tick, spins_);
      movement.pull(r, *member(r).posted);
    });
    arrive(member(rank_), done);
    for_others([&](int r) { await(member(r), done, spins_); });
  }

  // From the next rank on, so that not all read the same one's at once.
  template <class F>
  void for_others(F&& body) {
    for (int i = 1; i < ranks(); ++i) body((rank_ + i) % ranks());
  }

  std::shared_ptr<std::vector<Member>> members_;
  int rank_;
  int spins_;
  uint32_t tick_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Comm>> make_thread_comms(int ranks) {
  CHECK(ranks >= 1, "{} ranks", ranks);
  auto members = std::make_shared<std::vector<Member>>(static_cast<size_t>(ranks));
  std::vector<std::shared_ptr<Comm>> comms;
  for (int r = 0; r < ranks; ++r) comms.push_back(std::make_shared<ThreadComm>(members, r));
  return comms;
}

}  // namespace millrace
