// Iteration over values, one item at a time: the iterators that filters such as map and select give are lazy, as in
// Python, and can be used once. Belongs to one render and its thread.
#pragma once

#include "text/template/run.h"

namespace millrace::jinja {

struct Iterator : Object {
  explicit Iterator(std::string_view what) : Object(Type::iterator), name(what) {}
  // The next item, or a missing value at the end. Guards against being called from within itself.
  Result<Value> next(Run& run);

  std::string_view name;  // of the filter or function that made it

 protected:
  virtual Result<Value> advance(Run& run) = 0;

 private:
  bool running_ = false;
};

// Python's iter(): an error for what cannot be iterated over.
Result<Ref<Iterator>> iterate(Run& run, const Value& value);
bool is_iterable(const Value& value);

// Calls f(item) -> Result<void> for each.
template <class F>
Result<void> for_each(Run& run, const Value& value, F f) {
  TRY(Ref<Iterator> iterator, iterate(run, value));
  while (true) {
    TRY(Value item, iterator->next(run));
    if (item.is_missing()) return {};
    TRY_VOID(f(std::move(item)));
  }
}

// Python's list(value), as C++ values.
Result<Values> collect(Run& run, const Value& value);
// Python's reversed(): only for what has an order and a length; missing otherwise.
Result<Value> reversed(Run& run, const Value& value);

}  // namespace millrace::jinja
