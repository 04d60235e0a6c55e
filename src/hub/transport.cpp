#include "hub/transport.h"

#include <curl/curl.h>

#include <algorithm>
#include <optional>

#include "base/human.h"
#include "hub/name.h"

namespace millrace {

struct HttpTransfer {
  const Transport::OnHead& on_head;
  const Transport::OnBody& on_body;
  const std::function<bool()>& go_on;
  CURL* curl;
  HttpHead head = {};
  std::string complaint = {};  // the beginning of the body of what is no success
  std::optional<Error> failure = {};
  bool begun = false;

  bool succeeded() const { return head.status >= 200 && head.status < 300; }

  void header(std::string_view line) {
    const size_t colon = line.find(':');
    if (line.starts_with("HTTP/")) std::erase_if(head.headers, [](const auto& row) { return row.first[0] != ':'; });
    if (line.starts_with("HTTP/") || colon == line.npos || head.headers.size() > 200) return;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    const std::string_view value = line.substr(colon + 1);
    const size_t first = value.find_first_not_of(" \t\r\n"), last = value.find_last_not_of(" \t\r\n");
    if (!name.empty())
      head.headers[name] = first == value.npos ? "" : std::string(value.substr(first, last - first + 1));
  }

  bool begin() {
    if (begun) return !failure;
    begun = true;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &head.status);
    if (!succeeded()) return true;
    if (auto taken = on_head(head); !taken.ok()) failure = taken.error();
    return !failure;
  }

  bool body(std::span<const std::byte> bytes) {
    if (!begin()) return false;
    if (!succeeded()) {
      const size_t room = 600 - std::min<size_t>(600, complaint.size());
      complaint.append(reinterpret_cast<const char*>(bytes.data()), std::min(room, bytes.size()));
      return room > 0;
    }
    if (auto taken = on_body(bytes); !taken.ok()) failure = taken.error();
    return !failure;
  }
};

namespace {

constexpr int kMostRedirects = 8;

size_t on_header(char* data, size_t, size_t size, void* transfer) {
  static_cast<HttpTransfer*>(transfer)->header({data, size});
  return size;
}

size_t on_body(char* data, size_t, size_t size, void* transfer) {
  return static_cast<HttpTransfer*>(transfer)->body(std::as_bytes(std::span(data, size))) ? size : 0;
}

int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& go_on = static_cast<HttpTransfer*>(transfer)->go_on;
  return go_on == nullptr || go_on() ? 0 : 1;
}

bool is_local(std::string_view origin) {
  const std::string_view host = origin.substr(std::min(origin.find("://") + 3, origin.size()));
  const std::string_view name = host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.find(':'));
  return name == "127.0.0.1" || name == "localhost" || name == "[::1]";
}

// What a server said beside its status, in a line; not its pages.
std::string said(std::string_view complaint) {
  std::string text;
  for (const char c : complaint.substr(0, 200))
    text += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? ' ' : c;
  while (text.ends_with(' ')) text.pop_back();
  return text.empty() || text[0] == '<' ? "" : fmt::format(" ({})", text);
}

Error status_error(const std::string& url, const HttpTransfer& transfer) {
  const long status = transfer.head.status;
  const std::string told = said(transfer.complaint);
  if (status == 401 || status == 403) {
    return error(Code::invalid,
                 "{}: the server wants a key for this ({}){}: accept the model's conditions on its page if it has any, "
                 "make a token there and set HF_TOKEN",
                 url, status, told);
  }
  if (status == 404 || status == 410)
    return error(Code::not_found, "{}: not there ({}){}; look at the spelling of owner, name and tag", url, status,
                 told);
  if (status == 416) return error(Code::corrupt, "{}: the server has fewer bytes than were asked for (416)", url);
  if (status == 408 || status == 429 || status >= 500)
    return error(Code::overloaded, "{}: the server cannot answer now ({}){}", url, status, told);
  return error(Code::io, "{}: the server answered with status {}{}", url, status, told);
}

