#include "base/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPart = size_t{16} << 20, kParts = 6;

class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() : path_(fs::path(testing::TempDir()) / fmt::format("ahead-{}", ::getpid())) {
    std::ofstream(path_, std::ios::binary) << std::string(kParts * kPart, 'x');
    const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
    mapped_ = MappedFile::open(path_).value();
  }
  ~ReadAheadTest() override { fs::remove(path_); }
  // In another order than the file's, and not on the borders of pages.
  std::vector<std::span<const std::byte>> parts() const {
    std::vector<std::span<const std::byte>> found;
    for (size_t i = kParts; i > 0; --i) found.push_back(mapped_->bytes().subspan((i - 1) * kPart + 100, kPart - 200));
    return found;
  }
  static bool done(const ReadAhead& ahead) {
    for (int i = 0; i < 60'000 && !ahead.done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ahead.done();
  }
  std::byte* bytes() const { return const_cast<std::byte*>(mapped_->bytes().data()); }
  // Of the first `size` bytes, the pages that are not in memory.
  std::vector<size_t> missing(size_t size) const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> room(size / page);
    EXPECT_EQ(::mincore(bytes(), size, room.data()), 0);
    std::vector<size_t> found;
    for (size_t i = 0; i < room.size(); ++i)
      if ((room[i] & 1) == 0) found.push_back(i * page);
    return found;
  }
  // Whether asking for a page brings it: an emulator may leave advice about memory alone.
  bool advice_is_taken(size_t at) const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    (void)::madvise(bytes() + at, page, 22);  // MADV_POPULATE_READ
    const std::vector<size_t> left = missing(kParts * kPart);
    return std::ranges::find(left, at) == left.end();
  }

  fs::path path_;
  std::shared_ptr<const MappedFile> mapped_;
};

TEST_F(ReadAheadTest, BringsAllOfIt) {
  const ReadAhead ahead(parts());
  EXPECT_TRUE(done(ahead));
  const std::vector<size_t> left = missing(kParts * kPart);
  if (!left.empty() && !advice_is_taken(left.front())) GTEST_SKIP() << "advice about memory does nothing here";
  EXPECT_EQ(left.size(), 0U) << "pages";
}

TEST_F(ReadAheadTest, WhatWasReadMeanwhileIsPassedOver) {
  ReadAhead ahead(parts());
  for (size_t i = 1; i <= kParts; ++i) ahead.read(i);
  EXPECT_TRUE(done(ahead));
}

TEST_F(ReadAheadTest, AFileThatIsCutShortHarmsNobody) {
  fs::resize_file(path_, kPart);
  const ReadAhead ahead(parts());
  EXPECT_TRUE(done(ahead));
  EXPECT_FALSE(mapped_->unchanged().ok());
}

TEST_F(ReadAheadTest, MayEndBeforeItIsDone) {
  for (int i = 0; i < 20; ++i) ReadAhead ahead(parts());
}

}  // namespace
}  // namespace millrace
