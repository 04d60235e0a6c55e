#include "server/limiter.h"

#include <algorithm>

namespace millrace {
namespace {

ApiError too_many(std::string message, double wait) {
  return come_again(
      {.status = 429, .message = std::move(message), .type = "rate_limit_error", .code = "rate_limit_exceeded"}, wait);
}

}  // namespace

void Limiter::fill(Account& account, const TenantLimits& limits, double now) {
  const double passed = account.known ? std::max(0.0, now - account.filled) : 60;
  account.known = true;
  account.filled = now;
  account.requests = std::min(limits.requests_per_minute, account.requests + passed * limits.requests_per_minute / 60);
  account.tokens = std::min(limits.tokens_per_minute, account.tokens + passed * limits.tokens_per_minute / 60);
}

std::optional<ApiError> Limiter::enter(const std::string& tenant, const TenantLimits& limits, double now) {
  std::lock_guard lock(mutex_);
  Account& account = accounts_[tenant];
  fill(account, limits, now);
  if (limits.concurrent > 0 && account.open >= limits.concurrent)
    return too_many(fmt::format("{} requests are open, and at most {} may be", account.open, limits.concurrent), 1);
  if (limits.requests_per_minute > 0 && account.requests < 1)
    return too_many(fmt::format("at most {:.0f} requests a minute are taken", limits.requests_per_minute),
                    (1 - account.requests) * 60 / limits.requests_per_minute);
  if (limits.tokens_per_minute > 0 && account.tokens <= 0)
    return too_many(fmt::format("at most {:.0f} tokens a minute are given", limits.tokens_per_minute),
                    (1 - account.tokens) * 60 / limits.tokens_per_minute);
  account.requests -= 1;
  ++account.open;
  return {};
}

void Limiter::leave(const std::string& tenant, const TenantLimits& limits, int64_t tokens, double now) {
  std::lock_guard lock(mutex_);
  Account& account = accounts_[tenant];
  fill(account, limits, now);
  account.tokens -= static_cast<double>(tokens);
  --account.open;
}

}  // namespace millrace