Error transfer_error(const std::string& url, CURLcode failed, const char* words) {
  const std::string what = *words != '\0' ? words : curl_easy_strerror(failed);
  switch (failed) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return error(Code::overloaded, "{} cannot be reached: {}", origin_of(url), what);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return error(Code::invalid,
                   "{}: its certificate is not trusted: {}; a certificate authority of your own goes into --ca-file",
                   origin_of(url), what);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return error(Code::invalid, "'{}' is no address that can be asked: {}", url, what);
    default:
      return error(Code::overloaded, "{}: the transfer broke off: {}", url, what);
  }
}

}  // namespace

std::string HttpHead::get(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Transport::Transport(TransportOptions options) : options_(std::move(options)) {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(once == CURLE_OK, "libcurl cannot start");
  curl_ = curl_easy_init();
  CHECK(curl_ != nullptr, "libcurl cannot start");
}

Transport::~Transport() { curl_easy_cleanup(curl_); }

Result<void> Transport::once(const Ask& ask, const std::string& url, HttpTransfer& transfer) {
  CURL* curl = curl_;
  char words[CURL_ERROR_SIZE] = "";
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "millrace");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_seconds));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  if (!options_.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
  const std::string range = fmt::format("{}-", ask.from);
  if (ask.from > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  curl_slist* headers = nullptr;
  const std::string origin = origin_of(url);
  if (!options_.token.empty() && origin == options_.token_origin && (origin.starts_with("https:") || is_local(origin)))
    headers = curl_slist_append(headers, fmt::format("Authorization: Bearer {}", options_.token).c_str());
  if (!ask.accept.empty()) headers = curl_slist_append(headers, fmt::format("Accept: {}", ask.accept).c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode failed = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, nullptr);
  curl_slist_free_all(headers);
  if (failed == CURLE_OK) transfer.begin();  // an answer without a body
  if (transfer.failure) return *transfer.failure;
  if (failed == CURLE_ABORTED_BY_CALLBACK) return error(Code::cancelled, "interrupted");
  if (failed != CURLE_OK && (transfer.succeeded() || transfer.head.status == 0))
    return transfer_error(url, failed, words);
  return {};
}

Result<HttpHead> Transport::get(const Ask& ask, const OnHead& head, const OnBody& body) {
  std::string url = ask.url;
  std::map<std::string, std::string> kept;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    HttpTransfer transfer{.on_head = head, .on_body = body, .go_on = options_.go_on, .curl = curl_};
    for (const auto& [name, value] : kept) transfer.head.headers[name] = value;
    TRY_VOID(once(ask, url, transfer));
    if (transfer.succeeded()) return transfer.head;
    char* location = nullptr;
    if (transfer.head.status >= 300 && transfer.head.status < 400)
      curl_easy_getinfo(curl_, CURLINFO_REDIRECT_URL, &location);
    if (location == nullptr) return status_error(url, transfer);
    // What a redirect says of the file it leads to.
    for (const char* name : {"x-linked-etag", "x-linked-size"}) {
      if (const std::string value = transfer.head.get(name); !value.empty()) kept[fmt::format(":{}", name)] = value;
    }
    const std::string next = location;
    if (url.starts_with("https:") && !next.starts_with("https:"))
      return error(Code::invalid, "{} leads to an address without encryption, {}: not followed", url, next);
    url = next;
  }
  return error(Code::invalid, "{} leads on more than {} times: not followed", ask.url, kMostRedirects);
}

Result<std::string> Transport::get_text(const Ask& ask, size_t most, HttpHead* head) {
  std::string text;
  auto add = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (bytes.size() > most - text.size())
      return error(Code::corrupt, "{}: the answer is longer than {}, which is more than it can be", ask.url,
                   human_bytes(most));
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  TRY(HttpHead got, get(
                        ask, [](const HttpHead&) { return Result<void>(); }, add));
  if (head != nullptr) *head = std::move(got);
  return text;
}

}  // namespace millrace
