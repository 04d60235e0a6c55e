#include "server/trace.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "server/http.h"

namespace millrace {
namespace {

constexpr size_t kLongestId = 128;

// As the standard writes them: small letters only.
bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c == '0'; });
}

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kLongestId && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_.:+/=@").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool read_traceparent(std::string_view text, Trace& out) {
  constexpr size_t kSize = 55;  // 00-TRACE-PARENT-FLAGS
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32), parent = text.substr(36, 16),
                         flags = text.substr(53, 2);
  if (!is_hex(version) || !is_hex(trace) || !is_hex(parent) || !is_hex(flags)) return false;
  if (version == "ff" || is_zero(trace) || is_zero(parent)) return false;
  // Later versions may say more.
  if (text.size() > kSize && (version == "00" || text[kSize] != '-')) return false;
  out.trace = trace;
  out.parent = parent;
  out.sampled = ((flags[1] <= '9' ? flags[1] - '0' : flags[1] - 'a' + 10) & 1) != 0;
  return true;
}

Trace trace_of(const HttpRequest& request) {
  Trace trace;
  read_traceparent(request.header("traceparent"), trace);
  if (const std::string_view id = request.header("x-request-id"); is_id(id)) {
    trace.id = id;
  } else {
    std::array<uint8_t, 12> drawn = {};
    CHECK(RAND_bytes(drawn.data(), static_cast<int>(drawn.size())) == 1, "no random numbers");
    trace.id = fmt::format("req-{:02x}", fmt::join(drawn, ""));
  }
  return trace;
}

}  // namespace millrace
