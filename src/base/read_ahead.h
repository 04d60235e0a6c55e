// ReadAhead: parts of mapped files are brought into memory shortly before somebody reads them. A mapping that is read
// page by page waits for the disk at every few of them; here several threads keep it busy, as far ahead as a few
// hundred megabytes. What the system has in memory already is left alone. The mappings must outlive it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace millrace {

class ReadAhead {
 public:
  // In the order they will be read. Starts no thread for less than is worth one.
  explicit ReadAhead(std::vector<std::span<const std::byte>> parts);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void read(size_t parts);  // so many, from the first, have been read
  bool done() const;        // all of them were brought

 private:
  using Piece = std::span<const std::byte>;
  void work();
  bool take(Piece& piece);

  std::vector<int64_t> before_;  // bytes of all parts before each
  std::vector<Piece> pieces_;
  std::vector<int64_t> ends_;  // of each piece, counted over all

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable moved_;
  size_t next_ = 0;     // piece
  size_t brought_ = 0;  // pieces
  int64_t read_ = 0;    // bytes
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
