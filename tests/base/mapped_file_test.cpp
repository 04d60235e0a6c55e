// Files that change while they are mapped: cut short, written to, replaced. Before there was a guard, the first of
// these ended the process.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

fs::path make_file(const char* name, size_t bytes) {
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("mapped-{}-{}", getpid(), name);
  std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
  // Old enough that any write shows, however coarse the clock of the file system is.
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  return path;
}

size_t count_x(std::span<const std::byte> bytes) {
  size_t count = 0;
  for (const std::byte byte : bytes) count += byte == std::byte{'x'};
  return count;
}

TEST(MappedFile, CutShortReadsAsZerosAndIsTold) {
  const fs::path path = make_file("cut", 1 << 20);
  const auto file = MappedFile::open(path).value();
  EXPECT_TRUE(file->unchanged().ok());
  EXPECT_EQ(file->state().size, 1u << 20);
  fs::resize_file(path, 100000);
  EXPECT_LT(count_x(file->bytes()), 200000u);
  const auto changed = file->unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("from 1048576 to 100000 bytes"), std::string::npos) << changed.error().message;
  fs::resize_file(path, 1 << 20);  // as long as before, but what was read is not what it holds
  EXPECT_FALSE(file->unchanged().ok());
}

TEST(MappedFile, ManyThreadsMayFallIntoTheHole) {
  const fs::path path = make_file("hole", 8 << 20);
  const auto file = MappedFile::open(path).value(), other = MappedFile::open(path).value();
  fs::resize_file(path, 0);
  std::vector<std::thread> threads;
  for (const auto& each : {file, other, file, other}) {
    threads.emplace_back([each] { EXPECT_EQ(count_x(each->bytes()), 0u); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(file->unchanged().ok());
  EXPECT_FALSE(other->unchanged().ok());
}

// As long as reading takes, somebody writes. A file that nobody touches meanwhile is read as it is.
TEST(ReadFile, WrittenToOrCutShortMeanwhileIsTold) {
  const fs::path path = make_file("whole", 64 << 20);
  EXPECT_EQ(read_file(path).value().size(), 64u << 20);
  const auto told = [&](const std::function<void()>& change, const char* words) {
    std::atomic<bool> done{false};
    std::thread writer([&] {
      for (; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1))) change();
    });
    bool found = false;
    for (int tries = 0; tries < 50 && !found; ++tries) {
      const auto text = read_file(path);
      found = !text.ok() && text.error().message.find(words) != std::string::npos;
    }
    done = true;
    writer.join();
    return found;
  };
  EXPECT_TRUE(told([&] { std::ofstream(path, std::ios::binary | std::ios::in) << "y"; }, "written to while it was"));
  int turn = 0;
  EXPECT_TRUE(told([&] { fs::resize_file(path, (64 << 20) - ++turn); }, "changed while it was read, from"));
  fs::remove(path);
}

TEST(MappedFile, WrittenToIsTold) {
  const fs::path path = make_file("written", 5000);
  const auto file = MappedFile::open(path).value();
  std::ofstream(path, std::ios::binary | std::ios::in) << "y";
  const auto changed = file->unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("written to"), std::string::npos) << changed.error().message;
}

TEST(MappedFile, WrittenToIsToldThoughItsTimeIsSetBack) {
  const fs::path path = make_file("set-back", 5000);
  const auto file = MappedFile::open(path).value();
  const auto before = fs::last_write_time(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the clock of a file system may be coarse
  std::ofstream(path, std::ios::binary | std::ios::in) << "y";
  fs::last_write_time(path, before);
  const auto changed = file->unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("written to"), std::string::npos) << changed.error().message;
}

// Nobody can tell from outside whether it was written to and set back as well, so it counts; but nobody says that it
// was.
TEST(MappedFile, AChangedEntryIsToldAsSuch) {
  const fs::path path = make_file("entry", 5000);
  const auto file = MappedFile::open(path).value();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fs::permissions(path, fs::perms::owner_read);
  const auto changed = file->unchanged();
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("owner or permissions"), std::string::npos) << changed.error().message;
  EXPECT_EQ(changed.error().message.find("was written to while"), std::string::npos) << changed.error().message;
}

TEST(MappedFile, ReplacedOrDeletedIsNoChange) {
  const fs::path path = make_file("replaced", 5000), other = make_file("other", 10);
  const auto file = MappedFile::open(path).value();
  fs::rename(other, path);
  EXPECT_TRUE(file->unchanged().ok());
  fs::remove(path);
  EXPECT_TRUE(file->unchanged().ok());
  EXPECT_EQ(count_x(file->bytes()), 5000u);
}

// The handler is for our files only: whatever else is wrong with the process still ends it.
TEST(MappedFileDeathTest, OtherBusErrorsStillEndTheProcess) {
  const fs::path ours = make_file("ours", 5000), theirs = make_file("theirs", 1 << 20);
  const auto file = MappedFile::open(ours).value();
  auto read_theirs = [&] {
    const int fd = ::open(theirs.c_str(), O_RDONLY);
    const auto* data = static_cast<const volatile char*>(::mmap(nullptr, 1 << 20, PROT_READ, MAP_PRIVATE, fd, 0));
    fs::resize_file(theirs, 0);
    return data[4096 * 3];
  };
  EXPECT_DEATH((void)read_theirs(), "");
  EXPECT_DEATH(::raise(SIGBUS), "");
}

}  // namespace
}  // namespace millrace
