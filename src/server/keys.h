// Keys: who may ask. A key is kept as a keyed digest and never in a log; a given key is compared with all of them in a
// time that does not depend on how much of it is right. Read once, then immutable; any thread.
//
// A file of keys has one tenant a line: its name, its key, and what it may use, all but the first two optional:
//
//   # name   key                  limits
//   alice    sk-5f2c...           rpm=60 tpm=100000 concurrent=8
//   bob      sk-9d11...
//   carol    sk-7be0...           operator
//
// An operator sees what all tenants do, everybody else only their own share. Whoever has the only key is the operator.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/identity.h"

namespace millrace {

struct TenantLimits {
  double requests_per_minute = 0;  // 0: any number
  double tokens_per_minute = 0;    // of prompts and answers
  int concurrent = 0;              // requests at once
};

class Keys {
 public:
  struct Entry {
    std::string name;
    Identity digest;
    TenantLimits limits;
    bool oversees = false;
  };

  Keys();
  // Refuses names or keys that come twice, keys that are too short to be secret, and limits that are no numbers.
  Result<void> add(std::string name, std::string_view key, const TenantLimits& limits = {}, bool oversees = false);
  Result<void> add_lines(std::string_view text);

  bool empty() const { return entries_.empty(); }
  // The entry whose key is in "Bearer KEY"; null if there is none.
  const Entry* find(std::string_view authorization) const;
  // Whether it may see what all do.
  bool oversees(const Entry& entry) const { return entry.oversees || entries_.size() == 1; }

 private:
  Identity digest(std::string_view key) const;
  std::array<uint8_t, 32> secret_;
  std::vector<Entry> entries_;
};

}  // namespace millrace
