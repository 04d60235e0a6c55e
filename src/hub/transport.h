// GET over HTTP and HTTPS, by libcurl: redirects (the key goes only to the host it is for), ranges, bounded bodies, and
// failures as sentences. One thread. An error of Code::overloaded may go away: the same may be asked again.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace millrace {

struct TransportOptions {
  std::string ca_file;                    // certificates to trust instead of the system's; empty: the system's
  std::string token;                      // a key, sent as Bearer
  std::string token_origin;               // to addresses that begin so: scheme, host and port
  std::function<bool()> go_on = nullptr;  // asked often; false ends a transfer
  int stall_seconds = 60;                 // without a byte for so long, a transfer has failed
};

struct HttpHead {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; what a redirect said under ":NAME"
  std::string get(const std::string& name) const;
};

struct HttpTransfer;  // one answer as it comes

class Transport {
 public:
  explicit Transport(TransportOptions options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  struct Ask {
    std::string url;
    std::string accept = {};  // the header, if any
    uint64_t from = 0;        // first byte wanted
  };
  // `head` is called once, before the first byte; `body` with every piece. What either returns as an error ends the
  // transfer and comes back. Any status but 2xx is an error (416 too).
  using OnHead = std::function<Result<void>(const HttpHead&)>;
  using OnBody = std::function<Result<void>(std::span<const std::byte>)>;
  Result<HttpHead> get(const Ask& ask, const OnHead& head, const OnBody& body);

  // A whole body of at most `most` bytes.
  Result<std::string> get_text(const Ask& ask, size_t most, HttpHead* head = nullptr);

 private:
  Result<void> once(const Ask& ask, const std::string& url, HttpTransfer& transfer);

  TransportOptions options_;
  void* curl_ = nullptr;
};

}  // namespace millrace
