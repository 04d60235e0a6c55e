// Limiter: how much a tenant may use: requests a minute, tokens a minute, requests at once. Buckets fill steadily and
// hold what a minute gives. Tokens are charged when a request has ended and its count is known, so a bucket may go
// below zero, and nobody comes in until it is above again. Times are seconds given by the caller. Any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "server/api_error.h"
#include "server/keys.h"

namespace millrace {

class Limiter {
 public:
  // Lets a request in, or says why not and when to come again. Whoever was let in must leave().
  std::optional<ApiError> enter(const std::string& tenant, const TenantLimits& limits, double now);
  void leave(const std::string& tenant, const TenantLimits& limits, int64_t tokens, double now);

 private:
  struct Account {
    double requests = 0, tokens = 0;  // left
    double filled = 0;                // when
    int open = 0;
    bool known = false;
  };
  void fill(Account& account, const TenantLimits& limits, double now);

  std::mutex mutex_;
  std::map<std::string, Account> accounts_;  // only tenants that have keys: their number does not grow
};

}  // namespace millrace
