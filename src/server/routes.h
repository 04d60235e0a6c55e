// The routes: which path is answered by what. The table is what the router looks at, what needs a key, and what
// /openapi.json lists, so there is no route beside it. I/O thread.
#pragma once

#include "server/service.h"

namespace millrace {

struct Routes {
  struct Found {
    const Route* route = nullptr;
    bool other_method = false;  // the path is there, but not for this method
  };
  static Found find(const HttpRequest& request);
  static void answer(Service& service, const Route& route, HttpRequest request, std::shared_ptr<Exchange> exchange,
                     const Service::Visitor& visitor);

 private:
  static HttpAnswer health(const Service& service);
  static HttpAnswer ready(const Service& service);
  static HttpAnswer models(const Service& service);
  static HttpAnswer version(const Service& service);
  static HttpAnswer tokenize(const Service& service, const HttpRequest& request);
  static HttpAnswer detokenize(const Service& service, const HttpRequest& request);
  static HttpAnswer apply_template(const Service& service, const HttpRequest& request);
};

}  // namespace millrace
