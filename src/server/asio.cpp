// The one place where Asio and Beast are compiled, and where their assertions come to.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace boost {

// A library that finds itself where it thought it could not be ends the connection it was busy with, not the server:
// what led it there came from a client. Under a fuzzer it ends the process, so that somebody looks at it.
void assertion_failed(const char* condition, const char* function, const char* file, long line) {
  std::fprintf(stderr, "%s:%ld: %s: '%s' does not hold\n", file, line, function, condition);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  std::abort();
#else
  throw std::logic_error(condition);
#endif
}
void assertion_failed_msg(const char* condition, const char* message, const char* function, const char* file,
                          long line) {
  std::fprintf(stderr, "%s\n", message);
  assertion_failed(condition, function, file, line);
}

}  // namespace boost
