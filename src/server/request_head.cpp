#include "server/request_head.h"

#include <algorithm>
#include <iterator>

namespace millrace {

namespace http = boost::beast::http;

bool has_folded_header(std::string_view bytes) {
  const size_t end = std::min(bytes.find("\r\n\r\n"), bytes.size());
  for (size_t at = bytes.find("\r\n"); at < end && at + 2 < bytes.size(); at = bytes.find("\r\n", at + 2))
    if (bytes[at + 2] == ' ' || bytes[at + 2] == '\t') return true;
  return false;
}

bool names_a_version(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find("\r\n"));
  if (std::count(line.begin(), line.end(), ' ') != 2) return false;
  const std::string_view version = line.substr(line.rfind(' ') + 1);
  auto digit = [&](size_t at) { return version[at] >= '0' && version[at] <= '9'; };
  return version.size() == 8 && version.starts_with("HTTP/") && digit(5) && version[6] == '.' && digit(7);
}

int check_request_head(const RequestParser& parser, int most_headers) {
  const auto& head = parser.get();
  if (head.version() != 10 && head.version() != 11) return 505;
  if (std::distance(head.begin(), head.end()) > most_headers) return 431;
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() == 11)) return 400;
  // Chunks and nothing else, said once: whoever stands before us and reads it otherwise would see other requests.
  if (const auto codings = head.count(http::field::transfer_encoding); codings > 0) {
    if (head.version() == 10) return 400;
    if (codings > 1 || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked")) return 501;
  }
  const std::string_view target(head.target().data(), head.target().size());
  return target.starts_with('/') || target.starts_with("http://") || target.starts_with("https://") ? 0 : 400;
}

HttpRequest request_of(const RequestParser& parser) {
  const auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  if (!target.starts_with('/')) {  // the absolute form that proxies use
    target.remove_prefix(target.find("//") + 2);
    target = target.find('/') == std::string_view::npos ? "/" : target.substr(target.find('/'));
  }
  request.path = std::string(target.substr(0, target.find('?')));
  if (target.find('?') != std::string_view::npos) request.query = std::string(target.substr(target.find('?') + 1));
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  return request;
}

}  // namespace millrace
