// The head of a request, from the parser to plain values: what no two readers may understand differently is refused
// here, before anybody acts on it. Pure; I/O thread.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <string_view>

#include "server/http.h"

namespace millrace {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Whether the head that these bytes begin with has a header that goes on in the next line. False while it is not whole.
bool has_folded_header(std::string_view bytes);
// Whether the request line ends as that of some version of HTTP does.
bool names_a_version(std::string_view bytes);

// 0 if the head can be acted on, else the status to refuse it with.
int check_request_head(const RequestParser& parser, int most_headers);
// Method, target and headers; no body yet.
HttpRequest request_of(const RequestParser& parser);

}  // namespace millrace
