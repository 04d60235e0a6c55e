// GgufKeys: writes the keys of one architecture into a GGUF file. Keeps the first thing that went wrong, so that keys
// are written as a list. Used while converting, on one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/gguf_writer.h"

namespace millrace {

class GgufKeys {
 public:
  GgufKeys(GgufWriter& writer, std::string_view architecture) : writer_(writer), architecture_(architecture) {}

  std::string_view architecture() const { return architecture_; }
  void put(std::string_view name, int64_t value) { keep(writer_.put(key(name), static_cast<uint32_t>(value))); }
  void put_number(std::string_view name, double value) { keep(writer_.put(key(name), static_cast<float>(value))); }
  void put_text(std::string_view name, std::string_view value) { keep(writer_.put(key(name), value)); }
  void put_flag(std::string_view name, bool value) { keep(writer_.put(key(name), value)); }
  void put_flags(std::string_view name, const std::vector<bool>& flags);
  void put_counts(std::string_view name, const std::vector<int32_t>& counts);
  void put_numbers(std::string_view name, const std::vector<float>& numbers);
  Result<void> status() { return std::move(failed_); }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  void keep(Result<void> result) {
    if (failed_.ok() && !result.ok()) failed_ = std::move(result);
  }

  GgufWriter& writer_;
  std::string_view architecture_;
  Result<void> failed_;
};

}  // namespace millrace
