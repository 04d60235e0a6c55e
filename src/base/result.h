// Result: a value or an Error a person can act on. Everything a file, a prompt or a client can cause comes back this
// way (contract 3); CHECK in base/check.h is for our own mistakes only. Values, no threads, no allocation beyond the
// message.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace millrace {

enum class Code : uint8_t {
  invalid,      // the caller asked for something that makes no sense
  not_found,    // a file, key or tensor is not there
  unsupported,  // understood, but not built
  corrupt,      // a file contradicts itself
  no_memory,    // does not fit the ledger
  overloaded,   // not now; try again
  cancelled,    // the caller went away
  io,           // the operating system said no
  internal,     // our mistake, caught at a boundary
};

std::string_view code_name(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;  // one sentence: what is wrong, with the numbers, and what to do
};

template <class... Args>
Error error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  T&& value() && { return checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  void checked() const { CHECK(ok(), "value of a failed Result: {}", std::get<1>(state_).message); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  void value() const { CHECK(ok_, "value of a failed Result: {}", error_.message); }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

// Puts what was being done before the message of an error: "model.gguf: tensor 'x' ...".
inline Error within(std::string_view what, Error inner) {
  inner.message = fmt::format("{}: {}", what, inner.message);
  return inner;
}

#define MILLRACE_JOIN2(a, b) a##b
#define MILLRACE_JOIN(a, b) MILLRACE_JOIN2(a, b)

// TRY(auto x, f()) declares x from f()'s value, or returns its error. TRY_VOID(f()) where there is no value to keep.
#define TRY(declaration, expression) MILLRACE_TRY(MILLRACE_JOIN(try_result_, __COUNTER__), declaration, expression)
#define MILLRACE_TRY(name, declaration, expression) \
  auto name = (expression);                         \
  if (!name.ok()) return std::move(name).error();   \
  declaration = std::move(name).value()
#define TRY_VOID(expression) MILLRACE_TRY_VOID(MILLRACE_JOIN(try_void_, __COUNTER__), expression)
#define MILLRACE_TRY_VOID(name, expression)         \
  do {                                              \
    auto name = (expression);                       \
    if (!name.ok()) return std::move(name).error(); \
  } while (0)

}  // namespace millrace
