// A running digest of a file as it comes: SHA-256, or the SHA-1 that git names its files by. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace millrace {

class FileDigest {
 public:
  enum class Kind : uint8_t { none, sha256, git };
  // git's digest begins with the size of the whole file.
  FileDigest(Kind kind, uint64_t size);

  void add(std::span<const std::byte> bytes);
  std::string hex();  // ends it; empty for none

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace millrace
