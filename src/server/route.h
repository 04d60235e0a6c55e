// Routes: which path is answered by what. Every interface has a table of them; the tables are what the router looks at,
// what needs a key, and what /openapi.json lists, so there is no route beside them, and no row without a handler: it
// would not compile. Constant; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/schema.h"

namespace millrace {

class Service;

// Who asks.
struct Visitor {
  std::string tenant;
  TenantLimits limits;
  bool oversees = true;  // may see what all do, not only its own share
};

// A request that was let in, on its way to its handler.
struct Call {
  HttpRequest request;
  std::shared_ptr<Exchange> exchange;
  Visitor visitor;
  std::string argument;  // what the path has in place of {id}
};

// What answers, at once or later. Called on the I/O thread: whatever takes time goes to a worker.
class Handler {
 public:
  using Function = void (*)(Service& service, Call call);
  Handler() = delete;
  Handler(std::nullptr_t) = delete;
  constexpr Handler(Function function) : function_(function) {}  // a row of a table names the function alone
  void operator()(Service& service, Call call) const { function_(service, std::move(call)); }

 private:
  Function function_;
};

enum class Access : uint8_t {
  key,      // whoever has a key, where there are keys
  anybody,  // no key needed
  metrics,  // a key, unless metrics are open to scrapers without one
};

// What a request brings: one of the bodies of a table, and the name /openapi.json has for it.
struct RouteBody {
  std::string_view name = "";
  unsigned kind = 0;  // 0: none
  const Table& (*table)() = nullptr;
};

struct Route {
  std::string_view method, path, summary;
  Handler handler;
  Access access = Access::key;
  RouteBody body = {};
  HttpAnswer (*refuse)(const ApiError&) = &error_answer;  // errors as its interface writes them
};

// All tables, one per interface.
std::span<const std::span<const Route>> route_tables();

struct FoundRoute {
  const Route* route = nullptr;
  bool other_method = false;  // the path is there, but not for this method
  std::string argument;
};
FoundRoute find_route(std::string_view method, std::string_view path);
// Whether a body is of any use there, and none is taken from somebody who would need no key where others have one.
bool takes_body(std::string_view method, std::string_view path);

}  // namespace millrace
