#include "text/template/loop.h"

#include "text/template/convert.h"
#include "text/template/function.h"
#include "text/template/operators.h"

namespace millrace::jinja {

void Loop::let_go() {
  iterable = before = current = after = last_changed = Value();
  iterator = {};
  closure = {};
}

Result<Value> Loop::peek(Run& run) {
  if (after.is_missing()) {
    TRY(after, iterator->next(run));
  }
  return after;
}

Result<Value> Loop::advance(Run& run) {
  TRY(Value item, peek(run));
  after = Value();
  if (item.is_missing()) return item;
  ++index0;
  before = std::exchange(current, item);
  return item;
}

Result<int64_t> Loop::length(Run& run) {
  if (known_length) return *known_length;
  if (has_length(iterable)) {
    TRY(known_length, jinja::length(run, iterable));
    return *known_length;
  }
  TRY(Values rest, collect(run, Value(iterator)));
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
  TRY(iterator, iterate(run, run.heap.list(std::move(rest))));
  return *known_length;
}

Result<Value> Loop::attribute(Run& run, const Value& self, std::string_view name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "last") {
    TRY(Value item, peek(run));
    return Value::boolean(item.is_missing());
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    TRY(int64_t count, length(run));
    return Value::integer(name == "length" ? count : count - index0 - (name == "revindex" ? 0 : 1));
  }
  if (name == "previtem") return index0 == 0 ? undefined_hint(run, "there is no previous item") : before;
  if (name == "nextitem") {
    TRY(Value item, peek(run));
    return item.is_missing() ? undefined_hint(run, "there is no next item") : item;
  }
  static constexpr Builtin kCycle = {"cycle", [](Run&, const Value& loop, Arguments& arguments) -> Result<Value> {
                                       TRY_VOID(no_keywords("cycle", arguments));
                                       return loop.as<Loop>().cycle(arguments.positional);
                                     }};
  static constexpr Builtin kChanged = {"changed", [](Run& r, const Value& loop, Arguments& arguments) -> Result<Value> {
                                         TRY_VOID(no_keywords("changed", arguments));
                                         return loop.as<Loop>().changed(r, std::move(arguments.positional));
                                       }};
  if (name == "cycle") return bound(run, kCycle, self);
  if (name == "changed") return bound(run, kChanged, self);
  return Value();
}

Result<Value> Loop::changed(Run& run, Values values) {
  Value now = run.heap.tuple(std::move(values));
  if (!last_changed.is_missing()) {
    TRY(bool same, equal(run, last_changed, now));
    if (same) return Value::boolean(false);
  }
  last_changed = std::move(now);
  return Value::boolean(true);
}

Result<Value> Loop::cycle(const Values& values) const {
  if (values.empty()) return fail("no items for cycling given");
  return values[static_cast<size_t>(index0) % values.size()];
}

}  // namespace millrace::jinja
