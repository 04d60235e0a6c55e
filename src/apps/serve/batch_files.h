// The two files of a batch: lines that come in their own time, and rows that are on their way to the disk one by one.
// Either may be a pipe. Used by one thread.
#pragma once

#include <chrono>
#include <string>

#include "server/batch_file.h"

namespace millrace::apps {

// Requests, a line each.
class BatchInput {
 public:
  // Refuses a folder, and the file that the answers go to.
  static Result<BatchInput> open(const std::string& in, const std::string& out);
  BatchInput(BatchInput&& other) noexcept;
  BatchInput& operator=(BatchInput&&) = delete;
  ~BatchInput();

  enum class Next : uint8_t { line, nothing_yet, end };
  // The next line, if it is there within `patience`; else the caller may look at other things meanwhile. Of a line that
  // is too long to be asked only as much is kept as it takes to say so.
  Result<Next> next(std::string& line, std::chrono::milliseconds patience);

  uint64_t bytes() const { return bytes_; }        // 0: a pipe, nobody knows
  uint64_t position() const { return position_; }  // bytes taken as lines so far

 private:
  BatchInput() = default;
  bool take(std::string& line);
  std::string path_, read_;  // read_: what no line was made of yet, from begin_ on
  size_t begin_ = 0, looked_ = 0;
  uint64_t bytes_ = 0, position_ = 0;
  int fd_ = -1;
  bool ended_ = false;
};

// Answers. A kill loses at most part of the last row.
class BatchOutput {
 public:
  // What an earlier run wrote there goes into `record`. Refuses a file that another batch is writing to.
  static Result<BatchOutput> open(const std::string& path, BatchRecord& record);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();
  Result<void> write(std::string row);

 private:
  BatchOutput() = default;
  Result<void> resume(BatchRecord& record);
  Result<void> wait_for_room() const;
  std::string path_;
  int fd_ = -1;
  bool regular_ = false;
  int64_t rows_ = 0;
};

}  // namespace millrace::apps
